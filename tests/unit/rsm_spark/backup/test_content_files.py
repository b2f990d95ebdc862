"""Contents beside a log: into a place of backups and out again, byte for byte; found by number where ids differ."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rsm_spark.backup import content_files, manifest
from rsm_spark.backup.content_files import ContentCopies, content_chunks
from rsm_spark.backup.made_contents import MadeContents, in_thread
from rsm_spark.backup.manifest import (
    BackupContent,
    BackupError,
    CorruptBackupError,
    decode_backup,
    encode_backup,
    is_backup_file,
)
from rsm_spark.backup.manifest import content_files as files_of
from rsm_spark.backup.place import BackupPlace
from rsm_spark.core import contents
from rsm_spark.core.chain import LogChain, LogOrigin
from rsm_spark.core.contents import FileContent, KnownContent
from rsm_spark.errors import DamagedContentError
from rsm_spark.files import content_ledgers
from rsm_spark.files.commands import FilePlace
from rsm_spark.files.content_ledgers import ContentLedgers
from rsm_spark.log.contents import note_places, read_places
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld
from tests.unit.rsm_spark.backup.made_backup import MadeBackup
from tests.unit.rsm_spark.log.test_deletion import Nodes

_ID, _OTHER = "0a" * 16, "0b" * 16
_FOLDER = f"files/{_ID}"


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (contents, content_ledgers, manifest):
        monkeypatch.setattr(module, "CHUNK_BYTES", 8)
    for module in (content_files, manifest):
        monkeypatch.setattr(module, "PART_CHUNKS", 2)


class Side:
    """A cluster with one log, and a client of its contents."""

    def __init__(self, chain: LogChain, ledgers_before: int) -> None:
        self.chain = chain
        self.world = LedgerWorld(random.Random(1))
        self.client: Any = TwinClient(self.world, Nodes())  # type: ignore[arg-type]
        self.contents = ContentLedgers(self.client, self, "files", ReplicaSettings())  # type: ignore[arg-type]
        self._before = ledgers_before

    async def read(self) -> tuple[LogChain, int]:
        """Return the chain, as `ChainStore` does."""
        return self.chain, 1

    async def begin(self) -> None:
        """Make ledgers of others, so that ids of two clusters are not the same."""
        for _ in range(self._before):
            await self.client.create(ensemble_size=1, write_quorum=1, ack_quorum=1, password=b"", custom={})

    async def write(self, number: int, data: bytes) -> KnownContent:
        writer = await self.contents.create(number)
        for at in range(0, len(data), 8):
            await writer.write(data[at : at + 8])
        return KnownContent(number, await writer.close(), number + 1)

    async def back(self, known: KnownContent) -> bytes:
        place = FilePlace(known.number, known.content.size, known.content)
        return b"".join([piece async for piece in self.contents.pieces(place, 0, known.content.size)])


def _copies(side: Side, place: BackupPlace, moved: Any = ()) -> ContentCopies:
    async def hold_back(_count: int) -> None: ...

    return ContentCopies(side.client, side.chain, dict(moved), place, _FOLDER, hold_back)


def _manifest() -> Any:
    return SimpleNamespace(folder=_FOLDER)


def _run(main: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(120):
            await main()

    asyncio.run(limited())


def test_a_content_is_kept_once_and_written_again_under_its_number(tmp_path: Path) -> None:
    place, data = (
        BackupPlace(str(tmp_path)),
        {number: random.Random(number).randbytes(number) for number in (3, 16, 43)},
    )

    async def main() -> None:
        here = Side(LogChain(_ID), 3)
        await here.begin()
        known = [await here.write(number, one) for number, one in data.items()]
        sizes: dict[str, int] = {}
        copies = _copies(here, place)
        for one in known:
            assert await copies.keep(one, sizes)
        assert place.sizes(_FOLDER) == sizes == {path: size for one in known for path, size in files_of(one).items()}
        assert len(files_of(known[-1])) == 3, "six chunks, two a file"
        assert all(map(is_backup_file, sizes))
        # What is there is not copied again, nor is the rest of what a killed backup has begun.
        lost = list(files_of(known[-1]))[1]
        place.delete(f"{_FOLDER}/{lost}")
        sizes = place.sizes(_FOLDER)
        again = _copies(here, place)
        for one in known:
            assert await again.keep(one, sizes)
        assert again.copied == 1
        # Another cluster, in which the ledgers that the log names are those of others.
        there = Side(LogChain(_OTHER, origins=(LogOrigin("files", _ID, 100, "", 0, "", ""),)), 1)
        await there.begin()
        made = MadeContents(there.client, "again", _OTHER, password=b"", quorum=(1, 1, 1))
        for one in known:
            await made.write(one, in_thread(content_chunks(place, _manifest(), one)))
        await note_places(there.client.store, _OTHER, made.places, "/rsm")
        assert {one.ledger for one in made.places} & {one.content.ledger for one in known}, "ids are taken anew"
        for one in known:
            assert await there.back(one) == data[one.number]
        # None of its own has the id of a ledger that the older records name.
        logged = {one.content.ledger for one in known}
        own = [await there.write(number, b"new") for number in range(101, 110)]
        assert not logged & {one.content.ledger for one in own}
        assert await there.back(own[0]) == b"new"
        # A backup of the new log has what the old one had.
        second = BackupPlace(str(tmp_path / "second"))
        moved = await read_places(there.client.store, _OTHER, "/rsm")
        copies = _copies(there, second, moved)
        assert [await copies.keep(one, {}) for one in known] == [True] * 3
        assert second.sizes(_FOLDER) == place.sizes(_FOLDER)
        # What was not taken over is gone, and is no other's that has its ledger's id.
        left = KnownContent(50, known[0].content, 60, 70)
        assert not await copies.keep(left, {})

    _run(main)


def test_what_was_changed_is_neither_copied_nor_read(tmp_path: Path) -> None:
    place, data = BackupPlace(str(tmp_path)), random.Random(9).randbytes(43)

    def read(known: KnownContent) -> bytes:
        return b"".join(content_chunks(place, _manifest(), known))

    async def main() -> None:
        here = Side(LogChain(_ID), 0)
        known = await here.write(5, data)
        twin = here.world.get(known.content.ledger)
        whole = twin.entries[4]
        twin.entries[4] = whole.__class__(4, 0, 0, b"89abcdeX")
        with pytest.raises(
            DamagedContentError, match=r"file 5, whose content is ledger \d+, .* chunk 4 has another digest"
        ):
            await _copies(here, place).keep(known, {})
        # What no state names any more, as after its file was deleted, holds no backup up.
        assert not await _copies(here, place).keep(KnownContent(5, known.content, 6, 9), {})
        twin.entries[4] = whole
        assert await _copies(here, place).keep(known, {})
        assert read(known) == data
        for path in files_of(known):
            file = tmp_path / _FOLDER / path
            right = file.read_bytes()
            for at in range(len(right)):
                file.write_bytes(right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :])
                with pytest.raises(CorruptBackupError, match="changed"):
                    read(known)
            for wrong in (right[:-1], right + b"x", b""):
                file.write_bytes(wrong)
                with pytest.raises(CorruptBackupError, match="changed"):
                    read(known)
            file.write_bytes(right)
        # A ledger that is gone: what nothing names any more is noted as such, else there is no backup.
        await here.client.delete(known.content.ledger)
        empty = BackupPlace(str(tmp_path / "empty"))
        assert not await _copies(here, empty).keep(KnownContent(5, known.content, 6, 9), {})
        with pytest.raises(BackupError, match="deleted meanwhile: make the backup once more"):
            await _copies(here, empty).keep(known, {})

    _run(main)


@pytest.mark.parametrize(
    "change",
    [
        {"number": 4}, {"number": 3}, {"content": FileContent(7, 9, 1, b"d" * 32)}, {"named": 0},
        {"content": FileContent(7, 9, 2, b"")}, {"is_kept": False},
    ],
)  # fmt: skip
def test_a_manifest_that_contradicts_itself_is_none(change: dict[str, Any], tmp_path: Path) -> None:
    made = MadeBackup(tmp_path)
    made.add_segment(0, 40)
    fields: dict[str, Any] = {"number": 4, "content": FileContent(7, 9, 2, b"d" * 32), "named": 5}
    content = BackupContent(**fields)
    right = made.manifest(contents=(content,), format=2)
    place = {"log": right.log, "log_id": right.log_id, "name": right.name}
    assert decode_backup(encode_backup(right), **place) == right
    wrong = made.manifest(contents=(content, BackupContent(**(fields | {"number": 9} | change))), format=2)
    with pytest.raises(CorruptBackupError, match="content"):
        decode_backup(encode_backup(wrong), **place)

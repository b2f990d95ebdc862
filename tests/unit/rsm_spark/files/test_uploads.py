"""Files that are sent in parts: there whole or not at all, and forgotten when nothing comes."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rsm_spark.core.machine import MachineDescription
from rsm_spark.errors import InvalidDescriptionError
from rsm_spark.files.commands import (
    BeginUpload,
    DropUpload,
    EndUpload,
    FileCommand,
    FileDone,
    ReadFile,
    SetQuota,
    UploadBegun,
    WriteUpload,
    encode,
)
from rsm_spark.files.errors import FileError, FileFault
from rsm_spark.files.limits import PART_BYTES_MAX, UPLOAD_MS, UPLOADS_BYTES_MAX, UPLOADS_MAX
from rsm_spark.files.machine import FileMachine
from rsm_spark.files.records import FILES_DESCRIPTION, PARTS_TABLE, UPLOADS_TABLE
from rsm_spark.files.uploads import FileUpload, FileUploads
from rsm_spark.files.writing import write_file
from rsm_spark.testing import MachineHarness, simulate
from tests.sets import examples
from tests.unit.rsm_spark.files.asked_store import Store


def _begin(store: Store, path: str, *, overwrite: bool = False, owner: str = "ann") -> Any:
    return store.run(BeginUpload(path, owner, 0o644, overwrite))


def test_an_upload_is_nowhere_until_it_ends_and_then_whole() -> None:
    store = Store()
    number = _begin(store, "/d/f")
    parts = [b"a" * 10, b"b" * 3, b"c" * 7]
    for place, part in enumerate(parts):
        assert store.run(WriteUpload("/d/f", number, place, part)) is True
        assert store.names("/") == []
    assert store.run(EndUpload("/d/f", number)) is True
    assert store.read("/d/f") == b"".join(parts)
    for offset in range(20):
        assert store.read("/d/f", offset, 5) == b"".join(parts)[offset : offset + 5]
    assert store.harness.rows(UPLOADS_TABLE) == {}
    store.harness.restart()
    store.machine = store.harness.machine  # type: ignore[assignment]
    assert store.read("/d/f", 8, 6) == b"aabbbc", "where parts begin is known behind a snapshot, too"
    assert store.delete("/d/f") is True
    assert store.harness.rows(PARTS_TABLE) == {}


def test_parts_come_once_in_order_and_to_their_own_upload() -> None:
    store = Store()
    number = _begin(store, "/f")
    assert store.run(WriteUpload("/f", number, 1, b"x")) == "invalid"
    assert store.run(WriteUpload("/f", number, 0, b"")) == "invalid"
    assert store.run(WriteUpload("/other", number, 0, b"x")) == "not-found"
    assert store.run(WriteUpload("/f", number + 7, 0, b"x")) == "not-found"
    assert store.run(WriteUpload("/f", number, 0, b"x" * (PART_BYTES_MAX + 1))) == "too-large"
    assert store.run(EndUpload("/other", number)) == "not-found"
    assert store.run(DropUpload("/other", number)) == "not-found"
    assert store.run(WriteUpload("/f", number, 0, b"x")) is True
    assert store.run(WriteUpload("/f", number, 0, b"x")) == "invalid"
    assert store.run(EndUpload("/f", number)) is True
    assert store.run(EndUpload("/f", number)) == "not-found"


def test_whoever_comes_first_to_a_name_has_it_and_quotas_count_at_the_end() -> None:
    store = Store()
    number = _begin(store, "/q/f")
    store.run(WriteUpload("/q/f", number, 0, b"12345"))
    store.write("/q/f", b"another")
    assert store.run(EndUpload("/q/f", number)) == "exists"
    assert _begin(store, "/q/f") == "exists"
    assert store.read("/q/f") == b"another"
    assert store.run(DropUpload("/q/f", number)) is True
    assert store.run(DropUpload("/q/f", number)) is False
    number = _begin(store, "/q/f", overwrite=True)
    store.run(WriteUpload("/q/f", number, 0, b"12345"))
    store.run(SetQuota("/q", None, 4))
    assert store.run(EndUpload("/q/f", number)) is True, "what replaces more is no more"
    store.write("/q/g", b"")
    number = _begin(store, "/q/g", overwrite=True)
    store.run(WriteUpload("/q/g", number, 0, b"1"))
    assert store.run(EndUpload("/q/g", number)) == "bytes-quota"
    assert store.read("/q/g") == b""


def test_an_upload_of_which_nothing_comes_is_forgotten_by_logged_time() -> None:
    store = Store()
    number = _begin(store, "/f")
    store.run(WriteUpload("/f", number, 0, b"x" * 100))
    store.harness.advance(UPLOAD_MS - 1_000)
    assert store.run(WriteUpload("/f", number, 1, b"y")) is True, "each part gives it its time again"
    store.harness.advance(UPLOAD_MS - 1_000)
    assert number in store.machine.uploads.held
    store.harness.advance(2_000)
    assert store.harness.rows(UPLOADS_TABLE) == {}
    assert store.harness.rows(PARTS_TABLE) == {}
    assert store.run(EndUpload("/f", number)) == "not-found"


def test_uploads_have_bounds_in_number_and_bytes_and_one_owner_half() -> None:
    half = UPLOADS_BYTES_MAX // 2
    uploads = FileUploads([(1, FileUpload("/f", "eve", 0o644, False, half, 1, 0))])
    uploads.check_room("ann", half)
    with pytest.raises(FileError, match="send this one later"):
        uploads.check_room("eve", 1)
    with pytest.raises(FileError, match="send this one later"):
        uploads.check_room("ann", half + 1)
    full = FileUploads((number, FileUpload("/f", "eve", 0o644, False, 0, 0, 0)) for number in range(UPLOADS_MAX))
    with pytest.raises(FileError, match="send this one later"):
        full.check_room("ann", 0)


def test_what_is_read_in_pieces_is_one_file() -> None:
    store = Store()
    store.write("/f", b"one")
    number = store.ask(ReadFile("/f")).number
    store.write("/f", b"two", overwrite=True)
    assert store.ask(ReadFile("/f", 1, None, number)) == "not-found"


class FirstFiles(FileMachine):
    """The file store of version 1, which knew no uploads."""

    description = MachineDescription("files", 1, FILES_DESCRIPTION.tables[:3], FILES_DESCRIPTION.records[:6])


def test_a_log_of_the_first_version_goes_on_and_takes_uploads_once_it_is_raised() -> None:
    store = Store()
    store.machine = FirstFiles()
    store.harness = MachineHarness(store.machine)
    store.write("/d/f", b"old")
    store.harness.restart(FileMachine())
    store.machine = store.harness.machine  # type: ignore[assignment]
    assert store.read("/d/f") == b"old"
    assert store.write("/d/g", b"new") is True
    with pytest.raises(InvalidDescriptionError, match="still of version 1"):
        _begin(store, "/d/h")
    store.harness.raise_version()
    number = _begin(store, "/d/h")
    store.run(WriteUpload("/d/h", number, 0, b"x"))
    assert store.run(EndUpload("/d/h", number)) is True
    assert store.names("/d") == ["f", "g", "h"]


async def _pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


class _Executed:
    """Takes commands as a leader does; the one with this number is refused."""

    def __init__(self, store: Store, refused: int = -1) -> None:
        self.store, self.refused, self.commands = store, refused, list[FileCommand]()

    async def __call__(self, command: FileCommand) -> FileDone | UploadBegun:
        self.commands.append(command)
        if len(self.commands) - 1 == self.refused:
            raise FileError(FileFault.FULL, "no room")
        said = self.store.run(command)
        assert not isinstance(said, str), said
        return UploadBegun(said) if isinstance(command, BeginUpload) else FileDone(said)


@pytest.mark.asyncio
async def test_a_short_file_is_one_command_and_a_long_one_an_upload() -> None:
    store = Store()
    for path, parts, commands in (("/none", [], 1), ("/short", [b"x"], 1), ("/long", [b"x" * 9, b"y" * 9, b"z"], 5)):
        execute = _Executed(store)
        size = await write_file(execute, path, _pieces(*parts), "ann", 0o644, overwrite=False)
        assert (size, len(execute.commands)) == (len(b"".join(parts)), commands)
        assert store.read_all(path) == b"".join(parts)


@pytest.mark.asyncio
@pytest.mark.parametrize("refused", [1, 2, 3])
async def test_an_upload_that_is_refused_midway_leaves_nothing(refused: int) -> None:
    store = Store()
    with pytest.raises(FileError, match="no room"):
        await write_file(_Executed(store, refused), "/f", _pieces(b"a", b"b"), "ann", 0o644, overwrite=False)
    assert store.names("/") == []
    assert store.harness.rows(PARTS_TABLE) == store.harness.rows(UPLOADS_TABLE) == {}


def test_uploads_agree_on_all_replicas_whatever_fails() -> None:
    def draw(rng: random.Random) -> bytes:
        path, number = f"/{rng.choice('ab')}", rng.randint(1, 60)
        drawn: list[FileCommand] = [
            BeginUpload(path, "ann", 0o644, True),
            WriteUpload(path, number, rng.randint(0, 1), rng.randbytes(20)),
            EndUpload(path, number),
            DropUpload(path, number),
        ]
        return encode(rng.choice(drawn))

    def invariant(machine: FileMachine) -> None:
        uploads, parts = machine.uploads.held, {key for key, _ in machine.items(PARTS_TABLE)}
        nodes = {row[0]: row[3] for _, row in machine.items("entries")}
        assert not nodes.keys() & uploads.keys(), "an upload is a file already"
        counts = {number: one.part_count for number, one in uploads.items()} | nodes
        assert parts == {(number, part) for number, count in counts.items() for part in range(count)}

    simulate(FileMachine, draw, seeds=examples(2), invariant=invariant)

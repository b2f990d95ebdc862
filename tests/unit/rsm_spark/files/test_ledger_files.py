"""Files whose contents lie in ledgers: what the log says of them, who may say it, and when a ledger may go."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ledger.errors import NoSuchLedgerError
from ledger.testing.simulation import Simulation
from rsm_spark.core import contents as content
from rsm_spark.core.chain import ChainLedger, LogChain, LogOrigin
from rsm_spark.core.contents import CHUNK_BYTES, CONTENTS_TABLE, FREED_TABLE, FileContent, chunks_of, digest_of
from rsm_spark.core.machine import MachineDescription, TableDescription
from rsm_spark.core.orphans import content_metadata, content_number, custom_metadata, is_orphan
from rsm_spark.core.table_machine import upsert
from rsm_spark.errors import DamagedContentError, InvalidCommandError, InvalidDescriptionError
from rsm_spark.files import content_ledgers
from rsm_spark.files.cleaning import is_due
from rsm_spark.files.commands import (
    AppendFile,
    BeginUpload,
    DropUpload,
    EndLedger,
    EndUpload,
    FileCommand,
    FileDone,
    FilePlace,
    FindNameless,
    ForgetLedgers,
    FreedLedger,
    ListFreed,
    NoteLedger,
    NoteProgress,
    ReadFile,
    RenameRule,
    SetQuota,
    ShowEntry,
    UploadBegun,
    WriteUpload,
    encode,
)
from rsm_spark.files.content_ledgers import ContentLedgers
from rsm_spark.files.limits import LARGE_BYTES_MAX, UPLOAD_MS
from rsm_spark.files.machine import FileMachine
from rsm_spark.files.records import FILES_DESCRIPTION, UPLOADS_TABLE
from rsm_spark.files.scopes import FileScopes
from rsm_spark.files.writing import write_file
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.testing import MachineHarness, simulate
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld
from tests.sets import examples
from tests.unit.rsm_spark.files.asked_store import Store

_DIGEST = b"d" * 32
_LOG_ID = "ab" * 16


def _named(store: Store, path: str, ledger: int, size: int = 3_000_000, *, overwrite: bool = False) -> int:
    """Put a file at a path whose content is said to lie in a ledger; return its number."""
    number: int = store.run(BeginUpload(path, "ann", 0o644, overwrite))
    assert store.run(NoteLedger(path, number, ledger)) is True
    assert store.run(NoteProgress(path, number, size // 2)) is True
    assert store.run(EndLedger(path, number, size, chunks_of(size), _DIGEST)) is True
    return number


def _freed(store: Store) -> dict[int, bool]:
    """Return the ledgers that are free, and whether a file had them."""
    return {one.ledger: one.revision > 0 for one in store.ask(ListFreed("/", 100, 1 << 40)).ledgers}


def test_a_file_in_a_ledger_is_there_when_the_log_says_so_and_what_is_appended_lies_behind_it() -> None:
    store = Store()
    number = store.run(BeginUpload("/d/f", "ann", 0o644, False))
    assert store.run(NoteLedger("/d/f", number, 7)) is True
    assert store.run(WriteUpload("/d/f", number, 0, b"x")) == "invalid"
    assert store.run(EndUpload("/d/f", number)) == "invalid"
    assert store.run(NoteProgress("/d/f", number, 1_000_000)) is True
    assert store.names("/") == []
    assert store.run(EndLedger("/d/f", number, 3_000_000, 3, _DIGEST)) is True
    assert store.ask(ShowEntry("/d/f")).size == 3_000_000
    assert store.run(AppendFile("/d/f", b"behind")) is True
    assert store.run(AppendFile("/d/f", b" it")) is True
    place = FilePlace(number, 3_000_009, FileContent(7, 3_000_000, 3, _DIGEST))
    for _ in range(2):
        assert store.ask(ReadFile("/d/f", 2_999_999, 5)) == place
        assert store.read("/d/f", 3_000_000) == b"behind it"
        assert store.read("/d/f", 3_000_004, 4) == b"nd i"
        assert store.read("/d/f", 3_000_009) == b""
        assert store.ask(ReadFile("/d/f", 3_000_010)) == "invalid"
        store.harness.restart()
        store.machine = store.harness.machine  # type: ignore[assignment]
    assert store.delete("/d/f") is True
    assert store.harness.rows(CONTENTS_TABLE) == store.harness.rows(UPLOADS_TABLE) == {}
    assert _freed(store) == {7: True}


def test_whatever_takes_a_file_away_frees_its_ledger_once() -> None:
    store = Store()
    _named(store, "/a/deleted", 1)
    _named(store, "/a/replaced", 2)
    _named(store, "/a/renamed-over", 3)
    _named(store, "/a/below/purged", 4)
    assert store.delete("/a/deleted") is True
    _named(store, "/a/replaced", 5, overwrite=True)
    store.write("/a/short")
    assert store.rename("/a/short", "/a/renamed-over", RenameRule.OVERWRITE) is True
    assert store.delete("/a/below", recursive=True) is True
    store.harness.advance(1)
    assert _freed(store) == {1: True, 2: True, 3: True, 4: True}
    first = min(one.revision for one in store.ask(ListFreed("/", 9, 1 << 40)).ledgers)
    assert [one.ledger for one in store.ask(ListFreed("/", 9, first + 1)).ledgers] == [1]
    assert store.ask(ListFreed("/", 9, first)).ledgers == (), "those that may not go yet hide none that may"
    assert store.run(ForgetLedgers("/", (1, 3, 99))) is True
    assert store.run(ForgetLedgers("/", (1,))) is False
    assert sorted(_freed(store)) == [2, 4]
    assert store.rename("/a/replaced", "/b") is True
    assert store.ask(ReadFile("/b")).content.ledger == 5


def test_an_upload_that_is_given_up_frees_its_ledger_and_nothing_names_that_any_more() -> None:
    store = Store()
    dropped = store.run(BeginUpload("/f", "ann", 0o644, False))
    silent = store.run(BeginUpload("/f", "ann", 0o644, False))
    alive = store.run(BeginUpload("/f", "ann", 0o644, False))
    for number, ledger in ((dropped, 10), (silent, 11), (alive, 12)):
        assert store.run(NoteLedger("/f", number, ledger)) is True
    assert store.run(NoteLedger("/f", alive, 13)) == "invalid", "an upload has one ledger"
    assert store.run(DropUpload("/f", dropped)) is True
    store.harness.advance(UPLOAD_MS - 1)
    assert store.run(NoteProgress("/f", alive, 5)) is True
    store.harness.advance(1)
    store.harness.advance(1)
    assert _freed(store) == {10: False, 11: False}
    for number in (dropped, silent):
        assert store.run(EndLedger("/f", number, 5, 1, _DIGEST)) == "not-found"
    asked = ((10, dropped), (11, silent), (12, alive), (13, alive), (14, silent), (15, 10_000))
    # 14 was made for an upload that has ended; 13, too, is nobody's, as soon as its own upload is over.
    assert store.ask(FindNameless("/", asked)).ledgers == (14,)
    assert store.run(EndLedger("/f", alive, 5, 1, _DIGEST)) is True
    assert store.ask(FindNameless("/", asked)).ledgers == (13, 14)


def test_what_will_be_refused_in_the_end_is_refused_while_it_comes() -> None:
    store = Store()
    store.mkdir("/q")
    store.run(SetQuota("/q", None, 1_000_000))
    number = store.run(BeginUpload("/q/f", "ann", 0o644, False))
    assert store.run(NoteProgress("/q/f", number, 10)) == "invalid", "it has no ledger"
    store.run(NoteLedger("/q/f", number, 1))
    assert store.run(NoteProgress("/q/f", number, 900_000)) is True
    assert store.run(NoteProgress("/q/f", number, 1_000_001)) == "bytes-quota"
    assert store.run(NoteProgress("/q/f", number, LARGE_BYTES_MAX + 1)) == "too-large"
    for size, chunks, digest in ((0, 0, _DIGEST), (5, 2, _DIGEST), (5, 1, b"short"), (CHUNK_BYTES + 1, 1, _DIGEST)):
        assert store.run(EndLedger("/q/f", number, size, chunks, digest)) == "invalid"
    assert store.run(EndLedger("/q/f", number, 1_000_001, 1, _DIGEST)) == "bytes-quota"
    assert store.run(EndLedger("/q/f", number, 999_999, 1, _DIGEST)) is True


def test_what_lies_in_a_ledger_is_for_servers_to_say() -> None:
    said: list[FileCommand] = [
        NoteLedger("/f", 1, 2), NoteProgress("/f", 1, 2), EndLedger("/f", 1, 2, 1, _DIGEST), ForgetLedgers("/", (1,)),
    ]  # fmt: skip
    assert all(FileScopes.is_governing(encode(command)) for command in said)
    assert not FileScopes.is_governing(encode(DropUpload("/f", 1)))


def test_a_ledger_goes_when_no_state_can_be_had_that_names_it() -> None:
    def chain(*first_revisions: int) -> LogChain:
        return LogChain(
            _LOG_ID, ledgers=tuple(ChainLedger(number, 0, 1, first) for number, first in enumerate(first_revisions))
        )

    assert is_due(FreedLedger(1, 1, 0), chain(1)), "no file ever had it"
    assert not is_due(FreedLedger(1, 1, 50), chain(1, 100))
    assert not is_due(FreedLedger(1, 1, 50), chain(50, 100)), "its name goes with the first record"
    assert is_due(FreedLedger(1, 1, 50), chain(51, 100))
    assert not is_due(FreedLedger(1, 1, 50), chain())


def test_a_ledger_says_for_which_upload_it_was_made_and_is_no_orphan_of_the_log() -> None:
    custom = content_metadata("files", _LOG_ID, 17)
    assert content_number(custom) == 17
    assert content_number(custom_metadata("files", _LOG_ID, 3, -1)) is None
    assert content_number({"rsm_content": b"x"}) is content_number({"rsm_content": b"9" * 30}) is None
    assert not is_orphan(5, custom, LogChain(_LOG_ID), 1_000)


def _second_files() -> FileMachine:
    """Return the file store of version 2, whose contents all lay in the records."""
    uploads = FILES_DESCRIPTION.tables[3]
    before = TableDescription(uploads.name, uploads.key, uploads.row[:-1])
    records = (*FILES_DESCRIPTION.records[:6], upsert(22, "uploaded", before), FILES_DESCRIPTION.records[7])
    second = MachineDescription("files", 2, (*FILES_DESCRIPTION.tables[:3], before), records)
    return type("SecondFiles", (FileMachine,), {"description": second})()  # type: ignore[no-any-return]


class _Taken:
    """Takes commands as a leader does, and makes contents that nobody keeps."""

    def __init__(self, store: Store) -> None:
        self.store, self.given_up = store, 0

    async def execute(self, command: FileCommand) -> FileDone | UploadBegun:
        try:
            said = self.store.run(command)
        except InvalidDescriptionError as error:
            raise InvalidCommandError(str(error)) from error
        assert not isinstance(said, str), said
        return UploadBegun(said) if isinstance(command, BeginUpload) else FileDone(said)


def test_ledgers_of_files_agree_on_all_replicas_whatever_fails() -> None:
    def draw(rng: random.Random) -> bytes:
        path, number, ledger = f"/{rng.choice('ab')}", rng.randint(1, 60), rng.randint(1, 9)
        size = rng.choice((5, CHUNK_BYTES, CHUNK_BYTES + 1))
        drawn: list[FileCommand] = [
            BeginUpload(path, "ann", 0o644, True), NoteLedger(path, number, ledger), NoteProgress(path, number, size),
            EndLedger(path, number, size, chunks_of(size), _DIGEST), DropUpload(path, number),
            AppendFile(path, b"more"), ForgetLedgers("/", (ledger,)),
        ]  # fmt: skip
        return encode(rng.choice(drawn))

    def invariant(machine: FileMachine) -> None:
        nodes = {row[0]: row[2] for _, row in machine.items("entries")}
        for (number,), (ledger, size, _, _) in machine.items(CONTENTS_TABLE):
            assert nodes[number] >= size, "a content without a file"
            del ledger
        assert not machine.uploads.held.keys() & {number for (number,), _ in machine.items(CONTENTS_TABLE)}

    simulate(FileMachine, draw, seeds=examples(2), invariant=invariant)


# ---- contents in ledgers


class _Chains:
    """The chain of one log."""

    def __init__(self, log_id: str = _LOG_ID, *origins: str) -> None:
        told = tuple(LogOrigin("before", one, 1, "", 0, "", "") for one in origins)
        self.chain = LogChain(log_id, origins=told)

    async def read(self) -> tuple[LogChain, int]:
        return self.chain, 1


def _contents(client: TwinClient, chains: Any) -> ContentLedgers:
    return ContentLedgers(client, chains, "files", ReplicaSettings())  # type: ignore[arg-type]


async def _written(contents: ContentLedgers, number: int, data: bytes) -> FilePlace:
    writer = await contents.create(number)
    for at in range(0, len(data), content.CHUNK_BYTES):
        await writer.write(data[at : at + content.CHUNK_BYTES])
    return FilePlace(number, len(data), await writer.close())


async def _read(contents: ContentLedgers, place: FilePlace, offset: int, end: int) -> bytes:
    return b"".join([piece async for piece in contents.pieces(place, offset, end)])


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "CHUNK_BYTES", 8)
    monkeypatch.setattr(content_ledgers, "CHUNK_BYTES", 8)


@pytest.mark.usefixtures("short_chunks")
def test_every_part_of_a_content_is_what_was_written() -> None:
    simulation = Simulation(3)

    async def main() -> None:
        client = TwinClient(LedgerWorld(random.Random(3)), await simulation.metadata.connect(session_timeout_ms=4000))
        contents = _contents(client, _Chains())
        for size in (1, 8, 9, 40, 43):
            data = random.Random(size).randbytes(size)
            place = await _written(contents, size, data)
            for offset in range(size):
                for end in range(offset + 1, size + 1):
                    assert await _read(contents, place, offset, end) == data[offset:end]

    simulation.run(main(), limit_s=600)


@pytest.mark.usefixtures("short_chunks")
def test_nothing_is_given_out_that_is_not_what_the_log_names() -> None:
    simulation = Simulation(4)

    async def main() -> None:
        world = LedgerWorld(random.Random(4))
        client = TwinClient(world, await simulation.metadata.connect(session_timeout_ms=4000))
        contents = _contents(client, _Chains())
        data = b"0123456789abcdefghijklmn"
        place = await _written(contents, 5, data)
        twin = world.get(place.content.ledger)
        whole = list(twin.entries)

        async def refused(what: str, by: ContentLedgers | None = None, wanted: FilePlace = place) -> None:
            with pytest.raises(DamagedContentError, match=what):
                await _read(by or _contents(client, _Chains()), wanted, 0, 24)

        # A bookie that was broken into, or a mistake: checksums of entries are right, the content is another one.
        twin.entries[1] = whole[1].__class__(1, 0, 0, b"89abcdeX")
        assert await _read(_contents(client, _Chains()), place, 0, 8) == data[:8], "a part that is right is read"
        await refused("chunk 1 has another digest")
        forged = b"".join(digest_of(entry.payload) for entry in twin.entries[:3])
        twin.entries[3] = whole[3].__class__(3, 0, 0, forged)
        await refused("its index has another digest")
        twin.entries[:] = whole
        assert await _read(contents, place, 3, 20) == data[3:20]
        # Somebody who can make the log name a ledger has no other file, and no other log's, by that.
        await refused("not made for this file", wanted=FilePlace(6, 24, place.content))
        await refused("not made for this log", by=_contents(client, _Chains("cd" * 16)))
        assert await _read(_contents(client, _Chains("cd" * 16, _LOG_ID)), place, 0, 24) == data, "its fork reads it"
        writer = await contents.create(9)
        await writer.write(data[:8])
        unfinished = FileContent(writer.ledger, 8, 1, digest_of(digest_of(data[:8])))
        await refused("its last entry is", wanted=FilePlace(9, 8, unfinished))
        await client.delete(place.content.ledger)
        with pytest.raises(NoSuchLedgerError):
            await _read(_contents(client, _Chains()), place, 0, 24)

    simulation.run(main(), limit_s=600)


@pytest.mark.usefixtures("short_chunks")
def test_a_long_file_is_written_to_a_ledger_and_to_the_records_while_the_log_is_older() -> None:
    simulation = Simulation(5)
    parts = (b"01234567", b"89abcdef", b"gh")

    async def pieces() -> Any:
        for part in parts:
            yield part

    async def main() -> None:
        world = LedgerWorld(random.Random(5))
        client = TwinClient(world, await simulation.metadata.connect(session_timeout_ms=4000))
        contents = _contents(client, _Chains())
        store = Store()
        taken = _Taken(store)
        size = await write_file(taken.execute, "/f", pieces(), "ann", 0o644, overwrite=False, begin=contents.create)
        place = store.ask(ReadFile("/f"))
        assert (size, place.size) == (18, 18)
        assert await _read(contents, place, 0, 18) == b"".join(parts)
        older = Store()
        older.machine = _second_files()
        older.harness = MachineHarness(older.machine)
        older.write("/d/f", b"old")
        older.harness.restart(FileMachine())
        older.machine = older.harness.machine  # type: ignore[assignment]
        for wanted in ("records", "ledger"):
            execute = _Taken(older).execute
            await write_file(execute, f"/{wanted}", pieces(), "ann", 0o644, overwrite=False, begin=contents.create)
            if wanted == "records":
                assert older.read(f"/{wanted}") == b"".join(parts)
                older.harness.raise_version()
            else:
                assert isinstance(older.ask(ReadFile(f"/{wanted}")), FilePlace)
        assert older.harness.rows(FREED_TABLE) == {}

    simulation.run(main(), limit_s=600)

"""Where followers begin, on a log in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from connectors.delta.settings import MaterializeSettings
from connectors.delta.start import open_followers
from connectors.errors import DeltaSinkError, ForeignTableError
from connectors.source.decode import StoredEntry
from connectors.source.look import Confirmed
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from rsm_spark.core.chain import ChainLedger, LogChain
from rsm_spark.core.envelope import Envelope, encode_envelope, root_hash
from rsm_spark.core.machine import Row, TableDescription, encode_description
from rsm_spark.core.records import KernelRecord, Record, encode_records, pack
from tests.unit.connectors.delta.logged import (
    LOG_ID,
    MAP,
    PAIRS,
    follower,
    machine,
    put,
    records,
    wider,
)
from tests.unit.connectors.delta.test_bootstrap import write_snapshot


class LogInMemory:
    """What `LogLook` asks of a cluster; ledgers 3, 4, …; one record an entry."""

    def __init__(self) -> None:
        self.ledgers: list[ChainLedger] = []
        self.entries: dict[int, list[StoredEntry]] = {}
        self.hashes = [root_hash(bytes.fromhex(LOG_ID))]

    @property
    def revision(self) -> int:
        return len(self.hashes) - 1

    def roll(self, *tables: TableDescription) -> None:
        ledger_id = 3 + len(self.entries)
        self.ledgers.append(ChainLedger(ledger_id, 0, len(self.entries) + 1, self.revision + 1))
        self.entries[ledger_id] = []
        self.append([Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(machine(*tables)),))])

    def append(self, entries: Sequence[Record]) -> None:
        for record in entries:
            revision = self.revision
            envelope = Envelope(bytes.fromhex(LOG_ID), 1, revision + 1, revision, 1, 1, self.hashes[-1])
            payload = encode_envelope(envelope, encode_records([record]))
            self.hashes.append(hashlib.sha256(payload).digest())
            held = self.entries[self.ledgers[-1].ledger_id]
            held.append(StoredEntry(len(held), 0, payload))

    def trim(self) -> None:
        del self.entries[self.ledgers.pop(0).ledger_id]

    def chain(self, _log: str) -> LogChain:
        return LogChain(LOG_ID, ledgers=tuple(self.ledgers))

    def former_names(self, log: str) -> tuple[str, list[str]]:
        assert log == "orders"
        return LOG_ID, []

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        held, is_closed = self.entries[ledger_id], ledger_id != self.ledgers[-1].ledger_id
        end: dict[str, Any] = {"last_entry_id": len(held) - 1, "length": 1} if is_closed else {}
        state = LedgerState.CLOSED if is_closed else LedgerState.OPEN
        return LedgerMetadata(QuorumConfig(1, 1, 1), state, (Segment(0, ("a:1",)),), DigestType.CRC32C, b"", **end)

    def confirmed(self, ledger_id: int) -> Confirmed:
        last = len(self.entries[ledger_id]) - 1
        return Confirmed(last, last)

    def read(self, ledger_id: int, first_entry_id: int, last_entry_id: int) -> list[StoredEntry]:
        return self.entries[ledger_id][first_entry_id : last_entry_id + 1]

    def close(self) -> None:
        """Nothing to end."""


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> LogInMemory:
    made = LogInMemory()
    monkeypatch.setattr("connectors.delta.begin.DriverAccess", lambda _options: made)
    return made


def opened(folder: Path, **more: Any) -> dict[str, int]:
    """Return where tables begin, by name, as a run of the job does."""
    given: dict[str, Any] = {"is_every_table": True, **more}
    settings = MaterializeSettings(log="orders", place=str(folder), checkpoint=str(folder / "c"), **given)
    tables = open_followers(settings, lambda: True)
    found = {table.name: table.position() for table in tables}
    assert tables.next_revision == min(one.revision for one in found.values() if one is not None) + 1
    return {name: one.revision for name, one in found.items() if one is not None}


def puts(count: int) -> list[Record]:
    return [Record(16, None, (b"k%d" % number, b"v")) for number in range(count)]


def test_tables_are_made_with_the_columns_of_their_first_description(log: LogInMemory, tmp_path: Path) -> None:
    log.roll(MAP)
    log.roll(wider(MAP, "more"), PAIRS)
    assert opened(tmp_path) == {"map": 0, "pairs": 0}
    loaded = follower(tmp_path / "map").at.load()
    assert loaded is not None
    assert loaded.followed.row_names == ["value"], "the new column comes with its record"


def test_one_table_of_several_must_be_named(log: LogInMemory, tmp_path: Path) -> None:
    log.roll(MAP, PAIRS)
    with pytest.raises(DeltaSinkError, match="say which by --machine-table"):
        opened(tmp_path, is_every_table=False)
    assert opened(tmp_path / "one", is_every_table=False, machine_table="pairs") == {"pairs": 0}


@pytest.mark.parametrize("name", ["a/b", ".hidden", "_ours", ""])
def test_a_table_that_can_be_no_folder_is_one_error(log: LogInMemory, tmp_path: Path, name: str) -> None:
    log.roll(TableDescription(name, MAP.key, MAP.row))
    with pytest.raises(DeltaSinkError, match="cannot be the name of a folder"):
        opened(tmp_path)


def test_a_log_without_a_description_is_one_error(log: LogInMemory, tmp_path: Path) -> None:
    log.ledgers.append(ChainLedger(3, 0, 1, 1))
    log.entries[3] = []
    with pytest.raises(DeltaSinkError, match="log orders holds no record that describes its machine"):
        opened(tmp_path)


def test_a_table_of_another_history_is_refused(log: LogInMemory, tmp_path: Path) -> None:
    log.roll(MAP)
    follower(tmp_path / "map").apply(records([None]))  # prefix hash 0101…
    with pytest.raises(ForeignTableError, match="followed another history"):
        opened(tmp_path)


def test_a_trimmed_log_asks_for_the_lake_and_begins_there(log: LogInMemory, tmp_path: Path) -> None:
    log.roll(MAP, PAIRS)
    log.append(puts(8))
    follower(tmp_path / "lagging" / "map").apply(records([put(b"old", b"1")]))
    log.roll(MAP, PAIRS)
    log.trim()
    with pytest.raises(DeltaSinkError, match=r"these tables lack some of them: map, pairs\. Begin with a snapshot"):
        opened(tmp_path / "new")
    with pytest.raises(DeltaSinkError, match=r"has no sound snapshot of this log .* \(found: none\)"):
        opened(tmp_path / "new", lake=str(tmp_path / "lake"))
    rows = [Row("map", pack((b"a",)), pack((b"1",)), 2)]
    write_snapshot(tmp_path / "lake", 9, rows, prefix_hash=bytes(32).hex())
    with pytest.raises(DeltaSinkError, match=r"\(found: 9\)"):
        opened(tmp_path / "new", lake=str(tmp_path / "lake"))
    write_snapshot(tmp_path / "lake", 9, rows, prefix_hash=log.hashes[9].hex())
    for place in ("new", "lagging"):
        assert opened(tmp_path / place, lake=str(tmp_path / "lake")) == {"map": 9, "pairs": 9}
        position = follower(tmp_path / place / "map").position()
        assert position is not None
        assert position.row_count == 1


def test_a_history_that_lacks_trimmed_changes_is_not_patched(log: LogInMemory, tmp_path: Path) -> None:
    log.roll(MAP)
    log.append(puts(8))
    follower(tmp_path / "map", mode="append").apply(records([put(b"old", b"1")]))
    log.roll(MAP)
    log.trim()
    write_snapshot(tmp_path / "lake", 9, [], prefix_hash=log.hashes[9].hex())
    with pytest.raises(DeltaSinkError, match="changes in between are gone for good"):
        opened(tmp_path, lake=str(tmp_path / "lake"), mode="append")


def test_a_table_whose_position_was_cleared_away_finds_it_in_the_log(log: LogInMemory, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    log.roll(MAP)
    log.append(puts(3))
    opened(tmp_path)
    follower(tmp_path / "map").apply(records([None, put(b"a", b"1")]))
    DeltaTable(str(tmp_path / "map")).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 day"})
    DeltaTable(str(tmp_path / "map")).create_checkpoint()
    for commit in sorted((tmp_path / "map" / "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()
    assert opened(tmp_path) == {"map": 2}
    position = follower(tmp_path / "map").position()
    assert position is not None
    assert (position.ledger, position.entry, position.prefix_hash) == (3, 1, log.hashes[2].hex())

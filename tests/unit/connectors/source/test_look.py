from __future__ import annotations

import hashlib
from typing import Any

import pytest

from connectors.errors import StartGoneError
from connectors.source.bounds import Bound, BoundKind
from connectors.source.decode import StoredEntry
from connectors.source.look import Confirmed, LogLook
from connectors.source.offsets import LogOffset
from connectors.source.plan import EntryHead
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.errors import NoSuchLedgerError
from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain
from rsm_spark.core.envelope import Envelope, encode_envelope, root_hash
from rsm_spark.core.machine import MachineDescription, encode_description
from rsm_spark.core.records import KernelRecord, Record, encode_records
from rsm_spark.errors import CorruptLogError

LOG_ID = bytes(range(16))


class FakeLog:
    """Chain, metadata and bookies in memory: the leader's side of `LogAccess`."""

    def __init__(self) -> None:
        self.entries: dict[int, list[StoredEntry]] = {}
        self.ledgers: list[ChainLedger] = []
        self.states: dict[int, LedgerState] = {}
        self.says: dict[int, Confirmed] = {}
        self.reads = 0
        self.log_id = LOG_ID
        self._revision, self._hash = 1, root_hash(LOG_ID)

    def log_keys(self) -> None:
        return None

    def roll(self, ledger_id: int, epoch: int = 1) -> None:
        if self.ledgers:
            self.close(self.ledgers[-1].ledger_id)
        self.ledgers.append(ChainLedger(ledger_id, 0, epoch, self._revision))
        self.entries[ledger_id], self.states[ledger_id] = [], LedgerState.OPEN
        self.says[ledger_id] = Confirmed(-1, -1)

    def close(self, ledger_id: int) -> None:
        self.states[ledger_id] = LedgerState.CLOSED

    def add(self, records: list[Record], confirmed: int) -> None:
        ledger_id = self.ledgers[-1].ledger_id
        envelope = Envelope(LOG_ID, 1, self._revision, confirmed, 5, len(records), self._hash)
        payload = encode_envelope(envelope, encode_records(records))
        entries = self.entries[ledger_id]
        entries.append(StoredEntry(len(entries), 100 * (len(entries) + 1), payload))
        self._revision += len(records)
        self._hash = hashlib.sha256(payload).digest()

    def notes(self, count: int, confirmed: int) -> None:
        self.add([Record(18, None, ("x",))] * count, confirmed)

    def chain(self, log: str) -> LogChain:
        return LogChain(self.log_id.hex(), ledgers=tuple(self.ledgers))

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        if ledger_id not in self.states:
            raise NoSuchLedgerError(f"ledger {ledger_id}: no such ledger")
        entries, state = self.entries[ledger_id], self.states[ledger_id]
        end: dict[str, Any] = {}
        if state == LedgerState.CLOSED:
            end = {"last_entry_id": len(entries) - 1, "length": 100 * len(entries)}
        segments = (Segment(0, ("a:1", "b:2")),)
        return LedgerMetadata(QuorumConfig(2, 2, 2), state, segments, DigestType.CRC32C, b"", **end)

    def confirmed(self, ledger_id: int) -> Confirmed:
        return self.says[ledger_id]

    def read(self, ledger_id: int, first_entry_id: int, last_entry_id: int) -> list[StoredEntry]:
        self.reads += 1
        assert self.states[ledger_id] == LedgerState.CLOSED or last_entry_id <= max(self.says[ledger_id])
        return self.entries[ledger_id][first_entry_id : last_entry_id + 1]


@pytest.fixture
def log() -> FakeLog:
    fake = FakeLog()
    fake.roll(3)
    return fake


def test_the_header_lac_is_no_proof_the_envelope_above_it_is(log: FakeLog) -> None:
    log.notes(2, confirmed=0)
    log.notes(3, confirmed=2)
    look = LogLook("orders", log)
    assert look.look().end == LogOffset(-1, 0, 1)
    log.says[3] = Confirmed(last_add_confirmed=0, explicit_lac=-1)
    assert look.look().end == LogOffset(-1, 0, 1), "entry 0 does not say that it is confirmed itself"
    log.says[3] = Confirmed(last_add_confirmed=1, explicit_lac=-1)
    assert look.look().end == LogOffset(3, 1, 3), "entry 1 says that records 1 and 2 are"


def test_an_explicit_lac_shows_the_tail_of_an_idle_log(log: FakeLog) -> None:
    log.notes(2, confirmed=0)
    log.says[3] = Confirmed(last_add_confirmed=0, explicit_lac=0)
    assert LogLook("orders", log).look().end == LogOffset(3, 1, 3)


def test_the_end_never_goes_back(log: FakeLog) -> None:
    log.notes(2, confirmed=0)
    log.says[3] = Confirmed(0, 0)
    look = LogLook("orders", log)
    end = look.look().end
    log.says[3] = Confirmed(-1, -1)
    assert look.look().end == end


def test_an_entry_without_records_waits_for_the_lac(log: FakeLog) -> None:
    log.notes(2, confirmed=0)
    log.add([], confirmed=2)
    log.says[3] = Confirmed(1, -1)
    look = LogLook("orders", log)
    assert look.look().end == LogOffset(3, 1, 3)
    log.says[3] = Confirmed(1, 1)
    assert look.look().end == LogOffset(3, 2, 3)


def test_an_entry_appended_again_names_an_old_revision_the_highest_named_counts(log: FakeLog) -> None:
    log.notes(2, confirmed=0)
    log.notes(1, confirmed=2)
    log.notes(1, confirmed=0)
    log.says[3] = Confirmed(2, -1)
    assert LogLook("orders", log).look().end == LogOffset(3, 1, 3)


def test_a_closed_ledger_is_read_to_its_end_and_looked_at_once(log: FakeLog) -> None:
    log.notes(2, confirmed=0)
    log.notes(2, confirmed=0)
    log.roll(4)
    look = LogLook("orders", log)
    assert look.look().end == LogOffset(3, 2, 5)
    reads = log.reads
    assert look.look().spans[0].length == 200
    assert log.reads == reads


def test_what_the_chain_says_of_a_closed_ledger_needs_no_other_read(log: FakeLog) -> None:
    log.ledgers[0] = ChainLedger(3, 0, 1, 1, ClosedEnd(9, 50, 5, 1000, ""))
    del log.states[3]
    assert LogLook("orders", log).look().end == LogOffset(3, 10, 51)


def test_nothing_is_read_beyond_a_ledger_that_is_not_closed(log: FakeLog) -> None:
    log.notes(2, confirmed=0)
    log.roll(4)
    log.notes(2, confirmed=2)
    log.says[4] = Confirmed(0, 0)
    log.states[3] = LedgerState.IN_RECOVERY
    look = LogLook("orders", log)
    assert look.look().end == LogOffset(-1, 0, 1)
    log.states[3] = LedgerState.CLOSED
    assert look.look().end == LogOffset(4, 1, 5)


def test_a_log_made_anew_under_the_same_name_is_refused(log: FakeLog) -> None:
    look = LogLook("orders", log)
    look.look()
    log.log_id = bytes(16)
    with pytest.raises(CorruptLogError, match="it was made anew"):
        look.look()


def test_a_ledger_trimmed_under_the_look_is_looked_at_again(log: FakeLog) -> None:
    log.notes(2, confirmed=0)
    log.roll(4)
    log.notes(1, confirmed=2)
    log.says[4] = Confirmed(0, 0)
    chains = [LogChain(LOG_ID.hex(), ledgers=tuple(log.ledgers)), LogChain(LOG_ID.hex(), ledgers=(log.ledgers[1],))]
    del log.states[3]
    log.chain = lambda log: chains.pop(0)  # noqa: ARG005  # type: ignore[method-assign]
    look = LogLook("orders", log)
    view = look.look()
    assert (view.first_revision, view.end) == (3, LogOffset(4, 1, 4))
    with pytest.raises(StartGoneError, match="records 1 to 2"):
        look.position_of(view, Bound(BoundKind.REVISION, revision=1))


def test_a_chained_ledger_that_never_comes_back_is_damage(log: FakeLog) -> None:
    del log.states[3]
    with pytest.raises(CorruptLogError, match="a ledger of its chain does not exist: ledger 3"):
        LogLook("orders", log).look()


def test_bounds_are_found(log: FakeLog) -> None:
    for _ in range(5):
        log.notes(10, confirmed=0)
    log.roll(4)
    look = LogLook("orders", log)
    view = look.look()
    assert look.position_of(view, Bound(BoundKind.EARLIEST)) == LogOffset(3, 0, 1)
    assert look.position_of(view, Bound(BoundKind.LATEST)) == LogOffset(3, 5, 51)
    assert look.position_of(view, Bound(BoundKind.BEFORE_LATEST, count=12)) == LogOffset(3, 3, 39)
    assert look.position_of(view, Bound(BoundKind.BEFORE_LATEST, count=1000)) == LogOffset(3, 0, 1)
    assert look.position_of(view, Bound(BoundKind.POSITION, ledger_id=3, entry_id=2)) == LogOffset(3, 2, 21)


def test_the_description_of_a_ledger_is_the_last_one_logged_before_it(log: FakeLog) -> None:
    def described(version: int) -> Record:
        return Record(
            KernelRecord.MACHINE_DESCRIBED, None, (encode_description(MachineDescription("m", version, (), ())),)
        )

    log.add([described(1)], 0)
    log.roll(4, epoch=1)
    log.notes(1, 0)
    log.roll(5, epoch=2)
    log.roll(6, epoch=2)
    log.add([described(2)], 0)
    log.roll(7, epoch=2)
    look = LogLook("orders", log)
    view = look.look()
    versions = [getattr(look.description_at(view, span.ledger_id), "version", None) for span in view.spans]
    assert versions == [1, 1, 1, 2, 2]


def test_a_log_whose_first_ledgers_are_trimmed_describes_itself_behind_what_a_failed_ledger_left_over(
    log: FakeLog,
) -> None:
    described = Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(MachineDescription("m", 1, (), ())),))
    log.notes(1, 0)
    log.roll(4, epoch=1)
    log.notes(1, 0)
    log.add([described], 0)
    log.notes(1, 0)
    log.roll(5, epoch=1)
    look = LogLook("orders", log)
    view = look.look()
    versions = [getattr(look.description_at(view, span.ledger_id), "version", None) for span in view.spans]
    assert versions == [None, 1, 1]


def test_the_head_of_an_entry_is_read_once(log: FakeLog) -> None:
    log.notes(2, confirmed=0)
    log.notes(3, confirmed=2)
    log.close(3)
    look = LogLook("orders", log)
    look.look()
    before = log.reads
    assert look.head_at(3, 0) == EntryHead(last_revision=2, length=100, logged_ms=5)
    assert look.head_at(3, 0).last_revision == 2
    assert log.reads == before + 1

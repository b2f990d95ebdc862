from __future__ import annotations

from typing import Any

import msgspec
import pytest

from connectors.errors import OptionError
from connectors.source.plan import EntryHead, LogSpan, LogView
from connectors.state.as_of import AsOf, AsOfKind, find_range, parse_as_of
from rsm_spark.core.chain import Ancestry
from rsm_spark.core.envelope import decode_envelope, entry_hash, root_hash
from rsm_spark.core.machine import MachineDescription
from rsm_spark.errors import ForkedLogError, LogError, MissingLogError
from rsm_spark.snapshots.manifest import SnapshotManifest
from tests.unit.connectors.state.histories import Reference, Shop


class FakeLook:
    """Looks at a log in memory, from some ledger on."""

    def __init__(self, reference: Reference, trimmed: int = 0) -> None:
        self.reference = reference
        self.payloads = {(ledger, entry): payload for ledger, entry, payload in reference.entries}
        self.ledgers = sorted({ledger for ledger, _ in self.payloads})[trimmed:]

    @property
    def log_id(self) -> bytes:
        return self.reference.log_id

    @property
    def ancestry(self) -> Ancestry:
        return Ancestry(self.log_id)

    def look(self) -> LogView:
        spans = []
        for ledger in self.ledgers:
            entries = [(e, p) for (of, e), p in self.payloads.items() if of == ledger]
            first, last = decode_envelope(entries[0][1]), decode_envelope(entries[-1][1])
            length = sum(len(payload) for _, payload in entries)
            spans.append(LogSpan(ledger, first.first_revision, entries[-1][0], last.last_revision, length))
        return LogView("shop", tuple(spans), spans[0].first_revision)

    def head_at(self, ledger_id: int, entry_id: int) -> EntryHead:
        envelope = decode_envelope(self.payloads[ledger_id, entry_id])
        length = sum(len(p) for (of, e), p in self.payloads.items() if of == ledger_id and e <= entry_id)
        return EntryHead(envelope.last_revision, length, envelope.logged_ms)

    def payload_at(self, ledger_id: int, entry_id: int) -> bytes:
        return self.payloads[ledger_id, entry_id]

    def description_at(self, view: LogView, ledger_id: int) -> MachineDescription | None:
        return Shop.description if view.first_revision == 1 else None

    def snapshot(self, number: int, **more: Any) -> SnapshotManifest:
        """Return the manifest of the state after an entry."""
        ledger, entry, payload = self.reference.entries[number]
        envelope = decode_envelope(payload)
        digest, count = self.reference.sums[envelope.last_revision]
        manifest = SnapshotManifest(
            "shop",
            self.log_id.hex(),
            envelope.last_revision,
            ledger,
            entry,
            entry_hash(payload).hex(),
            digest,
            count,
            1,
            envelope.logged_ms,
            0,
            Shop.description,
        )
        return msgspec.structs.replace(manifest, **more)


@pytest.fixture(scope="module")
def reference() -> Reference:
    made = Reference(3)
    made.grow(60)
    return made


def revision_of(reference: Reference, number: int) -> int:
    return decode_envelope(reference.entries[number][2]).last_revision


def at(revision: int) -> AsOf:
    return AsOf(AsOfKind.REVISION, revision=revision)


def test_a_whole_log_needs_no_snapshot(reference: Reference) -> None:
    log_range = find_range(FakeLook(reference), "shop", AsOf(), [])
    assert (log_range.first, log_range.last) == (reference.entries[0][:2], reference.entries[-1][:2])
    assert (log_range.first_revision, log_range.revision) == (1, reference.state.revision)
    assert log_range.before == root_hash(reference.log_id)
    assert log_range.payload_bytes == sum(len(payload) for _, _, payload in reference.entries)


def test_the_newest_snapshot_at_or_before_the_point_is_the_base(reference: Reference) -> None:
    look = FakeLook(reference)
    snapshots = [look.snapshot(10), look.snapshot(30), look.snapshot(50)]
    log_range = find_range(look, "shop", at(revision_of(reference, 40)), snapshots)
    assert log_range.base == snapshots[1]
    assert log_range.first == reference.entries[31][:2]
    assert log_range.before == entry_hash(reference.entries[30][2])
    oldest = find_range(look, "shop", at(revision_of(reference, 40)), snapshots, from_oldest=True)
    assert (oldest.base, oldest.first_revision) == (None, 1)


def test_a_trimmed_log_begins_with_a_snapshot(reference: Reference) -> None:
    look = FakeLook(reference, trimmed=2)  # entries 22 and later
    old, border, late = look.snapshot(20), look.snapshot(21), look.snapshot(40)
    log_range = find_range(look, "shop", AsOf(), [late, border, old], from_oldest=True)
    assert (log_range.base, log_range.first) == (border, reference.entries[22][:2])
    assert log_range.descriptions[reference.entries[-1][0]] == Shop.description, "the snapshot says what was trimmed"
    alone = find_range(look, "shop", at(old.revision), [late, border, old])
    assert (alone.base, alone.is_read) == (old, False), "the very state needs no log"
    with pytest.raises(MissingLogError, match=f"records 1 to {look.look().first_revision - 1} have been trimmed"):
        find_range(look, "shop", at(late.revision - 1), [late, old])


def test_a_snapshot_of_another_history_is_passed_over(reference: Reference) -> None:
    look = FakeLook(reference)
    forked = look.snapshot(30, prefix_hash="00" * 32)
    assert find_range(look, "shop", AsOf(), [forked]).base is None
    other = look.snapshot(30, log_id="00" * 16)
    assert find_range(look, "shop", AsOf(), [other]).base is None
    with pytest.raises(ForkedLogError, match="are of another history"):
        find_range(FakeLook(reference, trimmed=1), "shop", AsOf(), [forked])


def test_a_time_means_what_had_been_logged_then(reference: Reference) -> None:
    look = FakeLook(reference)
    for number in (0, 7, 31, 59):
        logged_ms = decode_envelope(reference.entries[number][2]).logged_ms
        for timestamp_ms in (logged_ms, logged_ms + 9):
            log_range = find_range(look, "shop", AsOf(AsOfKind.TIMESTAMP, timestamp_ms=timestamp_ms), [])
            assert log_range.revision == revision_of(reference, number)
    assert find_range(look, "shop", AsOf(AsOfKind.TIMESTAMP, timestamp_ms=1), []).revision == 0
    trimmed = FakeLook(reference, trimmed=2)
    with pytest.raises(MissingLogError, match="the records of time 1001 are gone"):
        find_range(trimmed, "shop", AsOf(AsOfKind.TIMESTAMP, timestamp_ms=1001), [])


def test_a_position_means_the_state_after_its_entry(reference: Reference) -> None:
    ledger, entry, _ = reference.entries[33]
    point = AsOf(AsOfKind.POSITION, ledger_id=ledger, entry_id=entry)
    log_range = find_range(FakeLook(reference), "shop", point, [])
    assert (log_range.last, log_range.revision) == ((ledger, entry), revision_of(reference, 33))
    with pytest.raises(LogError, match="no entry 100:11 that can be read"):
        find_range(FakeLook(reference), "shop", AsOf(AsOfKind.POSITION, ledger_id=100, entry_id=11), [])


def test_the_future_and_nothing_at_all(reference: Reference) -> None:
    with pytest.raises(LogError, match="there is no record 99999 yet: it ends with"):
        find_range(FakeLook(reference), "shop", at(99999), [])
    with pytest.raises(LogError, match="there is no record -1"):
        find_range(FakeLook(reference), "shop", at(-1), [])
    assert not find_range(FakeLook(reference), "shop", at(0), []).is_read


def test_points_are_parsed() -> None:
    assert parse_as_of(None, None, None) == AsOf()
    assert parse_as_of("12", None, None) == AsOf(AsOfKind.REVISION, revision=12)
    assert parse_as_of(None, "1970-01-01T00:00:01.500Z", None).timestamp_ms == 1500
    assert parse_as_of(None, "1970-01-01T01:00:01+01:00", None).timestamp_ms == 1000
    assert parse_as_of(None, "1970-01-01 00:00:02", None).timestamp_ms == 2000
    assert parse_as_of(None, None, "3:7") == AsOf(AsOfKind.POSITION, ledger_id=3, entry_id=7)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("1", "2", None), "asOfRevision and asOfTimestamp are set"),
        (("-1", None, None), "asOfRevision is '-1'"),
        ((None, "yesterday", None), "asOfTimestamp is 'yesterday'"),
        ((None, None, "3"), "asOfPosition is '3'"),
    ],
)
def test_points_that_mean_nothing_are_refused(given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_as_of(*given)

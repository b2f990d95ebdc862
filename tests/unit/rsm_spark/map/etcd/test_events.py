"""Events of entries: one revision for a command, leases that were kept, what was before."""

from __future__ import annotations

from typing import Any

from rsm_spark.core.envelope import Envelope, encode_envelope
from rsm_spark.core.records import CommandHead, Record, encode_records
from rsm_spark.map import messages as m
from rsm_spark.map.etcd.events import EventCache, events_of
from rsm_spark.map.key_history import KeyHistory
from rsm_spark.map.records import MAP_DESCRIPTION
from rsm_spark.runtime.change_feed import FeedEntry
from tests.unit.rsm_spark.map.driven_map import DrivenMap
from tests.unit.rsm_spark.map.map_of_before import THIRD


class LoggedMap(DrivenMap):
    """A driven map with one entry of a log for each command."""

    def __init__(self) -> None:
        super().__init__()
        self.machine.history = self.history = KeyHistory()
        self.history.begin(0)
        self.sequence = 0

    def entry(self, command: Any) -> FeedEntry:
        """Run a command; return its entry."""
        first = self.revision + 1
        self.run(command)
        self.sequence += 1
        return self.of(first, CommandHead(bytes(16), self.sequence, 0, self.revision - first + 1, b""))

    def of(self, first: int, head: CommandHead | None) -> FeedEntry:
        records = [
            Record(kind, head if place == 0 else None, fields)
            for place, (kind, fields) in enumerate(self.log[first - 1 :])
        ]
        body = encode_records(records)
        envelope = Envelope(bytes(16), 1, first, first - 1, self.now_ms, len(records), bytes(32), b"")
        return FeedEntry(encode_envelope(envelope, b"") + body, envelope)


def told(one: LoggedMap, entry: FeedEntry) -> list[tuple[bytes, bytes | None, int, int]]:
    cache = EventCache(lambda: one.history)
    events = []
    for event in events_of(entry, one.history.before):
        shown = cache.shown(event)
        events.append((event.key, None if shown is None else shown.value, event.lease, event.revision))
    return events


def test_all_events_of_a_command_have_its_revision_and_leases() -> None:
    one = LoggedMap()
    one.run(m.GrantLease(9_000, 7))
    entry = one.entry(m.Branch([], [m.WriteKey(b"a", b"1", 7), m.WriteKey(b"b", b"1", 0)], []))
    assert told(one, entry) == [(b"a", b"1", 7, 4), (b"b", b"1", 0, 4)]
    kept = one.entry(m.Branch([], [m.WriteKey(b"a", b"2", None)], []))
    assert told(one, kept) == [(b"a", b"2", 7, 6)]
    counted = one.entry(m.Increment(b"a"))
    assert told(one, counted) == [(b"a", b"3", 7, 7)], "the history knows a lease that the log says nothing of"
    revoked = one.entry(m.RevokeLease(7))
    assert told(one, revoked) == [(b"a", None, 0, one.revision)]
    cache = EventCache(lambda: one.history)
    (event,) = cache.of(revoked)
    before = cache.before(event)
    assert before is not None
    assert (before.value, before.lease, before.entry.version) == (b"3", 7, 3)


def test_what_time_does_has_the_revisions_of_its_records() -> None:
    one = LoggedMap()
    one.run(m.GrantLease(1_000, 7))
    for key in (b"a", b"b"):
        one.run(m.Branch([], [m.WriteKey(key, b"1", 7)], []))
    first = one.revision + 1
    one.pass_time(1_000)
    events = told(one, one.of(first, None))
    assert [(key, value) for key, value, _, _ in events] == [(b"a", None), (b"b", None)]
    assert events[0][3] < events[1][3]


def test_what_versions_of_before_wrote_has_the_revisions_of_its_records() -> None:
    one = LoggedMap()
    one.machine.follow(THIRD)
    entry = one.entry(m.MapTransaction([], [m.Put(b"a", b"1"), m.Put(b"b", b"1"), m.Delete(b"a")], []))
    assert told(one, entry) == [(b"a", b"1", 0, 1), (b"b", b"1", 0, 2), (b"a", None, 0, 3)]
    one.machine.follow(MAP_DESCRIPTION)
    entry = one.entry(m.MapTransaction([], [m.Put(b"b", b"2"), m.Put(b"c", b"1")], []))
    assert told(one, entry) == [(b"b", b"2", 0, 5), (b"c", b"1", 0, 5)]

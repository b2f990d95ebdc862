"""The map against its rules, and against a plain dict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rsm_spark.core.digest import StateDigest, row_term, table_prefix
from rsm_spark.core.machine import Fold, Row, RowChange
from rsm_spark.core.records import pack
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError
from rsm_spark.map import messages as m
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.records import DELETED, MAP_DESCRIPTION, MAP_TABLE, PUT
from tests.sets import examples


class Driven:
    """A machine driven as a leader drives it: decide, then apply what was decided."""

    def __init__(self) -> None:
        self.machine = MapMachine()
        self.revision = 0
        self.digest = StateDigest()
        self.changes: list[RowChange] = []

    def run(self, command: Any) -> m.MapReply:
        text = command if isinstance(command, bytes) else m.encode(command)
        decision = self.machine.decide(text, self.revision + 1, 0)
        for record_type, fields in decision.records:
            self.revision += 1
            change = self.machine.apply(record_type, fields, self.revision)
            self.digest.replace(*change)
            self.changes.append(change)
        return m.decode_reply(decision.reply)

    def ask(self, query: Any) -> m.MapResult:
        text = query if isinstance(query, bytes) else m.encode(query)
        return m.decode_result(self.machine.query(text, self.revision))


def test_put_answers_the_revision_that_get_then_shows() -> None:
    driven = Driven()
    assert driven.run(m.Put(b"a", b"1")) == m.Written(1)
    assert driven.run(m.Put(b"a", b"2")) == m.Written(2)
    assert driven.ask(m.Get(b"a")) == m.Found(b"2", 2, 1, 2)
    assert driven.ask(m.Get(b"b")) == m.NotFound()


def test_delete_of_nothing_logs_nothing_and_says_so() -> None:
    driven = Driven()
    assert driven.run(m.Delete(b"a")) == m.NotFound()
    assert driven.revision == 0
    driven.run(m.Put(b"a", b""))
    assert driven.run(m.Delete(b"a")) == m.Written(2)
    assert driven.ask(m.Get(b"a")) == m.NotFound()


@pytest.mark.parametrize(
    ("expected", "reply"),
    [(b"1", m.Written(2)), (1, m.Written(2)), (b"2", m.Mismatched(1)), (2, m.Mismatched(1)), (None, m.Mismatched(1))],
)
def test_compare_and_set_on_a_key_writes_only_what_was_expected(expected: Any, reply: m.MapReply) -> None:
    driven = Driven()
    driven.run(m.Put(b"a", b"1"))
    assert driven.run(m.CompareAndSet(b"a", expected, b"new")) == reply
    found = driven.ask(m.Get(b"a"))
    assert found == (m.Found(b"new", 2, 1, 2) if reply == m.Written(2) else m.Found(b"1", 1, 1, 1))


@pytest.mark.parametrize(
    ("expected", "reply"), [(None, m.Written(1)), (b"", m.Mismatched(0)), (0, m.Mismatched(0)), (1, m.Mismatched(0))]
)
def test_compare_and_set_on_no_key_creates_only_when_absence_was_expected(expected: Any, reply: m.MapReply) -> None:
    assert Driven().run(m.CompareAndSet(b"a", expected, b"new")) == reply


def test_compare_and_set_to_nothing_deletes() -> None:
    driven = Driven()
    assert driven.run(m.CompareAndSet(b"a", None, None)) == m.Written(0)
    driven.run(m.Put(b"a", b"1"))
    assert driven.run(m.CompareAndSet(b"a", b"1", None)) == m.Written(2)
    assert driven.ask(m.Get(b"a")) == m.NotFound()


@pytest.mark.parametrize(
    "command",
    [
        m.Put(b"", b"1"),
        m.Put(b"k" * 4097, b""),
        m.Put(b"k", b"v" * (1024 * 1024 + 1)),
        m.Delete(b""),
        m.CompareAndSet(b"", None, b""),
        m.CompareAndSet(b"k", None, b"v" * (1024 * 1024 + 1)),
        b"",
        b"\xc1",
        b"\x93\x01\x01\x01",
        b"\x92\x09\xc4\x00",
    ],
)
def test_what_breaks_a_rule_is_refused_in_words_and_logs_nothing(command: Any) -> None:
    driven = Driven()
    reply = driven.run(command)
    assert isinstance(reply, m.MapRefused)
    assert reply.reason
    assert len(m.encode(reply)) < 4096
    assert driven.revision == 0


def test_largest_key_and_value_are_accepted() -> None:
    driven = Driven()
    assert driven.run(m.Put(b"k" * 4096, b"v" * 1024 * 1024)) == m.Written(1)


@pytest.mark.parametrize("query", [b"", b"\xc1", m.Scan(b"", None, 0)])
def test_a_query_that_is_none_is_refused(query: Any) -> None:
    assert isinstance(Driven().ask(query), m.MapRefused)


@pytest.mark.parametrize(
    ("kind", "fields"), [(PUT, (b"a",)), (DELETED, ()), (99, (b"a", b"b")), (PUT, (b"a", b"b")), (PUT, ([], b"", 1, 1))]
)
def test_apply_stops_at_a_record_that_is_not_the_maps(kind: int, fields: tuple[Any, ...]) -> None:
    with pytest.raises(CorruptLogError, match="revision 7"):
        MapMachine().apply(kind, fields, 7)


def test_a_scan_ends_at_its_limit_and_says_where_it_goes_on() -> None:
    driven = Driven()
    for name in (b"b", b"a", b"c", b"d"):
        driven.run(m.Put(name, name))
    page = driven.ask(m.Scan(b"", None, 3))
    assert isinstance(page, m.Page)
    assert [(e.key, e.revision) for e in page.entries] == [(b"a", 2), (b"b", 1), (b"c", 3)]
    assert page.next_start == b"d"
    assert driven.ask(m.Scan(b"d", None, 3)) == m.Page([m.KeyValue(b"d", b"d", 4)], None)
    assert driven.ask(m.Scan(b"b", b"c", 9)) == m.Page([m.KeyValue(b"b", b"b", 1)], None)


def test_keys_are_counted_and_listed_without_their_values() -> None:
    driven = Driven()
    for name in (b"a", b"b", b"c"):
        driven.run(m.Put(name, b"v" * 1024 * 1024))
    driven.run(m.Delete(b"b"))
    assert driven.ask(m.Count(b"", None)) == m.Counted(2)
    assert driven.ask(m.Count(b"b", None)) == m.Counted(1)
    assert driven.ask(m.Count(b"a", b"a")) == m.Counted(0)
    assert driven.ask(m.Count(b"c", b"a")) == m.Counted(0)
    # Values that are not sent take no room of a page.
    rows = [m.KeyValue(b"a", b"", 1), m.KeyValue(b"c", b"", 3)]
    assert driven.ask(m.Scan(b"", None, 100, keys_only=True)) == m.Page(rows, None)


def test_a_page_stays_small_when_values_are_large() -> None:
    driven = Driven()
    for n in range(4):
        driven.run(m.Put(b"%d" % n, b"v" * 1024 * 1024))
    page = driven.ask(m.Scan(b"", None, 100))
    assert isinstance(page, m.Page)
    assert len(page.entries) == 1
    assert page.next_start == b"1"


def test_rows_stay_as_they_were_when_they_were_asked_for() -> None:
    driven = Driven()
    driven.run(m.Put(b"a", b"1"))
    rows = driven.machine.rows()
    driven.run(m.Put(b"a", b"2"))
    driven.run(m.Put(b"b", b"2"))
    assert list(rows) == [Row(MAP_TABLE, pack((b"a",)), pack((b"1", 1, 1, None)), 1)]


@pytest.mark.parametrize("row", [Row("other", pack((b"a",)), pack((b"",)), 1), Row("map", b"\xc1", pack((b"",)), 1)])
def test_restore_from_rows_that_are_not_the_maps_leaves_nothing(row: Row) -> None:
    machine = MapMachine()
    with pytest.raises(CorruptSnapshotError):
        machine.restore([Row("map", pack((b"a",)), pack((b"",)), 1), row])
    assert len(machine) == 0


def test_the_description_names_what_apply_returns() -> None:
    driven = Driven()
    driven.run(m.Put(b"a", b"1"))
    driven.run(m.Delete(b"a"))
    put, deleted = MAP_DESCRIPTION.records[:2]
    assert (put.table, put.fold, deleted.fold) == (MAP_TABLE, Fold.UPSERT, Fold.DELETE)
    assert driven.changes == [
        RowChange(MAP_TABLE, pack((b"a",)), None, pack((b"1", 1, 1, None))),
        RowChange(MAP_TABLE, pack((b"a",)), pack((b"1", 1, 1, None)), None),
    ]


@given(st.binary(max_size=4))
def test_prefix_end_is_the_first_key_behind_the_prefix(prefix: bytes) -> None:
    end = m.prefix_end(prefix)
    if end is None:
        assert prefix.strip(b"\xff") == b""
        return
    assert prefix + b"\xff" * 8 < end
    assert not end.startswith(prefix)


KEYS = st.binary(min_size=1, max_size=2)
VALUES = st.binary(max_size=3)


def test_when_memory_is_nearly_used_up_only_what_makes_the_map_smaller_is_taken() -> None:
    driven = Driven()
    driven.run(m.Put(b"a", b"x" * 100))
    driven.run(m.Put(b"b", b"x" * 100))
    lease = driven.run(m.GrantLease(60_000))
    assert isinstance(lease, m.Granted)
    driven.machine.is_full = True
    grows: tuple[Any, ...] = (
        m.Put(b"c", b""),
        m.Put(b"a", b"x" * 101),
        m.CompareAndSet(b"d", None, b"x"),
        m.GrantLease(1_000),
    )
    for command in grows:
        reply = driven.run(command)
        assert isinstance(reply, m.MapRefused), command
        assert "memory-full" in reply.reason
    for command in (m.Put(b"a", b"y" * 100), m.KeepLease(lease.lease), m.Delete(b"b"), m.RevokeLease(lease.lease)):
        assert not isinstance(driven.run(command), m.MapRefused), command
    driven.machine.is_full = False
    assert isinstance(driven.run(m.Put(b"c", b"")), m.Written)


class MapAgainstDict(RuleBasedStateMachine):
    """Whatever clients do, the map equals a dict that does the same."""

    def __init__(self) -> None:
        super().__init__()
        self.driven = Driven()
        self.model: dict[bytes, tuple[bytes, int]] = {}

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        assert self.driven.run(m.Put(key, value)) == m.Written(self.driven.revision)
        self.model[key] = (value, self.driven.revision)

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        reply = self.driven.run(m.Delete(key))
        gone = self.model.pop(key, None)
        assert reply == (m.NotFound() if gone is None else m.Written(self.driven.revision))

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def delete_what_is_there(self, data: st.DataObject) -> None:
        self.delete(data.draw(st.sampled_from(sorted(self.model))))

    @rule(key=KEYS, data=st.data(), value=st.none() | VALUES)
    def compare_and_set(self, key: bytes, data: st.DataObject, value: bytes | None) -> None:
        found = self.model.get(key)
        choices: list[Any] = [None, b"", 1] if found is None else [found[0], found[1], None, b"other", found[1] + 1]
        expected = data.draw(st.sampled_from(choices))
        matches = expected is None if found is None else expected in found
        reply = self.driven.run(m.CompareAndSet(key, expected, value))
        if not matches:
            assert reply == m.Mismatched(0 if found is None else found[1])
            return
        assert isinstance(reply, m.Written)
        if value is None:
            self.model.pop(key, None)
        else:
            self.model[key] = (value, reply.revision)

    @rule(start=st.binary(max_size=2), end=st.none() | st.binary(max_size=2), limit=st.integers(1, 5))
    def scan_page_by_page(self, start: bytes, end: bytes | None, limit: int) -> None:
        want = [(k, *self.model[k]) for k in sorted(self.model) if k >= start and (end is None or k < end)]
        got: list[tuple[bytes, bytes, int]] = []
        at: bytes | None = start
        while at is not None:
            page = self.driven.ask(m.Scan(at, end, limit))
            assert isinstance(page, m.Page)
            got += [tuple(entry)[:3] for entry in page.entries]
            at = page.next_start
        assert got == want

    @rule()
    def restore_elsewhere(self) -> None:
        machine = MapMachine()
        machine.restore(self.driven.machine.rows())
        self.driven.machine = machine

    @invariant()
    def same_state(self) -> None:
        for key, (value, revision) in self.model.items():
            found = self.driven.ask(m.Get(key))
            assert isinstance(found, m.Found)
            assert (found.value, found.revision) == (value, revision)
        assert len(self.driven.machine) == len(self.model)
        prefix = table_prefix(MAP_TABLE)
        terms = sum(row_term(prefix, row.key, row.row) for row in self.driven.machine.rows())
        assert self.driven.digest.value == terms % (1 << 128)

    def teardown(self) -> None:
        self.driven.machine.validate()


TestMapAgainstDict = MapAgainstDict.TestCase
TestMapAgainstDict.settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)

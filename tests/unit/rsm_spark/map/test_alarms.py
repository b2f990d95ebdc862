"""Alarms of the map: what each forbids, that they are state, and how they end."""

from __future__ import annotations

import pytest

from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.map import alarms
from rsm_spark.map import messages as m
from rsm_spark.map.machine import MapMachine
from tests.unit.rsm_spark.map.driven_map import DrivenMap


def filled() -> DrivenMap:
    driven = DrivenMap()
    driven.run(m.GrantLease(1_000, 7))
    driven.run(m.Branch([], [m.WriteKey(b"a", b"1", 0), m.WriteKey(b"leased", b"1", 7)], []))
    return driven


PUTS: list[m.MapCommand] = [
    m.Put(b"a", b""),
    m.PutExpiring(b"b", b"1", 1_000),
    m.CompareAndSet(b"a", b"1", b"2"),
    m.Increment(b"a"),
    m.MapTransaction([], [m.Delete(b"leased"), m.Put(b"b", b"1")], []),
    m.Branch([], [m.DeleteRange(b"", None), m.WriteKey(b"b", b"1", 0)], []),
    m.WriteRows([m.RowWrite(b"b", b"1")]),
    m.GrantLease(5_000),
]
OTHERS: list[m.MapCommand] = [
    m.KeepLease(7),
    m.CompareAndSet(b"a", b"1", None),
    m.Branch([m.CompareRange(b"a", None, "version", "=", 9)], [m.WriteKey(b"b", b"1", 0)], []),
    m.WriteRows([m.RowWrite(b"a", None)]),
    m.CompactHistory(1),
    m.DeleteRange(b"a", b"b"),
    m.RevokeLease(7),
]


def test_without_space_nothing_is_put_and_the_rest_is_done() -> None:
    driven = filled()
    assert driven.run(m.SetAlarm("nospace", -5, is_raised=True)) == m.Written(driven.revision)
    before = driven.digest_of_rows()
    for command in PUTS:
        assert driven.run(command) == m.MapRefused(alarms.NO_SPACE)
    assert driven.digest_of_rows() == before
    for command in OTHERS:
        assert not isinstance(driven.run(command), m.MapRefused), command
    assert driven.run(m.SetAlarm("nospace", -5, is_raised=False)) == m.Written(driven.revision)
    for command in PUTS[:2]:
        assert not isinstance(driven.run(command), m.MapRefused)


def test_a_corrupt_state_is_left_as_it_is_by_time_too() -> None:
    driven = filled()
    driven.run(m.SetAlarm("corrupt", 1, is_raised=True))
    revision = driven.revision
    for command in (*PUTS, *OTHERS[1:]):
        assert driven.run(command) == m.MapRefused(alarms.CORRUPT)
    driven.pass_time(60_000)
    assert driven.revision == revision
    assert driven.get(b"leased") == b"1"
    assert driven.run(m.KeepLease(7)) == m.Kept(1_000)
    driven.run(m.SetAlarm("corrupt", 1, is_raised=False))
    driven.pass_time(60_000)
    assert driven.get(b"leased") is None


def test_alarms_are_state_and_each_is_raised_and_ended_once() -> None:
    driven = filled()
    driven.run(m.SetAlarm("nospace", 2, is_raised=True))
    driven.now_ms += 10
    driven.run(m.SetAlarm("corrupt", 1, is_raised=True))
    shown = m.AlarmsShown([m.AlarmShown("corrupt", 1, 1_010), m.AlarmShown("nospace", 2, 1_000)])
    assert driven.ask(m.ListAlarms()) == shown
    assert driven.run(m.SetAlarm("nospace", 2, is_raised=True)) == m.Written(0)
    assert driven.run(m.SetAlarm("nospace", 3, is_raised=False)) == m.Written(0)
    assert list(driven.replayed().rows()) == list(driven.machine.rows())
    assert driven.digest.value == driven.digest_of_rows()
    driven.fail_over()
    assert driven.ask(m.ListAlarms()) == shown
    assert driven.run(m.Put(b"a", b"2")) == m.MapRefused(alarms.CORRUPT)
    for kind, member in (("corrupt", 1), ("nospace", 2)):
        driven.run(m.SetAlarm(kind, member, is_raised=False))  # type: ignore[arg-type]
    assert driven.ask(m.ListAlarms()) == m.AlarmsShown([])
    assert driven.digest.value == driven.digest_of_rows()
    assert driven.run(m.Put(b"a", b"2")) == m.Written(driven.revision)


def test_there_are_so_many_alarms_and_kinds_alone() -> None:
    driven = DrivenMap()
    for member in range(alarms.ALARMS_MAX):
        assert driven.run(m.SetAlarm("nospace", member, is_raised=True)) == m.Written(member + 1)
    for more in (m.SetAlarm("nospace", -1, is_raised=True), m.SetAlarm("nospace", 1 << 63, is_raised=True)):
        assert isinstance(driven.run(more), m.MapRefused)
    assert isinstance(driven.run(m.encode([16, "none", 1, True])), m.MapRefused)


def test_a_snapshot_with_a_row_that_is_no_alarm_is_refused() -> None:
    driven = filled()
    driven.run(m.SetAlarm("nospace", 2, is_raised=True))
    rows = list(driven.machine.rows())
    with pytest.raises(CorruptSnapshotError, match="cannot hold"):
        MapMachine().restore([*rows[:-1], rows[-1]._replace(row=b"\xc0")])

"""Which commands and queries of the map are within a client's keys: every kind there is."""

from __future__ import annotations

from typing import get_args

import pytest

from ledger.rights.principal import ClientAccess, Principal, Role
from rsm_spark.map import messages as m
from rsm_spark.map.machine import MapMachine
from rsm_spark.map.scopes import MapScopes

CLIENT = Principal(name="c", role=Role.CLIENT, prefix=b"a/", access=ClientAccess.WRITE)
OWN, MIXED, FOREIGN, EMPTY = 1, 2, 3, 4
SCOPES = MapScopes({OWN: [b"a/1", b"a/2"], MIXED: [b"b/1", b"a/1"], FOREIGN: [b"b/1"], EMPTY: []}.__getitem__)
IN, OUT = b"a/k", b"b/k"

COMMANDS: list[tuple[m.MapCommand, bool]] = [
    (m.Put(IN, b"v"), True),
    (m.Put(OUT, b"v"), False),
    (m.Put(b"a", b"v"), False),
    (m.Put(b"", b"v"), False),
    (m.Delete(IN), True),
    (m.Delete(OUT), False),
    (m.CompareAndSet(IN, None, b"v"), True),
    (m.CompareAndSet(OUT, None, b"v"), False),
    (m.Increment(IN), True),
    (m.Increment(OUT), False),
    (m.GrantLease(1_000), True),
    *((m.KeepLease(lease), lease != FOREIGN) for lease in (OWN, MIXED, FOREIGN, EMPTY)),
    *((m.RevokeLease(lease), lease == OWN) for lease in (OWN, MIXED, FOREIGN, EMPTY)),
    (m.WriteRows([m.RowWrite(IN, b"v"), m.RowWrite(IN, None)]), True),
    (m.WriteRows([m.RowWrite(IN, b"v"), m.RowWrite(OUT, b"v")]), False),
    (m.WriteRows([m.RowWrite(IN, b"v")], b"conflicts/"), False),
    *((m.PutExpiring(IN, b"v", 0, lease), lease != FOREIGN) for lease in (OWN, MIXED, FOREIGN, EMPTY)),
    (m.PutExpiring(IN, b"v", 1_000), True),
    (m.PutExpiring(OUT, b"v", 1_000), False),
    (m.DeleteRange(b"a/", b"a0"), True),
    (m.DeleteRange(b"a/b", b"a/c"), True),
    (m.DeleteRange(b"a/", None), False),
    (m.DeleteRange(b"", b"a0"), False),
    (m.DeleteRange(b"a/", b"b"), False),
    (m.MapTransaction([m.Compare(IN, "exists", "=", operand=True)], [m.Put(IN, b"")], [m.Read(IN)]), True),
    (m.MapTransaction([m.Compare(OUT, "exists", "=", operand=True)], [], []), False),
    (m.MapTransaction([], [m.Put(IN, b""), m.Put(OUT, b"")], []), False),
    (m.MapTransaction([], [], [m.Read(OUT)]), False),
    (m.MapTransaction([], [m.DeleteRange(b"", None)], []), False),
    (m.MapTransaction([], [m.PutExpiring(IN, b"", 0, FOREIGN)], []), False),
    (m.MapTransaction([], [m.Increment(OUT)], []), False),
    (m.MapTransaction([], [m.Delete(OUT)], []), False),
    (m.CompactHistory(1), False),
    (m.SetAlarm("nospace", 1, is_raised=True), False),
    (m.Branch([m.CompareRange(IN, IN + b"\0", "version", "=", 0)], [m.WriteKey(IN, b"", 0)], []), True),
    (m.Branch([m.CompareRange(OUT, OUT + b"\0", "version", "=", 0)], [], []), False),
    (m.Branch([m.CompareRange(b"a/", None, "version", "=", 0)], [], []), False),
    (m.Branch([], [], [m.Branch([], [m.WriteKey(OUT, b"", 0)], [])]), False),
    (m.Branch([], [m.WriteKey(IN, b"", FOREIGN)], []), False),
    (m.Branch([], [m.DeleteRange(b"a/", b"a0")], [m.DeleteRange(b"", b"a0")]), False),
]
QUERIES: list[tuple[m.MapQuery, bool]] = [
    (m.Get(IN), True),
    (m.Get(OUT), False),
    (m.Scan(b"a/", b"a0", 10), True),
    (m.Scan(b"", None, 10), False),
    (m.Scan(b"a/", b"b", 10), False),
    (m.Count(b"a/", b"a0"), True),
    (m.Count(b"a/", b"b"), False),
    (m.Count(b"", None), False),
    (m.ShowExpiry(IN), True),
    (m.ShowExpiry(OUT), False),
    (m.ShowLease(OWN), True),
    (m.ShowLease(FOREIGN), False),
    (m.ListLeases(0, 10), False),
    (m.ListAlarms(), False),
]


@pytest.mark.parametrize(("command", "is_inside"), COMMANDS, ids=repr)
def test_a_command_is_within_the_keys_or_is_named(command: m.MapCommand, is_inside: bool) -> None:
    fault = SCOPES.command_fault(m.encode(command), CLIENT)
    assert (fault == "") is is_inside
    assert is_inside or "'c' (client)" in fault
    everywhere = Principal(name="x", role=Role.CLIENT, access=ClientAccess.WRITE)
    if not isinstance(command, m.RevokeLease | m.KeepLease | m.CompactHistory | m.SetAlarm):
        assert SCOPES.command_fault(m.encode(command), everywhere) == ""


@pytest.mark.parametrize(("query", "is_inside"), QUERIES, ids=repr)
def test_a_query_is_within_the_keys_or_is_named(query: m.MapQuery, is_inside: bool) -> None:
    assert (SCOPES.query_fault(m.encode(query), CLIENT) == "") is is_inside


def test_no_kind_of_command_or_query_is_forgotten() -> None:
    assert {type(command) for command, _ in COMMANDS} == set(get_args(m.MapCommand))
    assert {type(query) for query, _ in QUERIES} == set(get_args(m.MapQuery))
    operations = {
        type(one) for command, _ in COMMANDS if isinstance(command, m.MapTransaction)
        for one in (*command.then, *command.orelse)
    }  # fmt: skip
    assert operations == set(get_args(m.Operation))


def test_alarms_are_for_who_administers_however_they_are_written() -> None:
    raising = m.encode(m.SetAlarm("nospace", 1, is_raised=True))
    assert raising[:2] == b"\x94\x10"
    longer = b"\xdd\x00\x00\x00\x04\xcf" + (16).to_bytes(8, "big") + raising[2:]
    for command in (raising, longer, b"\xdc\x00\x04\xcc" + raising[1:]):
        assert MapMachine().decide(command, 1, 0).records, "the map takes it"
        assert SCOPES.is_governing(command)
    for command in (m.encode(m.Put(b"\x10" * 16, b"")), b"\x94\x10", m.encode(m.Delete(b"a"))):
        assert not SCOPES.is_governing(command)


def test_rubbish_is_beyond_everybodys_keys() -> None:
    assert SCOPES.command_fault(b"\xc1", CLIENT)
    assert SCOPES.query_fault(b"", CLIENT)


def test_what_stands_for_a_refused_command_changes_nothing() -> None:
    machine = MapMachine()
    decision = machine.decide(MapScopes(machine.keys_of_lease).nothing, 1, 0)
    assert not decision.records
    assert isinstance(m.decode_reply(decision.reply), m.MapRefused)

"""Nested transactions: conditions on ranges, one revision for all keys, and what a leader leaves out of the reply."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_spark.map import messages as m
from rsm_spark.map.key_history import KeyHistory
from rsm_spark.map.records import EXPIRY_SET, PUT
from rsm_spark.map.rows import value_of
from tests.unit.rsm_spark.map.driven_map import DrivenMap
from tests.unit.rsm_spark.map.map_of_before import SECOND


def one(key: bytes, what: Any, relation: Any, operand: int | bytes) -> m.CompareRange:
    return m.CompareRange(key, key + b"\0", what, relation, operand)


def test_all_keys_of_a_command_have_the_revision_of_its_last_record() -> None:
    driven = DrivenMap()
    driven.run(m.Put(b"a", b"0"))
    reply = driven.run(m.Branch([], [m.WriteKey(b"a", b"1", 0), m.WriteKey(b"b", b"1", 0)], []))
    assert reply == m.Branched(2, 3, [True])
    assert driven.ask(m.Get(b"a")) == m.Found(b"1", 3, 1, 2)
    assert driven.ask(m.Get(b"b")) == m.Found(b"1", 3, 3, 1)
    assert [fields[4] for kind, fields in driven.log if kind == PUT] == [None, 3, None]
    driven.fail_over()
    assert driven.ask(m.Get(b"a")) == m.Found(b"1", 3, 1, 2), "it is in the row"
    assert driven.run(m.CompareAndSet(b"a", 3, b"2")) == m.Written(4)


def test_conditions_of_inner_transactions_are_judged_before_anything_is_done() -> None:
    driven = DrivenMap()
    absent = one(b"a", "version", "=", 0)
    inner = m.Branch([absent], [m.WriteKey(b"b", b"inner", 0)], [m.WriteKey(b"b", b"late", 0)])
    reply = driven.run(m.Branch([absent], [m.WriteKey(b"a", b"1", 0), inner], []))
    assert reply == m.Branched(1, 2, [True, True])
    assert driven.get(b"b") == b"inner"
    assert driven.run(m.Branch([absent], [inner], [inner])) == m.Branched(3, 3, [False, False])
    assert driven.get(b"b") == b"late"


@pytest.mark.parametrize(
    ("compare", "holds"),
    [
        (m.CompareRange(b"a", b"b", "version", ">", 0), True),
        (m.CompareRange(b"a", b"b", "value", "=", b"1"), False),
        (m.CompareRange(b"a", None, "value", ">", b"0"), True),
        (m.CompareRange(b"x", b"y", "version", "=", 0), True),
        (m.CompareRange(b"x", b"y", "value", "!=", b"1"), False),
        (one(b"a1", "create_revision", "=", 1), True),
        (one(b"a2", "revision", "<", 2), False),
        (one(b"a1", "lease", "=", 0), True),
        (one(b"x", "lease", "=", 0), True),
    ],
)
def test_a_condition_holds_for_all_keys_of_a_range(compare: m.CompareRange, holds: bool) -> None:
    driven = DrivenMap()
    driven.run(m.Put(b"a1", b"1"))
    driven.run(m.Put(b"a2", b"2"))
    reply = driven.run(m.Branch([compare], [], []))
    assert isinstance(reply, m.Branched)
    assert reply.taken == [holds]


def test_what_a_write_relies_on_is_there_or_nothing_is_done() -> None:
    driven = DrivenMap()
    assert driven.run(m.Branch([], [m.WriteKey(b"a", b"1", 77)], [])) == m.Unfulfilled("no lease", 1)
    assert driven.run(m.Branch([], [m.WriteKey(b"b", b"", 0), m.WriteKey(b"a", None, 0)], [])) == m.Unfulfilled(
        "no key", 1
    )
    assert driven.run(m.Branch([], [m.WriteKey(b"a", b"", None)], [])) == m.Unfulfilled("no key", 1)
    assert driven.revision == 0
    assert driven.run(m.GrantLease(1_000, 77)) == m.Granted(77)
    assert driven.run(m.GrantLease(1_000, 77)) == m.Unfulfilled("lease exists", 2)
    assert driven.run(m.Branch([], [m.WriteKey(b"a", b"1", 77)], [])) == m.Branched(2, 3, [True])
    assert driven.run(m.Branch([], [m.WriteKey(b"a", b"2", None)], [])) == m.Branched(4, 5, [True])
    assert driven.log[-1] == (EXPIRY_SET, (b"a", 77, 0, 0)), "whoever reads the log alone knows the lease"
    assert driven.ask(m.ShowExpiry(b"a")) == m.ExpiryShown(1_000, 1_000, 77)
    assert driven.run(m.Branch([], [m.WriteKey(b"a", None, 0)], [])) == m.Branched(6, 7, [True])
    assert driven.ask(m.ShowExpiry(b"a")) == m.ExpiryShown(0, 0, 0)
    assert driven.get(b"a") == b"2"


def test_a_lease_of_the_maps_own_numbers_leaves_those_that_clients_chose_alone() -> None:
    driven = DrivenMap()
    assert driven.run(m.GrantLease(1_000, 2)) == m.Granted(2)
    assert driven.run(m.GrantLease(1_000)) == m.Granted(3)
    assert driven.run(m.GrantLease(1_000, -5)) == m.Granted(-5)
    shown = driven.ask(m.ListLeases(-(1 << 63), 10))
    assert isinstance(shown, m.Leases)
    assert [lease.lease for lease in shown.leases] == [-5, 2, 3]


def test_a_compaction_is_a_part_of_the_state() -> None:
    driven = DrivenMap()
    for n in range(4):
        driven.run(m.Put(b"a", b"%d" % n))
    assert driven.run(m.CompactHistory(9)) == m.Unfulfilled("future", 5)
    assert driven.run(m.CompactHistory(3)) == m.Branched(5, 5, [])
    assert driven.run(m.CompactHistory(3)) == m.Unfulfilled("compacted", 6)
    assert driven.machine.compacted == 3
    assert driven.digest.value == driven.digest_of_rows()
    driven.fail_over()
    assert driven.machine.compacted == 3
    assert driven.digest.value == driven.digest_of_rows()


def test_a_transaction_of_too_many_parts_is_refused() -> None:
    reply = DrivenMap().run(m.Branch([], [m.Branch([], [], [])] * 1_000, []))
    assert isinstance(reply, m.MapRefused)
    assert "at most 1000" in reply.reason


def test_a_log_of_before_is_to_be_raised_first() -> None:
    driven = DrivenMap()
    driven.machine.follow(SECOND)
    for command in (m.Branch([], [], []), m.CompactHistory(1)):
        reply = driven.run(command)
        assert isinstance(reply, m.MapRefused)
        assert "rsm log raise-version" in reply.reason


def test_the_history_shows_the_map_as_it_was() -> None:
    driven = DrivenMap()
    driven.machine.history = history = KeyHistory()
    history.begin(0)
    states: dict[int, dict[bytes, bytes]] = {0: {}}
    state: dict[bytes, bytes] = {}
    for n in range(60):
        key = b"%d" % (n % 7)
        if n % 5 == 4:
            driven.run(m.Delete(key))
            state.pop(key, None)
        else:
            driven.run(m.Put(key, b"%d" % n))
            state[key] = b"%d" % n
        states[driven.revision] = dict(state)

    def shown(revision: int) -> dict[bytes, bytes]:
        old = history.overlay(revision)
        live = {key: entry for key, entry in driven.machine._rows.entries.items() if key not in old}
        live |= {key: one.entry for key, one in old.items() if one.entry is not None}
        return {key: value_of(entry.row) for key, entry in live.items()}

    for revision, expected in states.items():
        assert shown(revision) == expected


def test_the_history_forgets_half_when_it_is_full() -> None:
    history = KeyHistory(bytes_max=8 * 201)
    for revision in range(1, 20):
        history.note(revision, b"k", None, 0)
    assert history.floor is not None
    assert 8 <= history.floor < 19
    assert history.before(history.floor, b"k") is None
    assert history.before(19, b"k") is not None
    assert history.before(19, b"other") is None

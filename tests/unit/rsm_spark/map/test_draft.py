"""Transactions and increments: decided as a whole, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_spark.map import messages as m
from rsm_spark.map.records import DELETED, PUT
from tests.unit.rsm_spark.map.driven_map import DrivenMap


def transaction(compares: list[m.Compare], then: list[Any], orelse: list[Any] | None = None) -> m.MapTransaction:
    return m.MapTransaction(compares, then, orelse or [])


@pytest.mark.parametrize(
    ("compare", "holds"),
    [
        (m.Compare(b"a", "value", "=", b"1"), True),
        (m.Compare(b"a", "value", "!=", b"1"), False),
        (m.Compare(b"a", "value", "<", b"2"), True),
        (m.Compare(b"a", "value", ">", b"2"), False),
        (m.Compare(b"a", "revision", "=", 1), True),
        (m.Compare(b"a", "revision", "<", 1), False),
        (m.Compare(b"a", "revision", ">", 0), True),
        (m.Compare(b"a", "exists", "=", True), True),
        (m.Compare(b"x", "exists", "=", False), True),
        (m.Compare(b"x", "exists", "!=", False), False),
        (m.Compare(b"x", "revision", "=", 0), True),
        (m.Compare(b"x", "value", "=", b""), False),
        (m.Compare(b"x", "value", "!=", b"1"), False),
    ],
)
def test_a_comparison_decides_which_of_the_two_lists_is_done(compare: m.Compare, holds: bool) -> None:
    driven = DrivenMap()
    driven.run(m.Put(b"a", b"1"))
    reply = driven.run(transaction([compare], [m.Put(b"then", b"")], [m.Put(b"else", b"")]))
    assert reply == m.Executed(holds, [m.Written(2)])
    assert (driven.get(b"then") is not None, driven.get(b"else") is not None) == (holds, not holds)


def test_each_operation_sees_what_those_before_it_did() -> None:
    driven = DrivenMap()
    driven.run(m.Put(b"k/0", b"0"))
    reply = driven.run(
        transaction(
            [],
            [
                m.Put(b"k/1", b"1"),
                m.Read(b"k/1"),
                m.Increment(b"k/1", 4),
                m.Put(b"k/2", b"2"),
                m.Delete(b"k/2"),
                m.Delete(b"k/2"),
                m.DeleteRange(b"k/", b"k0"),
                m.DeleteRange(b"k/", b"k0"),
                m.Read(b"k/0"),
                m.Put(b"k/0", b"again"),
            ],
        )
    )
    assert reply == m.Executed(
        True,
        [
            m.Written(8),
            m.Seen(b"1", 8, 8, 1),
            m.Incremented(5, 8),
            m.Written(8),
            m.Written(8),
            m.NotFound(),
            m.Removed(2, 8),
            m.Removed(0, 0),
            m.NotFound(),
            m.Written(8),
        ],
    )
    assert [key for key, _ in driven.machine._rows.entries.items()] == [b"k/0"]
    assert driven.get(b"k/0") == b"again"


def test_a_range_delete_lists_its_keys_as_records() -> None:
    driven = DrivenMap()
    for key in (b"a", b"b1", b"b2", b"c"):
        driven.run(m.Put(key, b""))
    assert driven.run(m.DeleteRange(b"b", b"c")) == m.Removed(2, 6)
    assert driven.log[4:] == [(DELETED, (b"b1", 6)), (DELETED, (b"b2",))], "each but the last says which is the last"
    assert driven.run(m.DeleteRange(b"", None)) == m.Removed(2, 8)
    assert len(driven.machine) == 0


def test_a_transaction_that_cannot_be_done_in_full_does_nothing() -> None:
    driven = DrivenMap()
    driven.run(m.Put(b"text", b"no number"))
    reply = driven.run(transaction([], [m.Put(b"a", b"1"), m.Increment(b"text")]))
    assert isinstance(reply, m.MapRefused)
    assert "no integer" in reply.reason
    assert driven.get(b"a") is None
    assert driven.revision == 1


def test_results_larger_than_a_reply_are_refused_with_what_to_do_instead() -> None:
    driven = DrivenMap()
    driven.run(m.Put(b"large", b"v" * 4_000))
    small = driven.run(transaction([], [m.Read(b"large")]))
    assert isinstance(small, m.Executed)
    reply = driven.run(transaction([], [m.Put(b"a", b"1"), m.Read(b"large"), m.Read(b"large")]))
    assert isinstance(reply, m.MapRefused)
    assert "4096" in reply.reason
    assert "by queries" in reply.reason
    assert driven.get(b"a") is None


def test_the_most_operations_still_fit_a_reply() -> None:
    driven = DrivenMap()
    driven.log = [(PUT, (b"a", b""))] * (1 << 20)
    puts: list[Any] = [m.Put(b"%d" % n, b"") for n in range(m.OPERATIONS_MAX)]
    reply = driven.run(transaction([m.Compare(b"a", "exists", "=", False)] * m.COMPARES_MAX, puts))
    assert isinstance(reply, m.Executed)
    assert len(reply.results) == m.OPERATIONS_MAX


@pytest.mark.parametrize(
    "command",
    [
        transaction([], [m.Put(b"", b"")]),
        transaction([], [], [m.Put(b"k", b"v" * (m.VALUE_BYTES_MAX + 1))]),
        transaction([m.Compare(b"", "exists", "=", True)], []),
        transaction([m.Compare(b"k", "exists", "<", True)], []),
        transaction([m.Compare(b"k", "value", "=", 1)], []),
        transaction([m.Compare(b"k", "revision", "=", True)], []),
        transaction([m.Compare(b"k", "exists", "=", 1)], []),
        transaction([], [m.Delete(b"k")] * (m.OPERATIONS_MAX + 1)),
        transaction([m.Compare(b"k", "exists", "=", True)] * (m.COMPARES_MAX + 1), []),
        transaction([], [m.PutExpiring(b"k", b"", 0, 77)]),
        m.Increment(b""),
        m.Increment(b"k", 1 << 63),
        m.encode([4, [[b"k", "value", "~", b""]], [], []]),
        m.encode([4, [], [[6, 1_000]], []]),
    ],
)
def test_a_transaction_that_breaks_a_rule_is_refused_and_logs_nothing(command: Any) -> None:
    driven = DrivenMap()
    assert isinstance(driven.run(command), m.MapRefused)
    assert driven.revision == 0


def test_more_than_an_entry_holds_is_refused_before_it_is_made() -> None:
    driven = DrivenMap()
    values: list[Any] = [m.Put(b"%d" % n, b"v" * m.VALUE_BYTES_MAX) for n in range(4)]
    assert isinstance(driven.run(transaction([], values[:2])), m.Executed)
    reply = driven.run(transaction([], values))
    assert isinstance(reply, m.MapRefused)
    assert "several commands" in reply.reason


def test_an_increment_counts_from_nothing_and_keeps_to_64_bits() -> None:
    driven = DrivenMap()
    assert driven.run(m.Increment(b"n")) == m.Incremented(1, 1)
    assert driven.run(m.Increment(b"n", -11)) == m.Incremented(-10, 2)
    assert driven.get(b"n") == b"-10"
    driven.run(m.Put(b"n", b"%d" % (2**63 - 1)))
    assert isinstance(driven.run(m.Increment(b"n", 1)), m.MapRefused)
    assert driven.run(m.Increment(b"n", -(2**63))) == m.Incremented(-1, 4)
    driven.run(m.Put(b"n", b"%d" % -(2**63)))
    assert isinstance(driven.run(m.Increment(b"n", -1)), m.MapRefused)


@pytest.mark.parametrize("value", [b"", b"-", b"1.0", b" 1", b"01", b"+1", b"0x1", b"9" * 20, "٣".encode(), b"1_0"])
def test_what_is_not_a_number_is_not_incremented(value: bytes) -> None:
    driven = DrivenMap()
    driven.run(m.Put(b"n", value))
    assert isinstance(driven.run(m.Increment(b"n")), m.MapRefused)
    assert driven.get(b"n") == value

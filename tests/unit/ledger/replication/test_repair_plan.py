"""What is done about a ledger: copies of what is settled, never of what may still be taken back."""

from __future__ import annotations

import pytest

from ledger.core.bookie_entry_list import pack_entry_ids
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.replication.core.fragments import Fragment
from ledger.replication.core.held_entries import NOTHING_HELD, HeldEntries, unpack_held_entries
from ledger.replication.core.repair_plan import Refill, RepairPlan, Replace, missing_entries, named_bookies, plan_repair

A, B = ("a", "b", "c"), ("a", "d", "c")


def ledger(state: LedgerState, last: int = -1, *, write_quorum: int = 3) -> LedgerMetadata:
    segments = (Segment(0, A), Segment(5, B))
    return LedgerMetadata(QuorumConfig(3, write_quorum, 2), state, segments, DigestType.CRC32C, b"", last)


def held(*ids: int) -> HeldEntries:
    return unpack_held_entries(pack_entry_ids(ids))


ALL = {"a": held(*range(10)), "b": held(*range(5)), "c": held(*range(10)), "d": held(*range(5, 10))}


def test_a_ledger_with_all_its_copies_needs_nothing() -> None:
    assert plan_repair(ledger(LedgerState.CLOSED, 9), lost=(), holdings=ALL).is_empty


def test_every_place_of_a_lost_bookie_is_given_to_another() -> None:
    plan = plan_repair(ledger(LedgerState.CLOSED, 9), lost=("a",), holdings=ALL)
    assert plan == RepairPlan(
        replaces=(Replace(Fragment(0, 4, A, True), 0), Replace(Fragment(5, 9, B, True), 0)),
    )
    assert plan.replaces[0].bookie_id == "a"


def test_a_lost_bookie_of_an_empty_last_segment_is_replaced_too() -> None:
    plan = plan_repair(ledger(LedgerState.CLOSED, 4), lost=("d",), holdings=ALL)
    assert plan.replaces == (Replace(Fragment(5, 4, B, True), 1),)


def test_of_an_open_ledger_only_what_a_later_segment_follows_is_copied() -> None:
    plan = plan_repair(ledger(LedgerState.OPEN), lost=("b",), holdings=ALL)
    assert plan == RepairPlan(replaces=(Replace(Fragment(0, 4, A, True), 1),))


def test_an_open_last_segment_that_names_a_lost_bookie_must_be_settled_first() -> None:
    plan = plan_repair(ledger(LedgerState.OPEN), lost=("d",), holdings=ALL)
    assert plan == RepairPlan(must_settle=True)


def test_a_ledger_left_in_recovery_must_be_settled() -> None:
    assert plan_repair(ledger(LedgerState.IN_RECOVERY), lost=(), holdings=ALL).must_settle


def test_a_bookie_with_holes_is_refilled() -> None:
    plan = plan_repair(ledger(LedgerState.CLOSED, 9), lost=(), holdings={**ALL, "c": held(0, 1, 2, 4, 5, 9)})
    assert plan == RepairPlan(refills=(Refill("c"),))


def test_holes_beyond_what_is_settled_are_left_alone() -> None:
    assert plan_repair(ledger(LedgerState.OPEN), lost=(), holdings={**ALL, "d": NOTHING_HELD}).is_empty


def test_a_bookie_with_bad_bytes_is_refilled() -> None:
    plan = plan_repair(ledger(LedgerState.CLOSED, 9), lost=(), holdings=ALL, bad={"b": [3]})
    assert plan == RepairPlan(refills=(Refill("b"),))


def test_a_bookie_that_does_not_tell_is_asked_again_later() -> None:
    plan = plan_repair(ledger(LedgerState.CLOSED, 9), lost=(), holdings={**ALL, "b": None})
    assert plan == RepairPlan(silent=("b",))
    assert not plan.is_empty


@pytest.mark.parametrize(
    ("bookie", "missing"),
    [("a", [0, 2, 3, 5, 6, 8, 9]), ("d", [6, 7, 9]), ("b", [0, 1, 3, 4]), ("c", [1, 2, 4, 5, 7, 8])],
)
def test_what_is_missing_follows_the_stripes(bookie, missing) -> None:
    metadata = ledger(LedgerState.CLOSED, 9, write_quorum=2)
    assert list(missing_entries(metadata, bookie, NOTHING_HELD)) == missing


def test_bad_entries_count_as_missing_only_in_the_own_share() -> None:
    metadata = ledger(LedgerState.CLOSED, 9)
    assert list(missing_entries(metadata, "b", held(*range(4)), bad=[1, 7])) == [1, 4]


def test_every_bookie_of_every_segment_is_named_once() -> None:
    assert named_bookies(ledger(LedgerState.OPEN)) == ["a", "b", "c", "d"]


def test_of_an_open_ledger_what_is_confirmed_is_missing_and_nothing_behind_it() -> None:
    open_ledger = ledger(LedgerState.OPEN)
    assert list(missing_entries(open_ledger, "c", held(0, 1, 2, 3, 4, 6), confirmed=8)) == [5, 7, 8]
    assert list(missing_entries(open_ledger, "c", held(0, 1), confirmed=3)) == [2, 3, 4]
    closed = ledger(LedgerState.CLOSED, 6)
    assert list(missing_entries(closed, "c", held(0, 1, 2, 3, 4), confirmed=8)) == [5, 6]

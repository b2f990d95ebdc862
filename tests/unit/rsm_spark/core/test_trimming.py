"""Which ledgers may go: each rule on its own, then planted mistakes, then a slow judge that says the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain
from rsm_spark.core.trimming import ConsumerHold, StayReason, TrimPlan, TrimRules, held_ledgers, plan_trim

HOUR_MS = 3_600_000
RETENTION_MS = 48 * HOUR_MS
NOW_MS = 1_000 * HOUR_MS
OLD_MS = NOW_MS - 49 * HOUR_MS
RULES = TrimRules(RETENTION_MS)


class Proof(msgspec.Struct, frozen=True):
    """As the log's own."""

    domain: str
    revision: int


def _ledger(ledger_id: int, last_revision: int, ended_ms: int, *, count: int = 5, created_ms: int = 0) -> ChainLedger:
    end = ClosedEnd(count - 1, last_revision, ended_ms, 100, "00" * 32)
    return ChainLedger(ledger_id, created_ms, 1, last_revision - count + 1, end)


def _chain(*closed: ChainLedger) -> LogChain:
    first = closed[-1].closed.last_revision + 1 if closed and closed[-1].closed else 1
    return LogChain("ab" * 16, closed[0].ledger_id if closed else 9, 3, None, (*closed, ChainLedger(9, 0, 3, first)))


def _plan(chain: LogChain, rules: TrimRules = RULES, absent: tuple[str, ...] = (), **verified: int) -> TrimPlan:
    """Plan with replicas `a`, `b`, …, each a domain of its own, and `lake`."""
    places = {
        name if name == "lake" else f"replica:{name}": Proof(name, revision) for name, revision in verified.items()
    }
    return plan_trim(chain, places, rules, now_ms=NOW_MS, absent=absent)


TWO_OLD = _chain(_ledger(1, 10, OLD_MS), _ledger(2, 20, OLD_MS))


def test_ledgers_that_two_domains_cover_and_that_ended_before_the_retention_go() -> None:
    plan = _plan(TWO_OLD, a=25, b=30)
    assert (plan.ledger_ids, plan.last_revision, plan.length, plan.alarm) == ((1, 2), 20, 200, "")
    assert [(row.first_ledger_id, row.reason) for row in plan.blocked] == [(9, StayReason.CURRENT)]


def test_the_lake_and_one_replica_are_two_domains() -> None:
    assert _plan(TWO_OLD, a=25, lake=30).ledger_ids == (1, 2)


def test_a_verified_snapshot_on_one_disk_only_is_not_enough() -> None:
    plan = _plan(TWO_OLD, a=25)
    assert plan.ledger_ids == ()
    assert plan.blocked[0].reason is StayReason.NOT_COVERED
    assert plan.blocked[0].ledger_count == 2
    assert "1 of 2 failure domains (verified: replica:a up to revision 25)" in plan.blocked[0].text


def test_two_replicas_whose_disks_fail_together_are_one_domain() -> None:
    verified = {"replica:a": Proof("rack", 25), "replica:b": Proof("rack", 25)}
    assert plan_trim(TWO_OLD, verified, RULES, now_ms=NOW_MS).ledger_ids == ()


def test_a_single_copy_is_enough_only_where_it_is_allowed() -> None:
    rules = TrimRules(RETENTION_MS, is_single_copy_allowed=True)
    assert _plan(TWO_OLD, rules, a=25).ledger_ids == (1, 2)
    assert _plan(TWO_OLD, rules).ledger_ids == ()


def test_nothing_goes_before_any_snapshot_covers_it_however_old_it_is() -> None:
    """majordodo#51: the last useful ledger was dropped before a snapshot covered it, and nothing could boot."""
    plan = _plan(_chain(_ledger(1, 10, 0)))
    assert plan.ledger_ids == ()
    assert "verified: none" in plan.blocked[0].text


def test_age_counts_from_the_last_entry_not_from_the_creation() -> None:
    just_closed = _chain(_ledger(1, 10, NOW_MS - 60_000, created_ms=OLD_MS))
    plan = _plan(just_closed, a=25, b=25)
    assert plan.ledger_ids == ()
    assert plan.blocked[0].reason is StayReason.YOUNG


def test_an_entry_is_kept_for_the_whole_retention_and_no_longer() -> None:
    at_the_end = NOW_MS - RETENTION_MS
    assert _plan(_chain(_ledger(1, 10, at_the_end)), a=25, b=25).ledger_ids == ()
    assert _plan(_chain(_ledger(1, 10, at_the_end - 1)), a=25, b=25).ledger_ids == (1,)


def test_only_what_lies_before_the_snapshots_goes() -> None:
    plan = _plan(TWO_OLD, a=20, b=30)
    assert plan.ledger_ids == (1,)
    assert [(row.first_ledger_id, row.reason) for row in plan.blocked] == [
        (2, StayReason.NOT_COVERED),
        (9, StayReason.CURRENT),
    ]


def test_a_snapshot_at_the_end_of_a_ledger_does_not_cover_it() -> None:
    """herddb#754: an idle log, whose only ledger was dropped while the checkpoint still pointed into it."""
    assert _plan(_chain(_ledger(1, 10, OLD_MS)), a=10, b=10).ledger_ids == ()
    assert _plan(_chain(_ledger(1, 10, OLD_MS)), a=11, b=11).ledger_ids == (1,)


def test_the_ledger_that_is_written_stays_even_if_the_chain_knows_its_end() -> None:
    chain = LogChain("ab" * 16, 1, 3, None, (_ledger(1, 10, OLD_MS),))
    plan = _plan(chain, a=25, b=25)
    assert plan.ledger_ids == ()
    assert plan.blocked[0].reason is StayReason.CURRENT


def test_an_empty_ledger_goes_with_the_one_before() -> None:
    empty = ChainLedger(2, 0, 2, 11, ClosedEnd(-1, 10, OLD_MS, 0, "00" * 32))
    assert _plan(_chain(_ledger(1, 10, OLD_MS), empty), a=25, b=25).ledger_ids == (1, 2)
    assert _plan(_chain(_ledger(1, 10, OLD_MS), empty), a=10, b=25).ledger_ids == ()


def test_an_empty_ledger_at_the_beginning_waits_for_the_next_and_raises_no_alarm() -> None:
    empty = ChainLedger(1, 0, 1, 1, ClosedEnd(-1, 0, 0, 0, "00" * 32))
    young = _plan(_chain(empty, _ledger(2, 10, NOW_MS)), a=25, b=25)
    assert (young.ledger_ids, young.alarm) == ((), "")
    assert [(row.ledger_count, row.reason) for row in young.blocked] == [(2, StayReason.YOUNG), (1, StayReason.CURRENT)]
    assert _plan(_chain(empty, _ledger(2, 10, OLD_MS)), a=25, b=25).ledger_ids == (1, 2)


def test_only_a_prefix_goes_even_if_a_damaged_chain_has_old_after_young() -> None:
    plan = _plan(_chain(_ledger(1, 10, NOW_MS), _ledger(2, 20, OLD_MS)), a=25, b=25)
    assert plan.ledger_ids == ()
    assert plan.blocked[0].ledger_count == 2


def test_a_replica_that_is_down_does_not_count_and_is_named() -> None:
    plan = _plan(TWO_OLD, absent=("replica:b",), a=25, b=25)
    assert plan.ledger_ids == ()
    assert plan.blocked[0].text.endswith("not counted, because down or without it: replica:b")


def test_offload_gates_only_where_it_is_asked_for() -> None:
    plan = _plan(TWO_OLD, TrimRules(RETENTION_MS, offloaded_revision=10), a=25, b=25)
    assert plan.ledger_ids == (1,)
    assert plan.blocked[0].reason is StayReason.NOT_OFFLOADED


def test_where_a_lake_is_kept_it_has_to_cover_what_goes() -> None:
    rules = msgspec.structs.replace(RULES, wanted_place="lake")
    assert _plan(TWO_OLD, rules, a=25, b=25).ledger_ids == ()
    plan = _plan(TWO_OLD, rules, a=25, b=25)
    assert plan.blocked[0].reason is StayReason.NOT_COVERED
    assert plan.blocked[0].text == "a verified snapshot beyond it must lie at lake: none is"
    assert _plan(TWO_OLD, rules, a=25, lake=25).ledger_ids == (1, 2)


def test_an_operator_may_accept_an_unverified_snapshot_but_not_none_at_all() -> None:
    assert _plan(TWO_OLD, TrimRules(RETENTION_MS, unverified_revision=15)).ledger_ids == (1,)
    assert _plan(TWO_OLD, TrimRules(RETENTION_MS, unverified_revision=0)).ledger_ids == ()
    assert _plan(_chain(_ledger(1, 10, NOW_MS)), TrimRules(RETENTION_MS, unverified_revision=99)).ledger_ids == ()


def test_alarm_comes_after_one_and_a_half_retentions_and_says_the_reason() -> None:
    """restate#1807 and its kin: a log that is never trimmed, and nobody is told."""
    not_yet = _plan(_chain(_ledger(1, 10, NOW_MS - 72 * HOUR_MS)), a=25)
    assert not_yet.alarm == ""
    plan = _plan(_chain(_ledger(1, 10, NOW_MS - 73 * HOUR_MS)), a=25)
    assert plan.alarm.startswith("nothing is trimmed: ledger 1 ended 73 h ago, the retention is 48 h: verified snap")


def test_no_alarm_while_something_goes() -> None:
    chain = _chain(_ledger(1, 10, 0), _ledger(2, 20, 0))
    assert _plan(chain, a=15, b=15).alarm == ""


def test_verified_rows_in_any_order_make_the_same_plan() -> None:
    one = {"replica:a": Proof("a", 25), "lake": Proof("lake", 15)}
    other = dict(reversed(one.items()))
    assert plan_trim(TWO_OLD, one, RULES, now_ms=NOW_MS) == plan_trim(TWO_OLD, other, RULES, now_ms=NOW_MS)


def test_a_log_without_ledgers_has_nothing_to_trim() -> None:
    assert plan_trim(LogChain("ab" * 16), {}, RULES, now_ms=NOW_MS) == TrimPlan()


def test_thousands_of_ledgers_that_stay_are_a_few_lines() -> None:
    ledgers = [_ledger(i, 10 * (i - 9), NOW_MS - (2_020 - i) * HOUR_MS // 10) for i in range(10, 2_010)]
    plan = _plan(_chain(*ledgers), a=25)
    assert sum(row.ledger_count for row in plan.blocked) + len(plan.ledger_ids) == 2_001
    assert len(plan.blocked) <= 5


@st.composite
def _chains(draw: st.DrawFn) -> LogChain:
    """Chains as they may be: revisions and times rise, some ledgers are empty."""
    ledgers, revision, ended_ms = [], 0, NOW_MS - 100 * HOUR_MS
    for ledger_id in range(draw(st.integers(0, 6))):
        count = draw(st.integers(0, 3))
        revision += count
        ended_ms += draw(st.integers(0, 40)) * HOUR_MS if count else 0
        end = ClosedEnd(count - 1, revision, ended_ms, count, "00" * 32)
        ledgers.append(ChainLedger(ledger_id, 0, 1, revision - count + 1, end))
    return LogChain("ab" * 16, 0, 1, None, (*ledgers, ChainLedger(99, 0, 1, revision + 1)))


@given(_chains(), st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), max_size=4), st.booleans())
def test_what_goes_is_old_and_survives_the_loss_of_any_one_domain(
    chain: LogChain, proofs: list[tuple[str, int]], is_single: bool
) -> None:
    verified = {f"replica:{i}": Proof(domain, revision) for i, (domain, revision) in enumerate(proofs)}
    rules = TrimRules(RETENTION_MS, is_single_copy_allowed=is_single)
    plan = plan_trim(chain, verified, rules, now_ms=NOW_MS)
    ids = [ledger.ledger_id for ledger in chain.ledgers]
    assert list(plan.ledger_ids) == ids[: len(plan.ledger_ids)]
    assert sum(row.ledger_count for row in plan.blocked) == len(ids) - len(plan.ledger_ids)
    for lost in ["nothing"] if is_single else ["a", "b", "c"]:
        left = [proof.revision for proof in verified.values() if proof.domain != lost]
        for ledger in chain.ledgers[: len(plan.ledger_ids)]:
            assert ledger.closed is not None
            assert max(left, default=0) > ledger.closed.last_revision
            assert NOW_MS - ledger.closed.last_entry_ms > RETENTION_MS


@pytest.mark.parametrize("ended_h", [0, 47, 48, 49, 100])
def test_plan_is_the_same_for_every_leader_that_knows_the_same(ended_h: int) -> None:
    """Nothing lives in a leader's memory: the plan is a function of chain, log and time."""
    chain = _chain(_ledger(1, 10, NOW_MS - ended_h * HOUR_MS))
    assert _plan(chain, a=25, b=25) == _plan(chain, a=25, b=25)
    assert bool(_plan(chain, a=25, b=25).ledger_ids) == (ended_h > 48)


def _hold(revision: int, *, hours: float = 100, length: int = 10_000, name: str = "report") -> ConsumerHold:
    return ConsumerHold(name, "a query", revision, int(hours * HOUR_MS), length)


def _held(*holds: ConsumerHold, told_revision: int | None = None, **limits: Any) -> TrimPlan:
    return _plan(TWO_OLD, TrimRules(RETENTION_MS, holds=holds, told_revision=told_revision, **limits), a=25, b=30)


def test_a_consumer_holds_what_it_has_not_read_and_nothing_else() -> None:
    assert _held(_hold(0)).ledger_ids == ()
    assert _held(_hold(9)).ledger_ids == ()
    assert _held(_hold(10)).ledger_ids == (1,)
    assert _held(_hold(19)).ledger_ids == (1,)
    assert _held(_hold(20)).ledger_ids == (1, 2)


def test_the_slowest_of_all_consumers_counts_and_is_named() -> None:
    plan = _held(_hold(12, name="b"), _hold(20, name="c"), _hold(11, name="a"))
    assert plan.ledger_ids == (1,)
    assert plan.blocked[0].reason is StayReason.UNREAD
    assert plan.blocked[0].text == (
        "consumer a (a query) has read up to revision 11; it holds the rest for 100 h and 10,000 bytes at most"
    )
    assert plan.alarm == ""


def test_a_consumer_that_is_too_far_behind_in_time_holds_no_more_and_is_told() -> None:
    assert _held(_hold(0, hours=49)).ledger_ids == ()
    plan = _held(_hold(0, hours=48.9), _hold(15, hours=48.9, name="b"), _hold(20, name="c"))
    assert plan.ledger_ids == (1, 2)
    assert plan.lapsed == ("b", "report")


def test_a_consumer_holds_the_newest_bytes_up_to_its_limit() -> None:
    assert _held(_hold(0, length=200)).ledger_ids == ()
    plan = _held(_hold(0, length=199))
    assert (plan.ledger_ids, plan.lapsed) == ((1,), ("report",))
    assert _held(_hold(0, length=99)).ledger_ids == (1, 2)


def test_the_leader_s_limits_are_above_those_of_a_consumer() -> None:
    assert _held(_hold(0), hold_ms_max=48 * HOUR_MS).ledger_ids == (1, 2)
    assert _held(_hold(0), hold_bytes_max=100).ledger_ids == (1,)


def test_nothing_goes_behind_what_consumers_were_told() -> None:
    plan = _held(told_revision=10)
    assert plan.ledger_ids == (1,)
    assert [row.reason for row in plan.blocked] == [StayReason.NOT_TOLD, StayReason.CURRENT]


def test_a_missing_snapshot_is_told_though_a_consumer_holds_the_ledger_too() -> None:
    plan = _plan(TWO_OLD, TrimRules(RETENTION_MS, holds=(_hold(0),)))
    assert plan.blocked[0].reason is StayReason.NOT_COVERED


def test_the_ledgers_that_one_consumer_holds() -> None:
    rules = TrimRules(RETENTION_MS)
    assert held_ledgers(TWO_OLD, _hold(0), rules, now_ms=NOW_MS) == (1, 2)
    assert held_ledgers(TWO_OLD, _hold(10), rules, now_ms=NOW_MS) == (2,)
    assert held_ledgers(TWO_OLD, _hold(0, length=100), rules, now_ms=NOW_MS) == (2,)
    assert held_ledgers(TWO_OLD, _hold(0, hours=1), rules, now_ms=NOW_MS) == ()

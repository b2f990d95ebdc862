"""Trimming of plain logs: by age, by size, as far as consumers have read, as far as somebody says."""

from __future__ import annotations

from rsm_spark.core.chain import ChainLedger, ClosedEnd, LogChain
from rsm_spark.core.trimming import HOLD_BYTES, HOLD_MS, ConsumerHold, StayReason, plan_trim
from rsm_spark.log.log_policy import LogPolicy

_NOW = 100_000


def _chain() -> LogChain:
    """Return a log of four closed ledgers of ten records and 100 bytes, which ended each 10 s, and an open one."""
    closed = [
        ChainLedger(n, 0, 1, 10 * n + 1, ClosedEnd(3, 10 * n + 10, _NOW - 10_000 * (4 - n), 100, "00"))
        for n in range(4)
    ]
    return LogChain("00" * 16, 0, 1, None, (*closed, ChainLedger(4, 0, 1, 41)))


def _gone(policy: LogPolicy, *read: int) -> tuple[tuple[int, ...], StayReason]:
    holds = tuple(ConsumerHold(f"c{one}", "a reader", one, HOLD_MS, HOLD_BYTES) for one in read)
    plan = plan_trim(_chain(), {}, policy.rules(holds), now_ms=_NOW)
    return plan.ledger_ids, plan.blocked[0].reason


def test_without_limits_nothing_goes() -> None:
    assert _gone(LogPolicy()) == ((), StayReason.YOUNG)


def test_what_is_old_goes() -> None:
    assert _gone(LogPolicy(retention_ms=25_000)) == ((0, 1), StayReason.YOUNG)
    assert _gone(LogPolicy(retention_ms=0)) == ((0, 1, 2, 3), StayReason.CURRENT)


def test_what_is_behind_enough_bytes_goes() -> None:
    assert _gone(LogPolicy(retention_bytes=200)) == ((0, 1), StayReason.YOUNG)
    assert _gone(LogPolicy(retention_bytes=201)) == ((0,), StayReason.YOUNG)
    assert _gone(LogPolicy(retention_bytes=0))[0] == (0, 1, 2, 3)


def test_what_was_truncated_goes_by_whole_ledgers() -> None:
    assert _gone(LogPolicy(truncated=9))[0] == ()
    assert _gone(LogPolicy(truncated=29))[0] == (0, 1)
    assert _gone(LogPolicy(truncated=1_000))[0] == (0, 1, 2, 3)


def test_what_everybody_has_read_goes_if_there_is_somebody() -> None:
    assert _gone(LogPolicy(until_read=True))[0] == ()
    assert _gone(LogPolicy(until_read=True), 35, 20) == ((0, 1), StayReason.YOUNG)
    assert _gone(LogPolicy(until_read=False), 35, 20)[0] == ()


def test_what_somebody_has_not_read_stays_whatever_the_policy_says() -> None:
    for policy in (LogPolicy(retention_ms=0), LogPolicy(retention_bytes=0), LogPolicy(truncated=1_000)):
        assert _gone(policy, 15, 40) == ((0,), StayReason.UNREAD)

"""When a failed run is repeated."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.machine.policies import ErrorRule, RetryPolicy
from broker.machine.retrying import backoff_ms, retry_policy, rule_for


@given(
    base=st.integers(0, 10**7),
    factor=st.floats(1, 100),
    longest=st.integers(0, 10**9),
    jitter=st.floats(0, 1),
    task_id=st.integers(1, 2**40),
    attempt=st.integers(0, 10**9),
)
def test_a_backoff_is_bounded_and_the_same_every_time(
    base: int, factor: float, longest: int, jitter: float, task_id: int, attempt: int
) -> None:
    policy = RetryPolicy(base, factor, longest, jitter)
    wait = backoff_ms(policy, None, task_id, attempt)
    assert wait == backoff_ms(policy, None, task_id, attempt)
    assert 0 <= wait <= max(base, longest)
    assert (wait == 0) == (base == 0)
    if jitter == 0 and attempt <= 1:
        assert wait == base


def test_backoffs_of_different_tasks_are_spread() -> None:
    policy = RetryPolicy(10_000, jitter=1.0)
    waits = sorted(backoff_ms(policy, None, task_id, 1) for task_id in range(200))
    assert waits[0] < 1_000
    assert waits[-1] > 9_000
    # The same on every machine: it is in nobody's `PYTHONHASHSEED`.
    assert backoff_ms(policy, None, 4711, 2) == 12_724


def test_the_first_rule_that_fits_decides() -> None:
    policy = RetryPolicy(rules=(ErrorRule("[timed_out]"), ErrorRule("Value"), ErrorRule("ValueError", retry=False)))
    assert rule_for(policy, "failed", "ValueError: x") == policy.rules[1]
    assert rule_for(policy, "timed_out", "") == policy.rules[0]
    assert rule_for(policy, "failed", "KeyError") is None


def test_an_own_backoff_of_a_rule_may_be_longer_than_the_longest() -> None:
    rule = ErrorRule("X", backoff_ms=5_000)
    assert backoff_ms(RetryPolicy(1, backoff_ms_max=10, jitter=0), rule, 1, 1) == 5_000


def test_a_task_without_a_policy_has_its_tenants() -> None:
    default = RetryPolicy(5)
    assert retry_policy("", default) is default
    assert retry_policy('{"backoff_ms": 7}', default).backoff_ms == 7

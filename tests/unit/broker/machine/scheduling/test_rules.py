"""Rules that change while tasks wait and run."""

from __future__ import annotations

import pytest

from broker.machine.policies import TenantPolicy, WorkerOffer
from tests.unit.broker.machine.scheduling.brute_force import Checked


@pytest.fixture
def checked():
    made = Checked()
    made.worker("w", WorkerOffer(threads_max=2))
    return made


def started(done):
    return [task_id for task_id, _ in done]


def test_held_keys_cost_their_own_tasks_only(checked):
    held = checked.submit(key="k", count=3)
    free = checked.submit(key="l", count=1)
    checked.hold("a", "", "k", True)
    assert started(checked.dispatch()) == free
    checked.hold("a", "", "k", False)
    assert started(checked.dispatch()) == held[:1]


def test_a_key_held_twice_is_held_until_both_holds_are_over(checked):
    checked.submit(key="k")
    checked.hold("a", "", "k", True)
    checked.hold("a", "t", "k", True)
    checked.hold("a", "", "k", False)
    assert not checked.dispatch()
    checked.hold("a", "t", "k", False)
    assert checked.dispatch()


def test_a_raised_limit_holds_for_what_waits_already(checked):
    checked.limit("db", "", "", 1)
    checked.submit(resources=[("db", 1)], count=5)
    assert len(checked.dispatch()) == 1
    checked.limit("db", "", "", 2)
    assert len(checked.dispatch()) == 1
    checked.worker("w", WorkerOffer(threads_max=10))
    checked.limit("db", "", "", None)
    assert len(checked.dispatch()) == 3


def test_a_lowered_limit_holds_from_the_next_dispatch(checked):
    checked.worker("w", WorkerOffer(threads_max=10))
    ids = checked.submit(count=4)
    checked.dispatch()
    checked.tenant("a", TenantPolicy(running_max=2))
    checked.submit(count=4)
    for task_id in ids[:2]:
        checked.end(task_id)
        assert not checked.dispatch()
    checked.end(ids[2])
    assert len(checked.dispatch()) == 1


def test_a_worker_that_is_gone_gets_nothing_and_what_it_runs_still_counts(checked):
    checked.limit("db", "", "", 1)
    (first,) = checked.submit(resources=[("db", 1)])
    checked.dispatch()
    checked.worker("w", None)
    checked.worker("v", WorkerOffer(threads_max=2))
    (second,) = checked.submit(resources=[("db", 1)])
    assert not checked.dispatch()
    checked.end(first)
    assert checked.dispatch() == [(second, "v")]


def test_a_worker_that_comes_back_with_fewer_threads_is_over_full_for_a_while(checked):
    ids = checked.submit(count=3)
    checked.dispatch()
    checked.worker("w", None)
    checked.worker("w", WorkerOffer(threads_max=1))
    assert not checked.dispatch()
    checked.end(ids[0])
    assert not checked.dispatch()
    checked.end(ids[1])
    assert started(checked.dispatch()) == [ids[2]]

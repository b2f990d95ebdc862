from __future__ import annotations

import random

import pytest

from broker.pool.core.membership import FAILURES_MAX, Cancel, Fail, Launch, PoolMembership, Tell
from broker.pool.core.messages import Hello, Left, Order, Report

SERVED = Report(is_served=True, running=1)


def hello(index: int, launch: int, attempt: int = 0, member: str = "") -> Hello:
    return Hello(index, launch, attempt, member or f"{index}.{launch}.{attempt}")


def working(count: int) -> PoolMembership:
    """Return a pool of so many workers, each with a task; the connection of place n is "n"."""
    roster = PoolMembership(drain_s=60)
    roster.want(count)
    for effect in roster.plan(0):
        assert isinstance(effect, Launch)
        link = str(effect.index)
        assert roster.heard(link, hello(effect.index, effect.launch)) == [Tell(link, Order.WORK)]
        roster.reported(link, SERVED)
    roster.validate()
    return roster


def test_as_many_are_started_as_are_wanted_at_the_lowest_free_places() -> None:
    roster = PoolMembership(drain_s=60)
    roster.want(2)
    assert roster.plan(0) == [Launch(0, 1), Launch(1, 2)]
    assert roster.plan(0) == []
    roster.want(3)
    assert roster.plan(0) == [Launch(2, 3)]
    assert roster.starting == 3


def test_those_that_run_least_drain_first() -> None:
    roster = working(3)
    roster.reported("1", Report(is_served=True, running=0))
    roster.want(2)
    assert roster.plan(0) == [Tell("1", Order.DRAIN)]
    assert (roster.served, roster.leaving) == (2, 1)
    roster.left("1", Left())
    assert roster.over(1, 2, "", 1) == []
    assert roster.plan(1) == []
    assert roster.lost_count == 0


def test_one_that_has_not_begun_is_cancelled_before_any_other_drains() -> None:
    roster = working(2)
    roster.want(3)
    roster.plan(0)
    roster.want(2)
    assert roster.plan(0) == [Cancel(2, 3)]
    assert roster.heard("late", hello(2, 3)) == [Tell("late", Order.STOP)]
    assert roster.cancelled_count == 0


def test_a_place_that_drains_is_not_given_to_another_worker() -> None:
    roster = working(2)
    roster.want(1)
    roster.plan(0)
    roster.want(2)
    assert roster.plan(0) == [Launch(2, 3)]


def test_a_drain_that_takes_too_long_is_cancelled_once() -> None:
    roster = working(1)
    roster.stop()
    assert roster.plan(0) == [Tell("0", Order.DRAIN)]
    assert roster.next_due_s == 75
    assert roster.plan(74) == []
    assert roster.plan(75) == [Tell("0", Order.STOP), Cancel(0, 1)]
    assert roster.plan(76) == []
    assert roster.cancelled_for_s(80) == 5
    assert roster.cancelled_count == 1
    roster.over(0, 1, "cancelled", 80)
    assert roster.is_empty


def test_the_next_attempt_takes_the_place_of_a_lost_worker_and_the_lost_one_is_stopped() -> None:
    roster = working(1)
    assert roster.heard("new", hello(0, 1, attempt=1)) == [Tell("0", Order.STOP), Tell("new", Order.WORK)]
    roster.lost("0")
    assert roster.heard("0 again", hello(0, 1, attempt=0)) == [Tell("0 again", Order.STOP)]
    assert roster.lost_count == 1
    roster.reported("0", Report(is_served=True, running=9))
    assert roster.running == 0
    roster.validate()


def test_a_worker_that_connects_again_goes_on_and_its_tasks_count_once() -> None:
    roster = working(1)
    roster.reported("0", Report(is_served=True, ended=5))
    roster.lost("0")
    assert roster.starting == 1
    assert roster.heard("again", hello(0, 1)) == [Tell("again", Order.WORK)]
    roster.reported("again", Report(is_served=True, ended=7))
    assert (roster.ended_count, roster.lost_count) == (7, 0)


def test_a_worker_that_drains_is_told_so_again_when_it_connects_again() -> None:
    roster = working(1)
    roster.stop()
    roster.plan(0)
    roster.lost("0")
    assert roster.heard("again", hello(0, 1)) == [Tell("again", Order.DRAIN)]
    assert roster.heard("other", hello(0, 1, attempt=1)) == [Tell("again", Order.STOP), Tell("other", Order.STOP)]


def test_a_start_that_failed_is_made_again_after_a_pause() -> None:
    roster = working(2)
    assert roster.over(1, 2, "executor lost", 10) == []
    assert roster.plan(10) == []
    assert roster.next_due_s == 10.5
    assert roster.plan(10.5) == [Launch(1, 3)]


def test_workers_that_never_work_end_the_pool_with_the_reason() -> None:
    roster = PoolMembership(drain_s=60)
    roster.want(1)
    now_s = 0.0
    for _ in range(FAILURES_MAX):
        (launch,) = roster.plan(now_s)
        assert isinstance(launch, Launch)
        assert roster.over(launch.index, launch.launch, "no module named broker", now_s) == []
        now_s += 60
    (launch,) = roster.plan(now_s)
    assert isinstance(launch, Launch)
    (fail,) = roster.over(launch.index, launch.launch, "no module named broker", now_s)
    assert isinstance(fail, Fail)
    assert "no module named broker" in fail.why


def test_many_workers_that_are_lost_at_once_and_come_again_are_no_failure_of_the_pool() -> None:
    roster = working(3 * FAILURES_MAX)
    for index in range(3 * FAILURES_MAX):
        assert Tell(f"new{index}", Order.WORK) in roster.heard(f"new{index}", hello(index, index + 1, attempt=1))
    assert roster.lost_count == 3 * FAILURES_MAX


def test_tasks_of_workers_that_leave_are_no_reason_for_more_workers() -> None:
    roster = working(2)
    roster.want(1)
    roster.plan(0)
    assert (roster.running, roster.running_to_stay) == (2, 1)


def test_a_worker_that_can_never_work_ends_the_pool_at_once() -> None:
    roster = working(1)
    assert roster.left("0", Left("--tasks nothing: there is no module", is_fault=True)) == [
        Fail("--tasks nothing: there is no module")
    ]


def test_types_are_known_when_every_worker_has_said_them() -> None:
    roster = working(2)
    assert roster.types is None
    roster.reported("0", Report(is_served=True, types=["b"]))
    roster.reported("1", Report(is_served=True, types=["a", "b"]))
    assert roster.types == ["a", "b"]


@pytest.mark.parametrize("seed", range(30))
def test_every_pool_that_is_stopped_becomes_empty(seed: int) -> None:
    rng = random.Random(seed)
    roster, now_s = PoolMembership(drain_s=5), 0.0
    starts: dict[tuple[int, int], int] = {}  # -> attempts
    links: dict[str, tuple[int, int]] = {}

    def carry_out(effects: list) -> None:
        for effect in effects:
            if isinstance(effect, Launch):
                assert effect.index not in {index for index, _ in starts}, "a place has one start at a time"
                starts[effect.index, effect.launch] = 0
        roster.validate()

    for step in range(400):
        now_s += rng.random()
        if step == 300:
            roster.stop()
        choice = rng.randrange(6)
        if choice == 0:
            roster.want(rng.randrange(6))
        elif choice == 1 and starts:
            start = rng.choice(list(starts))
            starts[start] += rng.randrange(2)
            links[f"link{step}"] = start
            carry_out(roster.heard(f"link{step}", hello(*start, starts[start])))
        elif choice == 2 and links:
            roster.reported(rng.choice(list(links)), Report(is_served=rng.random() < 0.8, running=rng.randrange(4)))
        elif choice == 3 and links:
            link = rng.choice(list(links))
            del links[link]
            roster.lost(link)
        elif choice == 4 and starts:
            start = rng.choice(list(starts))
            del starts[start]
            roster.over(*start, "", now_s)
        carry_out(roster.plan(now_s))
    roster.plan(now_s + 1_000)
    for start in list(starts):
        roster.over(*start, "cancelled", now_s)
    assert roster.is_empty
    assert roster.plan(now_s + 2_000) == []

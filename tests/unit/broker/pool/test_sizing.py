from __future__ import annotations

import random

import pytest

from broker.pool.core.sizing import PoolBounds, PoolLoad, PoolSizer

BOUNDS = PoolBounds(workers_min=1, workers_max=8, threads=4, idle_s=30)


def load(waiting: int, running: int, served: int, starting: int = 0, *, is_type_full: bool = False) -> PoolLoad:
    return PoolLoad(waiting=waiting, running=running, served=served, starting=starting, is_type_full=is_type_full)


def test_a_pool_grows_while_tasks_wait_and_all_threads_run_something() -> None:
    assert PoolSizer(BOUNDS).look(0, load(waiting=3, running=4, served=1)) == 2


def test_it_at_most_doubles_at_a_time_and_never_passes_its_bound() -> None:
    sizer = PoolSizer(BOUNDS)
    seen = []
    for now_s in range(5):
        seen.append(sizer.look(now_s, load(waiting=1_000, running=4 * sizer.wanted, served=sizer.wanted)))
    assert seen == [2, 4, 8, 8, 8]


def test_tasks_that_wait_for_a_limit_while_threads_are_free_do_not_make_it_grow() -> None:
    assert PoolSizer(BOUNDS).look(0, load(waiting=1_000, running=2, served=1)) == 1


def test_a_type_of_which_the_workers_run_as_many_as_they_may_makes_it_grow() -> None:
    assert PoolSizer(BOUNDS).look(0, load(waiting=5, running=2, served=1, is_type_full=True)) == 2


def test_it_does_not_grow_while_workers_are_on_their_way() -> None:
    sizer = PoolSizer(BOUNDS)
    sizer.look(0, load(waiting=100, running=4, served=1))
    assert sizer.look(1, load(waiting=100, running=4, served=1, starting=1)) == 2


def test_a_pool_of_none_gets_one_worker_for_the_first_task() -> None:
    sizer = PoolSizer(PoolBounds(workers_min=0, workers_max=8, threads=4))
    assert sizer.look(0, load(waiting=100, running=0, served=0)) == 1


def test_it_shrinks_to_the_most_that_was_needed_while_some_were_idle() -> None:
    sizer = PoolSizer(BOUNDS)
    sizer.wanted = 8
    assert sizer.look(0, load(waiting=0, running=4, served=8)) == 8
    assert sizer.next_due_s == 30
    assert sizer.look(10, load(waiting=0, running=9, served=8)) == 8
    assert sizer.look(30, load(waiting=0, running=0, served=8)) == 3
    assert sizer.look(60, load(waiting=0, running=0, served=3)) == 3  # Idle since the look before? Counted anew.
    assert sizer.look(90, load(waiting=0, running=0, served=3)) == 1


def test_a_lull_that_is_too_short_ends_nobody() -> None:
    sizer = PoolSizer(BOUNDS)
    sizer.wanted = 2
    sizer.look(0, load(waiting=0, running=0, served=2))
    sizer.look(29, load(waiting=0, running=8, served=2))
    assert sizer.next_due_s is None
    assert sizer.look(31, load(waiting=0, running=0, served=2)) == 2


def test_short_runs_leave_a_thread_free_now_and_then_and_the_pool_grows_all_the_same() -> None:
    assert PoolSizer(BOUNDS).look(0, load(waiting=1_000, running=3, served=1)) == 2


def test_workers_on_their_way_are_not_sent_away_while_tasks_wait() -> None:
    sizer = PoolSizer(BOUNDS)
    sizer.wanted = 2
    for now_s in (0, 100):
        assert sizer.look(now_s, load(waiting=50, running=1, served=1, starting=1)) == 2
    for now_s in (200, 300):
        sizer.look(now_s, load(waiting=0, running=1, served=1, starting=1))
    assert sizer.wanted == 1


def test_one_worker_stays_for_tasks_that_are_held_back() -> None:
    sizer = PoolSizer(PoolBounds(workers_min=0, workers_max=8, threads=4, idle_s=1))
    sizer.wanted = 2
    sizer.look(0, load(waiting=7, running=0, served=2))
    assert sizer.look(2, load(waiting=7, running=0, served=2)) == 1


@pytest.mark.parametrize("seed", range(20))
def test_what_is_wanted_stays_within_the_bounds(seed: int) -> None:
    rng = random.Random(seed)
    low = rng.randrange(4)
    sizer = PoolSizer(PoolBounds(workers_min=low, workers_max=low + 1 + rng.randrange(9), threads=3, idle_s=2))
    for step in range(300):
        served = rng.randrange(sizer.wanted + 2)
        given = load(rng.choice((0, 0, 1, 50)), rng.randrange(3 * served + 1), served, rng.randrange(2))
        assert low <= sizer.look(step / 2, given) <= sizer._bounds.workers_max

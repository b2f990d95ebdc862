"""What goes where, case by case."""

from __future__ import annotations

from collections import Counter

import pytest

from broker.core.policies import TenantPolicy, WorkerOffer
from broker.core.scheduling import Demand, Scheduler
from broker.core.scheduling.dispatching import CHUNK_TASKS
from tests.unit.broker_scheduling.brute_force import Checked


@pytest.fixture
def checked():
    made = Checked()
    made.worker("w", WorkerOffer(threads_max=2))
    return made


def started(done):
    return [task_id for task_id, _ in done]


def test_tasks_of_equal_priority_start_in_the_order_of_their_ids(checked):
    checked.worker("w", WorkerOffer(threads_max=10))
    ids = checked.submit(count=10)
    assert started(checked.dispatch()) == ids


def test_higher_priority_starts_first_whenever_it_came(checked):
    low = checked.submit(count=3)
    (high,) = checked.submit(priority=5)
    assert started(checked.dispatch()) == [high, low[0]]


def test_a_task_that_failed_comes_back_to_its_old_place(checked):
    ids = checked.submit(count=4)
    checked.dispatch()
    checked.end(ids[1])
    checked.end(ids[0], again=True)
    assert started(checked.dispatch()) == [ids[0], ids[2]]


def test_a_blocked_task_of_high_priority_does_not_use_up_its_types_place(checked):
    checked.worker("w", WorkerOffer(threads_max=4, threads_by_type={"mail": 1}))
    checked.limit("db", "", "", 0)
    checked.submit(type="mail", priority=9, resources=[("db", 1)], count=5)
    (runnable,) = checked.submit(type="mail")
    assert started(checked.dispatch()) == [runnable]
    checked.check_exhausted()


def test_a_blocked_task_of_a_better_group_does_not_use_up_a_thread(checked):
    checked.worker("w", WorkerOffer(threads_max=1, groups=(7, 0)))
    checked.tenant("capped", TenantPolicy(running_max=1))
    checked.worker("other", WorkerOffer(threads_max=1, groups=(7,)))
    checked.submit("capped", group=7, count=3)
    checked.dispatch()
    (runnable,) = checked.submit("b", group=1)
    checked.dispatch()
    assert runnable in checked.running or "other" not in {worker for _, worker, _ in checked.running.values()}
    checked.check_exhausted()


def test_groups_are_served_in_the_workers_order_of_preference(checked):
    checked.worker("w", WorkerOffer(threads_max=3, groups=(2, 0, 1), excluded_groups=(4,)))
    first, any_group, last = (checked.submit(group=group)[0] for group in (2, 3, 1))
    (excluded,) = checked.submit(group=4)
    assert started(checked.dispatch()) == [first, any_group, last]
    assert excluded in checked.waiting


def test_few_tasks_go_to_the_least_loaded_workers():
    checked = Checked()
    for n in range(4):
        checked.worker(f"w{n}", WorkerOffer(threads_max=10))
    checked.submit(count=8)
    assert set(Counter(worker for _, worker in checked.dispatch()).values()) == {2}


def test_load_is_the_share_of_threads_that_is_busy():
    checked = Checked()
    checked.worker("big", WorkerOffer(threads_max=30))
    checked.worker("small", WorkerOffer(threads_max=10))
    checked.submit(count=20)
    assert Counter(worker for _, worker in checked.dispatch()) == {"big": 15, "small": 5}


def test_a_backlog_is_packed_on_few_workers_one_after_the_other():
    checked = Checked()
    for n in range(10):
        checked.worker(f"w{n}", WorkerOffer(threads_max=100))
    checked.submit(count=2 * CHUNK_TASKS + 200)
    workers = [worker for _, worker in checked.dispatch()][:200]
    assert len(set(workers)) == 2
    assert sum(before != after for before, after in zip(workers, workers[1:], strict=False)) == 1


def test_every_worker_has_its_turn_when_single_tasks_come_and_go():
    checked = Checked()
    for n in range(5):
        checked.worker(f"w{n}", WorkerOffer(threads_max=10))
    used = Counter()
    for _ in range(50):
        checked.submit()
        ((task_id, worker),) = checked.dispatch()
        used[worker] += 1
        checked.end(task_id)
    assert set(used.values()) == {10}


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


def test_nothing_is_looked_at_again_until_something_changes(checked):
    checked.submit(count=5)
    checked.dispatch()
    assert not checked.scheduler.has_work
    checked.submit(count=5)
    assert not checked.scheduler.has_work
    checked.end(1)
    assert checked.scheduler.has_work


def test_what_was_left_off_is_gone_on_with(checked):
    checked.worker("w", WorkerOffer(threads_max=100))
    checked.submit(count=100)
    done = []
    while checked.scheduler.has_work:
        done += checked.dispatch(7)
    assert len(done) == 100


def test_a_task_may_be_withdrawn_before_it_waits_or_twice(checked):
    checked.scheduler.withdraw(99)
    (task_id,) = checked.submit()
    checked.withdraw(task_id)
    checked.scheduler.withdraw(task_id)
    assert not checked.dispatch()
    checked.check_limits()


def drive(scheduler: Scheduler, ids: range, resumed: dict[int, str]) -> list[tuple[int, str]]:
    """Run tasks to their end, in the order of their start."""
    done = []
    running = list(resumed)
    now_ms = 1_700_000_100_000
    while scheduler.has_work or running:
        now_ms += 10
        for task_id, worker_id in scheduler.next_assignments(now_ms):
            scheduler.start(task_id, worker_id, now_ms)
            done.append((task_id, worker_id))
            running.append(task_id)
        if running:
            scheduler.end(running.pop(0), now_ms)
    return done


def mixed_up(task_id: int) -> Demand:
    return Demand(
        task_id, "abcd"[task_id * 7 % 4], "xyz"[task_id % 3], task_id * 5 % 3, task_id * 11 % 3,
        (("db", 1),) if task_id % 5 == 0 else (), "k" if task_id % 6 == 0 else "",
    )  # fmt: skip


def told_the_rules() -> Scheduler:
    scheduler = Scheduler()
    for n in range(3):
        scheduler.set_worker(f"w{n}", WorkerOffer(threads_max=4, groups=(1, 0), resources={"db": 2}))
    scheduler.set_tenant("a", TenantPolicy(weight=3.0, running_max=5))
    scheduler.set_limit("db", "", "", 4)
    scheduler.set_hold("b", "x", "", is_paused=True)
    scheduler.set_hold("c", "", "k", is_paused=True)
    return scheduler


def test_the_same_calls_give_the_same_assignments():
    runs = []
    for _ in range(2):
        scheduler = told_the_rules()
        for task_id in range(1, 400):
            scheduler.enqueue(mixed_up(task_id))
        runs.append(drive(scheduler, range(1, 400), {}))
    assert runs[0] == runs[1]
    assert len(runs[0]) > 300


def test_a_scheduler_that_was_rebuilt_dispatches_the_same_tasks_within_the_same_limits():
    kept = told_the_rules()
    now_ms = 1_700_000_000_000
    for task_id in range(1, 300):
        kept.enqueue(mixed_up(task_id))
    running: dict[int, str] = {}
    for task_id, worker_id in kept.next_assignments(now_ms):
        kept.start(task_id, worker_id, now_ms)
        running[task_id] = worker_id
    rebuilt = told_the_rules()
    for task_id in range(1, 300):
        if task_id in running:
            rebuilt.resume(mixed_up(task_id), running[task_id], now_ms)
        else:
            rebuilt.enqueue(mixed_up(task_id))
    rebuilt.validate()
    by_tenant = []
    for scheduler in (kept, rebuilt):
        order = [task_id for task_id, _ in drive(scheduler, range(1, 300), running)]
        scheduler.validate()
        by_tenant.append({tenant: {i for i in order if mixed_up(i).tenant == tenant} for tenant in "abcd"})
    assert by_tenant[0] == by_tenant[1]

"""What goes where, case by case."""

from __future__ import annotations

from collections import Counter

import pytest

from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.scheduling.dispatching import CHUNK_TASKS
from tests.unit.broker.machine.scheduling.brute_force import Checked


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

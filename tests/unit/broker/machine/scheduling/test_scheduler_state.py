"""The state: what becomes feasible is noted, and nothing else."""

from __future__ import annotations

import gc
import weakref

from broker.machine.policies import WorkerOffer
from broker.machine.scheduling.scheduler import Scheduler
from tests.unit.broker.machine.scheduling.brute_force import Checked


def crowded() -> Checked:
    checked = Checked()
    checked.worker("w", WorkerOffer(threads_max=1))
    checked.submit(count=3)
    checked.dispatch()
    return checked


def test_more_tasks_of_a_queue_that_waits_are_nothing_new():
    checked = crowded()
    checked.submit(count=3)
    assert not checked.scheduler._state.dirty
    assert not checked.scheduler._state.freed


def test_a_first_task_of_a_tenant_makes_its_class_worth_a_look():
    checked = crowded()
    checked.submit("b")
    assert len(checked.scheduler._state.dirty) == 1


def test_an_end_makes_its_worker_worth_a_look():
    checked = crowded()
    checked.end(1)
    assert [worker.worker_id for worker in checked.scheduler._state.freed] == ["w"]


def test_a_blocked_class_is_woken_by_its_limit_alone():
    checked = Checked()
    checked.limit("db", "", "", 1)
    checked.worker("w", WorkerOffer(threads_max=9))
    (first,) = checked.submit(resources=[("db", 1)])
    checked.submit(count=1)
    checked.dispatch()
    checked.submit(resources=[("db", 1)])
    checked.dispatch()
    assert len(checked.scheduler._state.active) == 0
    checked.end(2)
    checked.dispatch()
    assert len(checked.scheduler._state.active) == 0
    checked.end(first)
    assert len(checked.scheduler._state.dirty) == 1


def test_a_scheduler_that_is_dropped_is_freed_with_all_that_waits_and_runs():
    scheduler = Scheduler()
    checked = Checked()
    checked.scheduler = scheduler
    checked.worker("w", WorkerOffer(threads_max=2))
    for tenant in "abc":
        checked.submit(tenant, count=5, key="k")
    checked.dispatch()
    kept = [weakref.ref(scheduler)]
    queues = sum(type(thing).__name__ == "TaskQueue" for thing in gc.get_objects())
    assert queues >= 3
    del scheduler
    checked.scheduler = Scheduler()
    gc.collect()
    assert kept[0]() is None
    assert sum(type(thing).__name__ == "TaskQueue" for thing in gc.get_objects()) <= queues - 3

"""What a step costs does not depend on how much waits: counted in calls, so that no clock is needed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.scheduling.demand import Demand
from broker.machine.scheduling.scheduler import Scheduler

NOW_MS = 1_700_000_000_000


def calls(step: Callable[[], object]) -> int:
    """Count the calls of Python and built-in functions that a step makes."""
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        step()
    finally:
        sys.setprofile(None)
    return count


class Crowd:
    """A scheduler with one worker, and with so many tasks and tenants that wait."""

    def __init__(self, threads: int = 4, **offer: Any) -> None:
        self.scheduler = Scheduler()
        self.scheduler.set_worker("w", WorkerOffer(threads_max=threads, **offer))
        self.next_id = 0

    def submit(self, tenant: str, count: int = 1, *, type: str = "t", resources=(), key: str = "") -> int:  # noqa: A002
        for _ in range(count):
            self.next_id += 1
            self.scheduler.enqueue(Demand(self.next_id, tenant, type, 1, 0, tuple(resources), key, NOW_MS))
        return self.next_id

    def dispatch(self) -> list[int]:
        done = []
        for task_id, worker_id in self.scheduler.next_assignments(NOW_MS):
            self.scheduler.start(task_id, worker_id, NOW_MS)
            done.append(task_id)
        return done


def capped(count: int) -> Crowd:
    crowd = Crowd()
    crowd.scheduler.set_tenant("capped", TenantPolicy(running_max=1))
    crowd.submit("capped", count)
    crowd.dispatch()
    return crowd


@pytest.mark.parametrize("count", [100, 20_000])
def test_tasks_of_a_capped_tenant_in_front_cost_the_others_nothing(count):
    crowd = capped(count)
    task_id = crowd.submit("other")
    done = []
    assert calls(lambda: done.extend(crowd.dispatch())) < 100
    assert done == [task_id]


@pytest.mark.parametrize("count", [100, 20_000])
def test_a_change_of_a_tenant_costs_its_classes_and_not_its_tasks(count):
    crowd = capped(count)
    scheduler = crowd.scheduler
    for change in (
        lambda: scheduler.set_tenant("capped", TenantPolicy(weight=5.0, running_max=2, running_max_by_type={"t": 1})),
        lambda: scheduler.set_hold("capped", "", "", is_paused=True),
        lambda: scheduler.set_hold("capped", "", "", is_paused=False),
        lambda: scheduler.set_limit("db", "capped", "", 4),
        lambda: scheduler.set_tenant("capped", TenantPolicy(running_max=3)),
    ):
        assert calls(change) < 60
        assert calls(crowd.dispatch) < 200


@pytest.mark.parametrize("count", [100, 20_000])
def test_a_hold_on_a_key_costs_the_same_however_many_tasks_have_it(count):
    crowd = Crowd(threads=1)
    crowd.submit("a", 1)
    crowd.dispatch()
    crowd.submit("a", count, key="k")
    crowd.submit("a", 1)
    scheduler = crowd.scheduler
    assert calls(lambda: scheduler.set_hold("a", "", "k", is_paused=True)) < 30
    scheduler.end(1, NOW_MS)
    done = []
    assert calls(lambda: done.extend(crowd.dispatch())) < 150
    assert done == [crowd.next_id]
    assert calls(lambda: scheduler.set_hold("a", "", "k", is_paused=False)) < 60
    scheduler.end(crowd.next_id, NOW_MS)
    assert calls(lambda: done.extend(crowd.dispatch())) < 150
    assert done[1:] == [2]


@pytest.mark.parametrize("tenants", [10, 5_000])
def test_a_dispatch_costs_the_same_however_many_tenants_wait(tenants):
    crowd = Crowd(threads=1)
    for n in range(tenants):
        crowd.submit(f"t{n}", 2)
    (task_id,) = crowd.dispatch()
    crowd.scheduler.end(task_id, NOW_MS)
    assert calls(crowd.dispatch) < 150


@pytest.mark.parametrize("tenants", [10, 2_000])
def test_tasks_that_wait_for_a_resource_cost_nothing_while_it_is_used_up(tenants):
    crowd = Crowd()
    crowd.scheduler.set_limit("db", "", "", 0)
    for n in range(tenants):
        crowd.submit(f"t{n}", 3, resources=[("db", 1)])
    crowd.dispatch()
    crowd.submit("other")
    assert calls(crowd.dispatch) < 100
    crowd.scheduler.set_limit("db", "", "", 1)
    done = []
    assert calls(lambda: done.extend(crowd.dispatch())) < 200
    assert len(done) == 1


@pytest.mark.parametrize("workers", [2, 1_000])
def test_a_dispatch_costs_the_same_however_many_workers_are_full_or_idle(workers):
    crowd = Crowd(threads=1)
    for n in range(workers):
        crowd.scheduler.set_worker(f"full-{n}", WorkerOffer(threads_max=1))
    crowd.submit("a", workers + 1)
    assert len(crowd.dispatch()) == workers + 1
    for n in range(workers):
        crowd.scheduler.set_worker(f"idle-{n}", WorkerOffer(threads_max=1))
    crowd.submit("b")
    done = []
    assert calls(lambda: done.extend(crowd.dispatch())) < 100
    assert len(done) == 1


@pytest.mark.parametrize("count", [1_000, 20_000])
def test_a_replica_that_only_follows_keeps_nothing_of_what_is_gone(count):
    crowd = Crowd()
    for task_id in range(1, count + 1):
        crowd.submit(f"t{task_id % 7}")
        if task_id > 20:
            crowd.scheduler.start(task_id - 20, "w", NOW_MS)
            crowd.scheduler.end(task_id - 20, NOW_MS + task_id)
    state = crowd.scheduler._state
    assert sum(queue.size for tenant in state.tenants.values() for queue in tenant.queues.values()) <= 20 + 64
    assert sum(len(task_class.heap) + len(task_class.room) for task_class in state.classes.values()) < 300
    crowd.scheduler.validate()

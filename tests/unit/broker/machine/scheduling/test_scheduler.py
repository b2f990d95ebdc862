"""The scheduler as its caller sees it: when there is work, that it is deterministic, that it can be rebuilt."""

from __future__ import annotations

import pytest

from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.scheduling.demand import Demand
from broker.machine.scheduling.scheduler import Scheduler
from tests.unit.broker.machine.scheduling.brute_force import Checked


@pytest.fixture
def checked():
    made = Checked()
    made.worker("w", WorkerOffer(threads_max=2))
    return made


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

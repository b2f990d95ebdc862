"""Every invariant of a state, recomputed the slow way."""

from __future__ import annotations

from collections import Counter

from broker.machine.scheduling.model import ID_MASK, TaskClass, TaskQueue, WorkerState
from broker.machine.scheduling.scheduler_state import SchedulerState


def validate(state: SchedulerState) -> None:
    """Check a state.

    Raises:
        AssertionError: An invariant does not hold.

    """
    assert not state.waiting.keys() & state.running.keys(), "a task waits and runs"
    _check_waiting(state)
    _check_limits(state)
    _check_workers(state)
    _check_accounts(state)
    _check_blocked(state)
    _check_feasible(state)


def _queues(state: SchedulerState) -> list[TaskQueue]:
    return [queue for tenant in state.tenants.values() for queue in tenant.queues.values()]


def _check_waiting(state: SchedulerState) -> None:
    by_queue: dict[TaskQueue, set[int]] = {}
    for task_id, task in state.waiting.items():
        assert task.order & ID_MASK == task_id, f"order of task {task_id}"
        by_queue.setdefault(task.queue, set()).add(task.order)
    queues = _queues(state)
    assert by_queue.keys() <= set(queues), "tasks wait in a queue that is gone"
    for queue in queues:
        orders = by_queue.get(queue, set())
        assert queue.count == len(orders), f"{queue.count} tasks counted, {len(orders)} wait"
        assert orders <= set(queue.orders()), "a task is in no heap of its queue"
        keyed = {key: heap for key, heap in queue.keyed.items() if orders & set(heap)}
        assert keyed.keys() <= {key for _, key in queue.heads} | queue.blocked_keys.keys(), "a key is forgotten"
    queue_count = Counter(queue.task_class for queue in queues)
    waiting: Counter[TaskClass] = Counter()
    for queue in queues:
        waiting[queue.task_class] += queue.count
    running = Counter(task.queue.task_class for task in state.running.values())
    for task_class in state.classes.values():
        assert task_class.queue_count == queue_count[task_class], "queues of a class"
        assert task_class.waiting == waiting[task_class], "waiting tasks of a class"
        assert task_class.running == running[task_class], "running tasks of a class"
    assert state.queue_count == len(queues), "queues"


def _check_limits(state: SchedulerState) -> None:
    used: Counter[int] = Counter()
    by_type: Counter[str] = Counter()
    for running in state.running.values():
        by_type[running.queue.task_class.type.name] += 1
        for limit, amount in (*running.queue.uses, *running.queue.task_class.uses):
            used[id(limit)] += amount
    limits = list(state.limits.values())
    for tenant in state.tenants.values():
        limits += [tenant.cap, tenant.hold, *tenant.type_caps.values(), *tenant.type_holds.values()]
    limits += [state.hold, *(task_type.hold for task_type in state.types.values())]
    for limit in limits:
        assert limit.used == used[id(limit)], (
            f"{limit.kind} {limit.resource} {limit.tenant} {limit.type}: {limit.used} counted"
        )
    for name, task_type in state.types.items():
        assert task_type.running == by_type[name], f"type {name}"


def _check_workers(state: SchedulerState) -> None:
    by_worker: dict[WorkerState, list[TaskQueue]] = {worker: [] for worker in state.workers.values()}
    for running in state.running.values():
        by_worker[running.worker].append(running.queue)
    for worker, queues in by_worker.items():
        assert worker.running == len(queues), f"{worker.worker_id}: {worker.running} counted, {len(queues)} run"
        assert worker.by_type == Counter(queue.task_class.type.name for queue in queues), worker.worker_id
        amounts: Counter[str] = Counter()
        for queue in queues:
            amounts.update(dict(queue.task_class.resources))
        assert worker.amounts == amounts, worker.worker_id
        if worker.by_tenant is not None:
            assert worker.by_tenant == Counter((queue.tenant.name, queue.task_class.type.name) for queue in queues)
    known = set(by_worker)
    for task_class in state.classes.values():
        for tenant, benched in task_class.benched.items():
            assert benched, "an empty bench is kept"
            assert benched.keys() <= known, "a worker that is gone is benched"
            assert all(worker.may_run(tenant) for worker in benched), f"benched for {tenant}, strange to it"


def _check_accounts(state: SchedulerState) -> None:
    shares = {id(queue.share): queue.share for queue in _queues(state)}
    running: Counter[int] = Counter()
    expected: Counter[int] = Counter()
    started: Counter[int] = Counter()
    for task in state.running.values():
        whose = id(task.queue.share)
        running[whose] += 1
        expected[whose] += task.expected_ms
        started[whose] += task.since_ms
    for whose, share in shares.items():
        assert share.running == running[whose], share.tenant
        assert share.expected_ms == expected[whose], share.tenant
        assert share.started_ms == started[whose], share.tenant
        assert share.waiting == sum(queue.count for queue in share.queues), share.tenant
        assert share.ready == sum(queue.entry is not None for queue in share.queues), share.tenant


def _check_blocked(state: SchedulerState) -> None:
    queued = {id(entry) for task_class in state.classes.values() for entry in task_class.heap}
    for queue in _queues(state):
        if queue.blocked_on is not None:
            assert queue.entry is None, "a blocked queue is queued"
            assert queue in queue.blocked_on.blocked, "a queue is blocked where nobody finds it"
        if queue.entry is not None:
            assert id(queue.entry) in queued, "an entry is lost"
    for task_class in state.classes.values():
        if task_class.blocked_on is not None:
            assert task_class not in state.active, "a blocked class is active"
            assert task_class in task_class.blocked_on.blocked, "a class is blocked where nobody finds it"
        elif any(entry[4].entry is entry for entry in task_class.heap):
            assert task_class in state.active, "a class with queued queues is not active"
    assert state.dirty.keys() <= state.active.keys(), "a class is dirty and not active"


def _check_feasible(state: SchedulerState) -> None:
    """Check that every feasible pair is noted; see `broker.machine.scheduling.scheduler_state`."""
    for queue in _queues(state):
        task_class = queue.task_class
        if (
            queue.head(state.waiting) is None
            or any(not limit.admits(amount) for limit, amount in (*queue.limits, *task_class.limits))
            or task_class in state.dirty
        ):
            continue
        for worker in state.workers.values():
            fit = worker.fit(task_class)
            if fit is None or worker in state.freed:
                continue
            task_type = task_class.type.name
            tenant = queue.tenant.name
            is_feasible = worker.may_run(tenant) and worker.has_room(fit, task_type)
            is_feasible = is_feasible and worker.has_share(fit, tenant, task_type)
            assert not is_feasible, f"{tenant} could run on {worker.worker_id}"

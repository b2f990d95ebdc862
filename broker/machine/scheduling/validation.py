"""Every invariant of a state, recomputed the slow way."""

from __future__ import annotations

from collections import Counter

from broker.machine.scheduling.model import ID_MASK, Line, TaskClass, WorkerState
from broker.machine.scheduling.scheduler_state import SchedulerState


def validate(state: SchedulerState) -> None:
    """Check a state.

    Raises:
        AssertionError: An invariant does not hold.

    """
    assert not state.waiting.keys() & state.running.keys(), "a task waits and runs"
    _check_waiting(state)
    _check_gates(state)
    _check_workers(state)
    _check_accounts(state)
    _check_parked(state)
    _check_feasible(state)


def _lines(state: SchedulerState) -> list[Line]:
    return [line for tenant in state.tenants.values() for line in tenant.lines.values()]


def _check_waiting(state: SchedulerState) -> None:
    by_line: dict[Line, set[int]] = {}
    for task_id, task in state.waiting.items():
        assert task.order & ID_MASK == task_id, f"order of task {task_id}"
        by_line.setdefault(task.line, set()).add(task.order)
    lines = _lines(state)
    assert by_line.keys() <= set(lines), "tasks wait in a line that is gone"
    for line in lines:
        orders = by_line.get(line, set())
        assert line.count == len(orders), f"{line.count} tasks counted, {len(orders)} wait"
        assert orders <= set(line.orders()), "a task is in no queue of its line"
        keyed = {key: queue for key, queue in line.keyed.items() if orders & set(queue)}
        assert keyed.keys() <= {key for _, key in line.heads} | line.aside.keys(), "a key is forgotten"
    line_count = Counter(line.task_class for line in lines)
    waiting: Counter[TaskClass] = Counter()
    for line in lines:
        waiting[line.task_class] += line.count
    running = Counter(task.line.task_class for task in state.running.values())
    for task_class in state.classes.values():
        assert task_class.line_count == line_count[task_class], "lines of a class"
        assert task_class.waiting == waiting[task_class], "waiting tasks of a class"
        assert task_class.running == running[task_class], "running tasks of a class"
    assert state.line_count == len(lines), "lines"


def _check_gates(state: SchedulerState) -> None:
    used: Counter[int] = Counter()
    by_type: Counter[str] = Counter()
    for running in state.running.values():
        by_type[running.line.task_class.type.name] += 1
        for gate, amount in (*running.line.uses, *running.line.task_class.uses):
            used[id(gate)] += amount
    gates = list(state.gates.values())
    for tenant in state.tenants.values():
        gates += [tenant.cap, tenant.hold, *tenant.type_caps.values(), *tenant.type_holds.values()]
    gates += [state.hold, *(task_type.hold for task_type in state.types.values())]
    for gate in gates:
        assert gate.used == used[id(gate)], (
            f"{gate.kind} {gate.resource} {gate.tenant} {gate.type}: {gate.used} counted"
        )
    for name, task_type in state.types.items():
        assert task_type.running == by_type[name], f"type {name}"


def _check_workers(state: SchedulerState) -> None:
    by_worker: dict[WorkerState, list[Line]] = {worker: [] for worker in state.workers.values()}
    for running in state.running.values():
        by_worker[running.worker].append(running.line)
    for worker, lines in by_worker.items():
        assert worker.running == len(lines), f"{worker.worker_id}: {worker.running} counted, {len(lines)} run"
        assert worker.by_type == Counter(line.task_class.type.name for line in lines), worker.worker_id
        amounts: Counter[str] = Counter()
        for line in lines:
            amounts.update(dict(line.task_class.resources))
        assert worker.amounts == amounts, worker.worker_id
        if worker.by_tenant is not None:
            assert worker.by_tenant == Counter((line.tenant.name, line.task_class.type.name) for line in lines)
    known = set(by_worker)
    for task_class in state.classes.values():
        for tenant, benched in task_class.benched.items():
            assert benched, "an empty bench is kept"
            assert benched.keys() <= known, "a worker that is gone is benched"
            assert all(worker.may_run(tenant) for worker in benched), f"benched for {tenant}, strange to it"


def _check_accounts(state: SchedulerState) -> None:
    accounts = {id(line.account): line.account for line in _lines(state)}
    running: Counter[int] = Counter()
    expected: Counter[int] = Counter()
    started: Counter[int] = Counter()
    for task in state.running.values():
        whose = id(task.line.account)
        running[whose] += 1
        expected[whose] += task.expected_ms
        started[whose] += task.since_ms
    for whose, account in accounts.items():
        assert account.running == running[whose], account.tenant
        assert account.expected_ms == expected[whose], account.tenant
        assert account.started_ms == started[whose], account.tenant
        assert account.waiting == sum(line.count for line in account.lines), account.tenant
        assert account.queued == sum(line.entry is not None for line in account.lines), account.tenant


def _check_parked(state: SchedulerState) -> None:
    queued = {id(entry) for task_class in state.classes.values() for entry in task_class.heap}
    for line in _lines(state):
        if line.parked_on is not None:
            assert line.entry is None, "a parked line is queued"
            assert line in line.parked_on.parked, "a line is parked where nobody finds it"
        if line.entry is not None:
            assert id(line.entry) in queued, "an entry is lost"
    for task_class in state.classes.values():
        if task_class.parked_on is not None:
            assert task_class not in state.active, "a parked class is active"
            assert task_class in task_class.parked_on.parked, "a class is parked where nobody finds it"
        elif any(entry[4].entry is entry for entry in task_class.heap):
            assert task_class in state.active, "a class with queued lines is not active"
    assert state.dirty.keys() <= state.active.keys(), "a class is dirty and not active"


def _check_feasible(state: SchedulerState) -> None:
    """Check that every feasible pair is noted; see `broker.machine.scheduling.scheduler_state`."""
    for line in _lines(state):
        task_class = line.task_class
        if (
            line.head(state.waiting) is None
            or any(not gate.admits(amount) for gate, amount in (*line.gates, *task_class.gates))
            or task_class in state.dirty
        ):
            continue
        for worker in state.workers.values():
            seat = worker.seat(task_class)
            if seat is None or worker in state.freed:
                continue
            task_type = task_class.type.name
            tenant = line.tenant.name
            is_feasible = worker.may_run(tenant) and worker.has_room(seat, task_type)
            is_feasible = is_feasible and worker.has_share(seat, tenant, task_type)
            assert not is_feasible, f"{tenant} could run on {worker.worker_id}"

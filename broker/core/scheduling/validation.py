"""Every invariant of a board, recomputed the slow way."""

from __future__ import annotations

from collections import Counter

from broker.core.scheduling.board import Board
from broker.core.scheduling.classes import TaskClass
from broker.core.scheduling.lines import ID_MASK, Line
from broker.core.scheduling.workers import Worker

__all__ = ["validate"]


def validate(board: Board) -> None:
    """Check a board.

    Raises:
        AssertionError: An invariant does not hold.

    """
    assert not board.waiting.keys() & board.running.keys(), "a task waits and runs"
    _check_waiting(board)
    _check_gates(board)
    _check_workers(board)
    _check_accounts(board)
    _check_parked(board)
    _check_feasible(board)


def _lines(board: Board) -> list[Line]:
    return [line for tenant in board.tenants.values() for line in tenant.lines.values()]


def _check_waiting(board: Board) -> None:
    by_line: dict[Line, set[int]] = {}
    for task_id, task in board.waiting.items():
        assert task.order & ID_MASK == task_id, f"order of task {task_id}"
        by_line.setdefault(task.line, set()).add(task.order)
    lines = _lines(board)
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
    running = Counter(task.line.task_class for task in board.running.values())
    for task_class in board.classes.values():
        assert task_class.line_count == line_count[task_class], "lines of a class"
        assert task_class.waiting == waiting[task_class], "waiting tasks of a class"
        assert task_class.running == running[task_class], "running tasks of a class"
    assert board.line_count == len(lines), "lines"


def _check_gates(board: Board) -> None:
    used: Counter[int] = Counter()
    by_type: Counter[str] = Counter()
    for running in board.running.values():
        by_type[running.line.task_class.type.name] += 1
        for gate, amount in (*running.line.uses, *running.line.task_class.uses):
            used[id(gate)] += amount
    gates = list(board.gates.values())
    for tenant in board.tenants.values():
        gates += [tenant.cap, tenant.hold, *tenant.type_caps.values(), *tenant.type_holds.values()]
    gates += [board.hold, *(task_type.hold for task_type in board.types.values())]
    for gate in gates:
        assert gate.used == used[id(gate)], (
            f"{gate.kind} {gate.resource} {gate.tenant} {gate.type}: {gate.used} counted"
        )
    for name, task_type in board.types.items():
        assert task_type.running == by_type[name], f"type {name}"


def _check_workers(board: Board) -> None:
    by_worker: dict[Worker, list[Line]] = {worker: [] for worker in board.workers.values()}
    for running in board.running.values():
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


def _check_accounts(board: Board) -> None:
    accounts = {id(line.account): line.account for line in _lines(board)}
    running: Counter[int] = Counter()
    expected: Counter[int] = Counter()
    started: Counter[int] = Counter()
    for task in board.running.values():
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


def _check_parked(board: Board) -> None:
    queued = {id(entry) for task_class in board.classes.values() for entry in task_class.heap}
    for line in _lines(board):
        if line.parked_on is not None:
            assert line.entry is None, "a parked line is queued"
            assert line in line.parked_on.parked, "a line is parked where nobody finds it"
        if line.entry is not None:
            assert id(line.entry) in queued, "an entry is lost"
    for task_class in board.classes.values():
        if task_class.parked_on is not None:
            assert task_class not in board.active, "a parked class is active"
            assert task_class in task_class.parked_on.parked, "a class is parked where nobody finds it"
        elif any(entry[4].entry is entry for entry in task_class.heap):
            assert task_class in board.active, "a class with queued lines is not active"
    assert board.dirty.keys() <= board.active.keys(), "a class is dirty and not active"


def _check_feasible(board: Board) -> None:
    """Check that every feasible pair is noted; see `broker.core.scheduling.board`."""
    for line in _lines(board):
        task_class = line.task_class
        if (
            line.head(board.waiting) is None
            or any(not gate.admits(amount) for gate, amount in (*line.gates, *task_class.gates))
            or task_class in board.dirty
        ):
            continue
        for worker in board.workers.values():
            seat = worker.seat(task_class)
            if seat is None or worker in board.freed:
                continue
            task_type = task_class.type.name
            is_feasible = worker.has_room(seat, task_type) and worker.has_share(seat, line.tenant.name, task_type)
            assert not is_feasible, f"{line.tenant.name} could run on {worker.worker_id}"

"""What records of tasks, slots and transactions do to the index."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, Any

import msgspec

from broker.core.outbox import OutboxKind
from broker.core.resources import resources_of
from broker.core.scheduling import Demand
from broker.core.statuses import ENDED, Outcome, TaskStatus
from broker.core.tables import PRIORITY_OF_TENANT, Table
from broker.core.tasks import Task, TaskFlag
from broker.core.timers import PlanKind
from rsm_spark.core.machine import RowChange

if TYPE_CHECKING:
    from broker.core.state import BrokerState

__all__ = [
    "flags_of",
    "plan_task",
    "progress_removed",
    "progress_reported",
    "settle_residue",
    "slot_released",
    "slot_taken",
    "state_removed",
    "task_assigned",
    "task_cancel_asked",
    "task_changed",
    "task_ended",
    "task_removed",
    "task_requeued",
    "task_submitted",
    "transaction_begun",
    "transaction_committed",
    "transaction_given_up",
    "transaction_rolled_back",
]

_LOST = frozenset({Outcome.STALLED, Outcome.OUTCOME_UNKNOWN, Outcome.WORKER_DIED})
_ID = msgspec.msgpack.Decoder(tuple[int])
_LEFT = TaskFlag.SLOT | TaskFlag.PROGRESS


def flags_of(at_most_once: bool, group: int, priority: int, code: str, *, is_watched: bool) -> int:
    """Return the flags of a task as it was submitted."""
    return (
        (TaskFlag.AT_MOST_ONCE if at_most_once else 0)
        | (0 if group else TaskFlag.GROUP)
        | (TaskFlag.PRIORITY if priority == PRIORITY_OF_TENANT else 0)
        | (TaskFlag.CODE if code else 0)
        | (TaskFlag.WATCHED if is_watched else 0)
    )


def task_submitted(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Add a task: it waits, for a time perhaps, or is prepared."""
    (
        task_id, tenant, task_type, _, created_ms, at_most_once, _, priority, group, resources, _, key, start_ms,
        deadline_ms, timeout_ms, heartbeat_ms, code, _, _, transaction,
    ) = fields  # fmt: skip
    index = state.index
    flags = flags_of(at_most_once, group, priority, code, is_watched=bool(timeout_ms or heartbeat_ms))
    # Tasks keep few objects of their own: the name of a type, and a time that was the last one, are shared.
    task = Task(task_id, index.tenant(tenant), intern(task_type), TaskStatus.WAITING, flags)
    if created_ms != state.logged_ms:
        state.logged_ms = created_ms
    task.at_ms = created_ms = state.logged_ms
    task.deadline_ms = deadline_ms
    if code:
        state.code_use[code] = state.code_use.get(code, 0) + 1
    if transaction:
        task.transaction = transaction
        index.by_transaction[transaction][task_id] = task
        task.status = TaskStatus.PREPARED
    elif start_ms > created_ms:
        task.status, task.at_ms = TaskStatus.DELAYED, start_ms
        plan_task(state, task)
    else:
        if flags & (TaskFlag.GROUP | TaskFlag.PRIORITY):
            policy = state.policy(tenant)
            group = group or policy.group
            priority = policy.priority if priority == PRIORITY_OF_TENANT else priority
        state.scheduler.enqueue(
            Demand(task_id, tenant, task_type, group, priority, resources_of(resources), key, created_ms)
        )
        if deadline_ms:
            plan_task(state, task)
    index.add(task)


def plan_task(state: BrokerState, task: Task) -> None:
    """Have a task looked at when something may be due: at the earliest of its times."""
    status, at_ms = task.status, task.deadline_ms
    if status == TaskStatus.DELAYED:
        at_ms = min(task.at_ms, at_ms or task.at_ms)
    elif status == TaskStatus.RUNNING:
        if task.flags & TaskFlag.CANCEL:
            at_ms = 0
        if task.flags & TaskFlag.WATCHED:
            row = state.task_row(task.task_id)
            lengths = [row.heartbeat_ms] if row.heartbeat_ms else []
            if row.timeout_ms and not task.flags & TaskFlag.CANCEL:
                lengths.append(row.timeout_ms + state.rules.timeout_grace_ms)
            if lengths:
                at_ms = min(task.at_ms + min(lengths), at_ms or task.at_ms + min(lengths))
    elif status != TaskStatus.WAITING:
        at_ms = 0
    if at_ms:
        state.timers.plan(PlanKind.TASK, task.task_id, at_ms)
    else:
        state.timers.forget(PlanKind.TASK, task.task_id)


def task_changed(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Change a task that has not ended."""
    task = state.index.tasks[fields[0]]
    own = TaskFlag.GROUP | TaskFlag.PRIORITY
    now = flags_of(fields[5], fields[8], fields[7], fields[16], is_watched=bool(fields[14] or fields[15]))
    task.flags = (task.flags & ~own) | (now & own)
    task.deadline_ms = fields[13]
    if task.status == TaskStatus.WAITING:
        state.scheduler.change(state.demand(task))
    plan_task(state, task)


def task_removed(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Forget a task that has ended, or was prepared; what became of it goes next."""
    task = state.index.tasks[fields[0]]
    assert task.status in ENDED or task.status == TaskStatus.PREPARED, f"task {task.task_id} is not over"
    if task.status == TaskStatus.PREPARED:
        del state.index.by_transaction[task.transaction][task.task_id]
        if task.flags & TaskFlag.CODE:
            _release_code(state, change)
    state.index.remove(task)
    if task.flags & (TaskFlag.STATE | TaskFlag.PROGRESS):
        state.index.residue[task.task_id] = None
    else:
        state.index.residue.pop(task.task_id, None)


def settle_residue(state: BrokerState, task_id: int) -> None:
    """Note whether rows of a task are left over."""
    task = state.index.tasks.get(task_id)
    if task is not None:
        is_left = task.status in ENDED and bool(task.flags & _LEFT)
    else:
        is_left = state.has_row(Table.STATES, task_id) or state.has_row(Table.PROGRESS, task_id)
    if is_left:
        state.index.residue[task_id] = None
    else:
        state.index.residue.pop(task_id, None)


def _release_code(state: BrokerState, change: RowChange | None, task: Task | None = None) -> None:
    if task is not None:
        code = state.task_row(task.task_id).code
    else:
        assert change is not None
        assert change.old is not None
        code = state.decode_task(change.old).code
    left = state.code_use[code] - 1
    if left:
        state.code_use[code] = left
    else:
        del state.code_use[code]
        state.plan_code(code)


def _leave(state: BrokerState, task: Task, now_ms: int) -> None:
    """Take a task from where it waits or runs."""
    status = task.status
    if status == TaskStatus.RUNNING:
        state.index.stop(task)
        state.scheduler.end(task.task_id, now_ms)
    elif status == TaskStatus.WAITING:
        state.scheduler.withdraw(task.task_id)


def task_assigned(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Have a waiting task run; the revision is the id of its assignment."""
    task_id, worker_id, now_ms = fields[0], fields[3], fields[5]
    task = state.index.tasks[task_id]
    assert task.status == TaskStatus.WAITING, f"task {task_id} does not wait"
    task.attempts = fields[2]
    task.assignment_id = revision
    task.at_ms = state.logged_ms = now_ms
    task.flags = (task.flags | TaskFlag.STATE) & ~TaskFlag.CANCEL
    state.index.move(task, TaskStatus.RUNNING)
    state.index.run(task, worker_id)
    state.scheduler.start(task_id, worker_id, now_ms)
    if task.deadline_ms or task.flags & TaskFlag.WATCHED:
        plan_task(state, task)
    if state.outbox.is_open:
        state.outbox.add(revision, OutboxKind.ASSIGN, worker_id, task_id, revision)


def task_ended(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """End a task."""
    task_id, status, _, worker_id, assignment_id, _, now_ms, _, _, outcome, _, _ = fields
    task = state.index.tasks[task_id]
    assert task.status not in ENDED, f"task {task_id} has ended before"
    if task.worker_id and outcome in _LOST:
        state.outbox.add(revision, OutboxKind.CANCEL, worker_id, task_id, assignment_id)
    _leave(state, task, now_ms)
    task.at_ms = state.logged_ms = now_ms
    task.attempts = fields[2]
    task.flags = (task.flags | TaskFlag.STATE) & ~TaskFlag.CANCEL
    state.index.move(task, status)
    state.timers.forget(PlanKind.TASK, task_id)
    state.ended.add(task)
    if task.flags & TaskFlag.CODE:
        _release_code(state, None, task)
    if task.flags & _LEFT:
        state.index.residue[task_id] = None


def task_requeued(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Have a task wait again, or for a time: after a run, a delay, or as a dead letter replayed."""
    task_id, status, attempts, _, _, _, ended_ms, due_ms, _, outcome, _, _ = fields
    task = state.index.tasks[task_id]
    was_over = task.status in ENDED
    if task.worker_id and outcome in _LOST:
        state.outbox.add(revision, OutboxKind.CANCEL, task.worker_id, task_id, task.assignment_id)
    _leave(state, task, ended_ms)
    task.attempts = attempts
    task.assignment_id = 0
    state.logged_ms = ended_ms
    task.at_ms = due_ms or ended_ms
    task.flags = (task.flags | TaskFlag.STATE) & ~TaskFlag.CANCEL
    state.index.move(task, status)
    if was_over and task.flags & TaskFlag.CODE:
        code = state.task_row(task_id).code
        state.code_use[code] = state.code_use.get(code, 0) + 1
    if status == TaskStatus.WAITING:
        state.scheduler.enqueue(state.demand(task))
    plan_task(state, task)


def task_cancel_asked(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Note that the worker of a running task is to end its run."""
    task = state.index.tasks[fields[0]]
    task.flags |= TaskFlag.CANCEL
    state.logged_ms = fields[8]
    plan_task(state, task)
    state.outbox.add(revision, OutboxKind.CANCEL, task.worker_id, task.task_id, task.assignment_id)


def state_removed(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Forget what became of a removed task too."""
    settle_residue(state, fields[0])


def progress_reported(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Note that a run said something of itself."""
    state.index.tasks[fields[0]].flags |= TaskFlag.PROGRESS
    state.logged_ms = fields[2]


def progress_removed(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Forget what a run said of itself."""
    task = state.index.tasks.get(fields[0])
    if task is not None:
        task.flags &= ~TaskFlag.PROGRESS
    settle_residue(state, fields[0])


def slot_taken(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Give a task its slot."""
    if change.old is not None:  # Left over from a task that has ended.
        _lose_slot(state, _ID.decode(change.old)[0])
    state.index.tasks[fields[2]].flags |= TaskFlag.SLOT


def slot_released(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Take a task's slot from it."""
    if change.old is not None:
        _lose_slot(state, _ID.decode(change.old)[0])


def _lose_slot(state: BrokerState, task_id: int) -> None:
    task = state.index.tasks.get(task_id)
    if task is not None:
        task.flags &= ~TaskFlag.SLOT
        settle_residue(state, task_id)


# ---- transactions


def transaction_begun(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Let tasks be prepared."""
    transaction, _, created_ms, expires_ms = fields
    state.index.by_transaction[transaction] = {}
    state.timers.plan(PlanKind.TRANSACTION, transaction, expires_ms)
    state.logged_ms = created_ms


def transaction_committed(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Have all that was prepared wait, in order."""
    transaction, now_ms = fields
    state.logged_ms = now_ms
    state.timers.forget(PlanKind.TRANSACTION, transaction)
    for task in state.index.by_transaction.pop(transaction).values():
        row = state.task_row(task.task_id)
        if row.start_ms > row.created_ms:
            task.at_ms = row.start_ms
            state.index.move(task, TaskStatus.DELAYED)
        else:
            task.at_ms = now_ms
            state.index.move(task, TaskStatus.WAITING)
            state.scheduler.enqueue(state.demand(task, row))
        plan_task(state, task)


def transaction_given_up(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Have the tasks of a transaction that is over go, from now on."""
    state.timers.plan(PlanKind.TRANSACTION, fields[0], 0)


def transaction_rolled_back(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Forget a transaction of which nothing is left."""
    assert not state.index.by_transaction.pop(fields[0])
    state.timers.forget(PlanKind.TRANSACTION, fields[0])

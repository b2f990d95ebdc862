"""Fold of the records of tasks, slots and transactions: see `broker.machine.folding` for the arguments."""

from __future__ import annotations

from sys import intern
from typing import Any, TypeAlias

import msgspec

from broker.machine.index.tasks import TaskFlag, TaskState
from broker.machine.index.timers import PlanKind
from broker.machine.outbox import OutboxKind
from broker.machine.payload_release import note_spent
from broker.machine.resources import resources_of
from broker.machine.rows import ProgressRow, SlotRow, StateRow, TaskRow, TransactionRow
from broker.machine.scheduling.demand import Demand
from broker.machine.state import BrokerState
from broker.machine.statuses import ENDED, Outcome, TaskStatus
from broker.machine.tables import PRIORITY_OF_TENANT, Table
from rsm_spark.core.machine import RowChange

Key: TypeAlias = tuple[Any, ...]
"""Fields of a record that name its row."""

_LOST = frozenset({Outcome.STALLED, Outcome.OUTCOME_UNKNOWN, Outcome.WORKER_DIED})
_SLOT_ROW = msgspec.msgpack.Decoder(SlotRow)
_SLIGHT_BYTES = 256
"""Of what became of a task: an end without result or error to speak of makes nobody go beyond a quota."""
_LEFT = TaskFlag.SLOT | TaskFlag.PROGRESS


def flags_of(row: TaskRow[Any]) -> int:
    """Return the flags of a task as it was submitted."""
    return (
        (TaskFlag.AT_MOST_ONCE if row.at_most_once else 0)
        | (0 if row.group else TaskFlag.GROUP)
        | (TaskFlag.PRIORITY if row.priority == PRIORITY_OF_TENANT else 0)
        | (TaskFlag.CODE if row.code else 0)
        | (TaskFlag.WATCHED if row.timeout_ms or row.heartbeat_ms else 0)
    )


def task_submitted(state: BrokerState, key: Key, row: TaskRow[bytes], change: RowChange, revision: int) -> None:
    """Add a task: it waits, for a time perhaps, or is prepared."""
    (task_id,) = key
    index, created_ms, start_ms, code, transaction = (
        state.tasks,
        row.created_ms,
        row.start_ms,
        row.code,
        row.transaction,
    )
    tenant, task_type, group, priority = row.tenant, row.type, row.group, row.priority
    flags = flags_of(row)
    # Tasks keep few objects of their own: the name of a type, and a time that was the last one, are shared.
    task = TaskState(task_id, index.tenant(tenant), intern(task_type), TaskStatus.WAITING, flags)
    if created_ms != state.logged_ms:
        state.logged_ms = created_ms
    task.at_ms = created_ms = state.logged_ms
    task.deadline_ms = row.deadline_ms
    if code:
        state.codes.need(code)
    if transaction:
        task.transaction = transaction
        task.status = TaskStatus.PREPARED
    elif start_ms > created_ms:
        task.status, task.at_ms = TaskStatus.DELAYED, start_ms
        plan_task(state, task)
    else:
        if flags & (TaskFlag.GROUP | TaskFlag.PRIORITY):
            policy = state.policies.of(tenant)
            group = group or policy.group
            priority = policy.priority if priority == PRIORITY_OF_TENANT else priority
        state.scheduler.enqueue(
            Demand(task_id, tenant, task_type, group, priority, resources_of(row.resources), row.key, created_ms)
        )
        if row.deadline_ms:
            plan_task(state, task)
    index.add(task)
    index.weigh(task, None, change.new)


def plan_task(state: BrokerState, task: TaskState) -> None:
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


def task_changed(state: BrokerState, key: Key, row: TaskRow[bytes], change: RowChange, revision: int) -> None:
    """Change a task that has not ended, or has and gives up its payload, or its deadline before it is replayed."""
    (task_id,) = key
    task = state.tasks.by_id[task_id]
    state.spent.pop(task_id, None)
    state.tasks.weigh(task, change.old, change.new)
    own = TaskFlag.GROUP | TaskFlag.PRIORITY
    task.flags = (task.flags & ~own) | (flags_of(row) & own)
    task.deadline_ms = row.deadline_ms
    if task.status == TaskStatus.WAITING:
        state.scheduler.change(state.demand(task))
    plan_task(state, task)


def task_removed(state: BrokerState, fields: Key, change: RowChange) -> None:
    """Forget a task that has ended, or was prepared; what became of it goes next."""
    (task_id,) = fields
    task = state.tasks.by_id[task_id]
    assert task.status in ENDED or task.status == TaskStatus.PREPARED, f"task {task.task_id} is not over"
    if task.status == TaskStatus.PREPARED and task.flags & TaskFlag.CODE:
        assert change.old is not None
        state.codes.release(state.decode_task(change.old).code)
    state.tasks.weigh(task, change.old, None)
    if task.flags & TaskFlag.STATE:
        state.tasks.weigh(task, state.row_bytes(Table.STATES, task.task_id), None)
    state.tasks.remove(task)
    state.tasks.mark_residue(task_id, is_left=bool(task.flags & (TaskFlag.STATE | TaskFlag.PROGRESS)))


def settle_residue(state: BrokerState, task_id: int) -> None:
    """Note whether rows of a task are left over."""
    task = state.tasks.by_id.get(task_id)
    if task is not None:
        is_left = task.status in ENDED and bool(task.flags & _LEFT)
    else:
        is_left = state.has_row(Table.STATES, task_id) or state.has_row(Table.PROGRESS, task_id)
    state.tasks.mark_residue(task_id, is_left=is_left)


def _leave(state: BrokerState, task: TaskState, now_ms: int) -> None:
    """Take a task from where it waits or runs."""
    status = task.status
    if status == TaskStatus.RUNNING:
        state.tasks.stop(task)
        state.scheduler.end(task.task_id, now_ms)
    elif status == TaskStatus.WAITING:
        state.scheduler.withdraw(task.task_id)


def task_assigned(state: BrokerState, key: Key, row: StateRow[bytes], change: RowChange, revision: int) -> None:
    """Have a waiting task run; the revision is the id of its assignment."""
    (task_id,) = key
    worker_id, now_ms = row.worker_id, row.assigned_ms
    task = state.tasks.by_id[task_id]
    assert task.status == TaskStatus.WAITING, f"task {task_id} does not wait"
    state.tasks.weigh(task, change.old, change.new)
    task.attempts = row.attempts
    task.assignment_id = revision
    task.at_ms = state.logged_ms = now_ms
    task.flags = (task.flags | TaskFlag.STATE) & ~TaskFlag.CANCEL
    state.tasks.move(task, TaskStatus.RUNNING)
    state.tasks.run(task, worker_id)
    state.scheduler.start(task_id, worker_id, now_ms)
    if task.deadline_ms or task.flags & TaskFlag.WATCHED:
        plan_task(state, task)
    if state.outbox.is_open:
        state.outbox.add(revision, OutboxKind.ASSIGN, worker_id, task_id, revision)


def task_ended(state: BrokerState, key: Key, row: StateRow[bytes], change: RowChange, revision: int) -> None:
    (task_id,) = key
    now_ms = row.ended_ms
    task = state.tasks.by_id[task_id]
    assert task.status not in ENDED, f"task {task_id} has ended before"
    state.tasks.weigh(task, change.old, change.new)
    if task.worker_id and row.outcome in _LOST:
        state.outbox.add(revision, OutboxKind.CANCEL, row.worker_id, task_id, row.assignment_id)
    _leave(state, task, now_ms)
    task.at_ms = state.logged_ms = now_ms
    task.attempts = row.attempts
    task.flags = (task.flags | TaskFlag.STATE) & ~TaskFlag.CANCEL
    state.tasks.move(task, row.status)
    state.timers.forget(PlanKind.TASK, task_id)
    state.ended.add(task)
    note_spent(state, task)
    if change.new is not None and len(change.new) > _SLIGHT_BYTES:
        state.bounds.note(task.tenant.name)
    if task.flags & TaskFlag.CODE:
        state.codes.release(state.task_row(task_id).code)
    if task.flags & _LEFT:
        state.tasks.mark_residue(task_id, is_left=True)


def task_requeued(state: BrokerState, key: Key, row: StateRow[bytes], change: RowChange, revision: int) -> None:
    """Have a task wait again, or for a time: after a run, a delay, or as a dead letter replayed."""
    (task_id,) = key
    ended_ms = row.ended_ms
    task = state.tasks.by_id[task_id]
    state.tasks.weigh(task, change.old, change.new)
    was_over = task.status in ENDED
    if task.worker_id and row.outcome in _LOST:
        state.outbox.add(revision, OutboxKind.CANCEL, task.worker_id, task_id, task.assignment_id)
    _leave(state, task, ended_ms)
    task.attempts = row.attempts
    task.assignment_id = 0
    state.logged_ms = ended_ms
    task.at_ms = row.due_ms or ended_ms
    task.flags = (task.flags | TaskFlag.STATE) & ~TaskFlag.CANCEL
    state.tasks.move(task, row.status)
    if was_over and task.flags & TaskFlag.CODE:
        state.codes.need(state.task_row(task_id).code)
    if row.status == TaskStatus.WAITING:
        state.scheduler.enqueue(state.demand(task))
    plan_task(state, task)


def task_cancel_asked(state: BrokerState, key: Key, row: StateRow[bytes], change: RowChange, revision: int) -> None:
    """Note that the worker of a running task is to end its run."""
    (task_id,) = key
    task = state.tasks.by_id[task_id]
    state.tasks.weigh(task, change.old, change.new)
    task.flags |= TaskFlag.CANCEL
    state.logged_ms = row.cancel_ms
    plan_task(state, task)
    state.outbox.add(revision, OutboxKind.CANCEL, task.worker_id, task.task_id, task.assignment_id)


def state_removed(state: BrokerState, fields: Key, change: RowChange) -> None:
    """Forget what became of a removed task too."""
    (task_id,) = fields
    task = state.tasks.by_id.get(task_id)
    if task is not None:
        state.tasks.weigh(task, change.old, None)
    settle_residue(state, task_id)


def progress_reported(state: BrokerState, key: Key, row: ProgressRow, change: RowChange, revision: int) -> None:
    """Note that a run said something of itself."""
    (task_id,) = key
    state.tasks.by_id[task_id].flags |= TaskFlag.PROGRESS
    state.logged_ms = row.reported_ms


def progress_removed(state: BrokerState, fields: Key, change: RowChange) -> None:
    """Forget what a run said of itself."""
    (task_id,) = fields
    task = state.tasks.by_id.get(task_id)
    if task is not None:
        task.flags &= ~TaskFlag.PROGRESS
    settle_residue(state, task_id)


def slot_taken(state: BrokerState, key: Key, row: SlotRow, change: RowChange, revision: int) -> None:
    """Give a task its slot."""
    if change.old is not None:  # Left over from a task that has ended.
        _lose_slot(state, _SLOT_ROW.decode(change.old).task_id)
    state.tasks.by_id[row.task_id].flags |= TaskFlag.SLOT


def slot_released(state: BrokerState, fields: Key, change: RowChange) -> None:
    """Take a task's slot from it."""
    if change.old is not None:
        _lose_slot(state, _SLOT_ROW.decode(change.old).task_id)


def _lose_slot(state: BrokerState, task_id: int) -> None:
    task = state.tasks.by_id.get(task_id)
    if task is not None:
        task.flags &= ~TaskFlag.SLOT
        settle_residue(state, task_id)


# ---- transactions


def transaction_begun(state: BrokerState, key: Key, row: TransactionRow, change: RowChange, revision: int) -> None:
    """Let tasks be prepared."""
    (transaction,) = key
    state.tasks.begin(transaction)
    state.timers.plan(PlanKind.TRANSACTION, transaction, row.expires_ms)
    state.logged_ms = row.created_ms


def transaction_committed(state: BrokerState, fields: Key, change: RowChange) -> None:
    """Have all that was prepared wait, in order."""
    transaction, now_ms = fields
    state.logged_ms = now_ms
    state.timers.forget(PlanKind.TRANSACTION, transaction)
    for task in state.tasks.commit(transaction):
        row = state.task_row(task.task_id)
        if row.start_ms > row.created_ms:
            task.at_ms = row.start_ms
            state.tasks.move(task, TaskStatus.DELAYED)
        else:
            task.at_ms = now_ms
            state.tasks.move(task, TaskStatus.WAITING)
            state.scheduler.enqueue(state.demand(task, row))
        plan_task(state, task)


def transaction_given_up(state: BrokerState, key: Key, row: TransactionRow, change: RowChange, revision: int) -> None:
    """Have the tasks of a transaction that is over go, from now on."""
    (transaction,) = key
    state.timers.plan(PlanKind.TRANSACTION, transaction, 0)


def transaction_rolled_back(state: BrokerState, fields: Key, change: RowChange) -> None:
    """Forget a transaction of which nothing is left."""
    (transaction,) = fields
    state.tasks.roll_back(transaction)
    state.timers.forget(PlanKind.TRANSACTION, transaction)

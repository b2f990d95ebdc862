"""Tasks that are there already: cancelled, changed, replayed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from broker.core.commands import CancelTasks, ChangeTasks, ReplayDead
from broker.core.deciding import LoggedRecord, answered, refused
from broker.core.ending import cancel_asked, ended, requeued
from broker.core.faults import name_fault, number_fault, resources_fault
from broker.core.limits import BATCH_TASKS_MAX, DECISION_BYTES_MAX, GROUP_MAX, PRIORITY_MAX, TIME_MS_MAX
from broker.core.replies import Changed, Refusal
from broker.core.resources import resources_text
from broker.core.rows import TaskRow
from broker.core.statuses import ENDED, Outcome, TaskStatus
from broker.core.submitting import slot_holder
from broker.core.tables import RecordType
from broker.core.tasks import Task, TaskFlag
from rsm_spark.core.machine import Decision

if TYPE_CHECKING:
    from broker.core.state import BrokerState

__all__ = ["cancel", "change", "replay"]

_ROW_OVERHEAD_BYTES = 160


def _ids_fault(task_ids: list[int], *, may_be_empty: bool = False) -> str:
    if not task_ids and not may_be_empty:
        return "no task is named"
    if len(task_ids) > BATCH_TASKS_MAX:
        return f"{len(task_ids):,} tasks are named: at most {BATCH_TASKS_MAX:,} at once"
    return ""


def cancel(state: BrokerState, command: CancelTasks, now_ms: int) -> Decision:
    """Decide a cancellation: what waits ends now, what runs ends when its worker has ended it."""
    fault = name_fault("tenant", command.tenant, may_be_empty=True) or _ids_fault(command.task_ids)
    if fault:
        return refused(Refusal.INVALID, fault)
    records: list[LoggedRecord] = []
    count = asked = passed_over = 0
    for task_id in dict.fromkeys(command.task_ids):
        task = state.index.of(command.tenant, task_id)
        if task is None or task.status in ENDED or task.status == TaskStatus.PREPARED:
            passed_over += 1
        elif task.status != TaskStatus.RUNNING:
            records += ended(state, task, now_ms, TaskStatus.CANCELLED, Outcome.CANCELLED)
            count += 1
        else:
            # Also of one that was asked for another reason: from now on it is not to run again.
            row = state.state_row(task_id) if task.flags & TaskFlag.CANCEL else None
            if row is None or row.outcome != Outcome.CANCELLED:
                records.append(cancel_asked(task, now_ms, Outcome.CANCELLED))
            asked += 1
    return answered(records, Changed(count, asked, passed_over))


def change(state: BrokerState, command: ChangeTasks) -> Decision:
    """Decide a change of tasks that have not ended; resources of a run, and of what runs now, stay as they are."""
    fault = (
        name_fault("tenant", command.tenant, may_be_empty=True)
        or _ids_fault(command.task_ids)
        or ("" if command.group is None else number_fault("group", command.group, 1, GROUP_MAX))
        or ("" if command.priority is None else number_fault("priority", command.priority, -PRIORITY_MAX, PRIORITY_MAX))
        or ("" if command.resources is None else resources_fault(command.resources, low=0))
        or ("" if command.deadline_ms is None else number_fault("deadline_ms", command.deadline_ms, 0, TIME_MS_MAX))
    )
    if fault:
        return refused(Refusal.INVALID, fault)
    records: list[LoggedRecord] = []
    size = count = passed_over = 0
    for task_id in dict.fromkeys(command.task_ids):
        task = state.index.of(command.tenant, task_id)
        if task is None or task.status in ENDED or state.is_given_up(task.transaction):
            passed_over += 1
            continue
        row = state.task_row(task_id)
        fields = _changed(task, row, command)
        count += 1
        if fields != _fields(task_id, row):
            size += len(row.payload) + _ROW_OVERHEAD_BYTES + len(row.slot) + len(row.key) + len(row.retry)
            records.append((RecordType.TASK_CHANGED, fields))
    if size > DECISION_BYTES_MAX:
        return refused(
            Refusal.TOO_LARGE,
            f"the rows of these {count} tasks have {size:,} bytes, payloads included, which does not fit one entry of "
            "the log: change fewer at once",
        )
    return answered(records, Changed(count, 0, passed_over))


def _fields(task_id: int, row: TaskRow) -> tuple[object, ...]:
    return (
        task_id, row.tenant, row.type, row.payload_bytes(), row.created_ms, row.at_most_once, row.max_attempts,
        row.priority, row.group, row.resources, row.slot, row.key, row.start_ms, row.deadline_ms, row.timeout_ms,
        row.heartbeat_ms, row.code, row.mode, row.retry, row.transaction,
    )  # fmt: skip


def _changed(task: Task, row: TaskRow, command: ChangeTasks) -> tuple[object, ...]:
    fields = list(_fields(task.task_id, row))
    if command.priority is not None:
        fields[7] = command.priority
    if command.group is not None:
        fields[8] = command.group
    if command.resources is not None and task.status != TaskStatus.RUNNING:
        fields[9] = resources_text(command.resources)
    if command.deadline_ms is not None:
        fields[13] = command.deadline_ms
    return tuple(fields)


# ---- dead letters


def replay(state: BrokerState, command: ReplayDead, now_ms: int) -> Decision:
    """Decide that dead letters wait again: all that are named, or none.

    One that is to run at most once, and may have run, stays dead. A deadline that has passed is dropped.
    """
    fault = (
        name_fault("tenant", command.tenant, may_be_empty=True)
        or _ids_fault(command.task_ids, may_be_empty=True)
        or name_fault("type", command.type, may_be_empty=True)
        or name_fault("outcome", command.outcome, may_be_empty=True)
    )
    if fault:
        return refused(Refusal.INVALID, fault)
    tasks: list[Task] = []
    if command.task_ids:
        for task_id in dict.fromkeys(command.task_ids):
            task = state.index.of(command.tenant, task_id)
            if task is None:
                return refused(Refusal.NOT_FOUND, f"there is no task {task_id}: nothing was replayed")
            fault = _replay_fault(state, task, command)
            if fault:
                return refused(Refusal.CONFLICT, f"task {task_id} {fault}: nothing was replayed")
            tasks.append(task)
    else:
        fitting = (task for task in _dead(state, command.tenant) if not _replay_fault(state, task, command))
        tasks = list(islice(fitting, BATCH_TASKS_MAX))
    return _replayed(state, tasks, now_ms)


def _dead(state: BrokerState, tenant: str) -> Iterator[Task]:
    """Iterate over dead letters, oldest first."""
    index = state.index
    found = [index.tenants[tenant]] if tenant in index.tenants else [] if tenant else list(index.tenants.values())
    for task_id in sorted(chain.from_iterable(one.sets[TaskStatus.ERROR] for one in found)):
        yield index.tasks[task_id]


def _replay_fault(state: BrokerState, task: Task, command: ReplayDead) -> str:
    if task.status != TaskStatus.ERROR:
        return f"is {TaskStatus(task.status).name.lower()}, no dead letter"
    if task.flags & TaskFlag.AT_MOST_ONCE and task.attempts:
        return "is to run at most once, and may have run"
    if command.type and task.type != command.type:
        return f"is of type {task.type!r}"
    if command.outcome:
        row = state.state_row(task.task_id)
        if row is None or row.outcome != command.outcome:
            return "has another outcome"
    return ""


def _replayed(state: BrokerState, tasks: list[Task], now_ms: int) -> Decision:
    records: list[LoggedRecord] = []
    taken: dict[tuple[str, str], int] = {}
    size = 0
    for task in tasks:
        row = state.task_row(task.task_id)
        if row.slot:
            slot = (row.tenant, row.slot)
            holder = taken.get(slot) or slot_holder(state, *slot)
            if holder:
                return refused(
                    Refusal.SLOT_TAKEN,
                    f"slot {row.slot!r} of task {task.task_id} is taken by task {holder}: nothing was replayed",
                )
            taken[slot] = task.task_id
            records.append((RecordType.SLOT_TAKEN, (*slot, task.task_id)))
            size += _ROW_OVERHEAD_BYTES + len(row.tenant) + len(row.slot)
        if row.code and row.code not in state.code_ends:
            return refused(
                Refusal.UNKNOWN_CODE,
                f"task {task.task_id} needs code pool {row.code!r}, which is gone: deploy it again",
            )
        if row.deadline_ms and row.deadline_ms <= now_ms:
            fields = list(_fields(task.task_id, row))
            fields[13] = 0
            records.append((RecordType.TASK_CHANGED, tuple(fields)))
            size += len(row.payload) + _ROW_OVERHEAD_BYTES
        size += _ROW_OVERHEAD_BYTES
        records += requeued(task, now_ms, attempts=0)
    if size > DECISION_BYTES_MAX:
        return refused(
            Refusal.TOO_LARGE, f"{len(tasks)} tasks do not fit one entry of the log with their payloads: replay fewer"
        )
    return answered(records, Changed(len(tasks)))

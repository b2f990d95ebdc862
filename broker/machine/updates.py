"""Tasks that are there already: cancelled, changed, replayed, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from msgspec.structs import replace

from broker.machine.commands import CancelTasks, ChangeTasks, DeleteDead, ReplayDead
from broker.machine.completion import cancel_asked, ended, requeued
from broker.machine.decisions import LoggedRecord, answered, refused
from broker.machine.entitlements import denial_of
from broker.machine.faults import name_fault, number_fault, resources_fault
from broker.machine.index.tasks import TaskFlag, TaskState
from broker.machine.limits import BATCH_TASKS_MAX, DECISION_BYTES_MAX, GROUP_MAX, PRIORITY_MAX, TIME_MS_MAX
from broker.machine.replies import Changed, Refusal
from broker.machine.resources import resources_text
from broker.machine.rows import KeptTask, SlotRow, row_fields, task_fields
from broker.machine.state import BrokerState
from broker.machine.statuses import ENDED, Outcome, TaskStatus
from broker.machine.submitting import slot_holder
from broker.machine.tables import RecordType
from rsm_spark.core.machine import Decision

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
        task = state.tasks.of(command.tenant, task_id)
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
    if command.is_bound:
        policy, named = state.policies.of(command.tenant), command.resources or {}
        denial = denial_of(command.tenant, policy, resources=named, group=command.group)
        if denial:
            return refused(Refusal.NOT_ALLOWED, denial)
    records: list[LoggedRecord] = []
    size = count = passed_over = 0
    for task_id in dict.fromkeys(command.task_ids):
        task = state.tasks.of(command.tenant, task_id)
        if task is None or task.status in ENDED or state.is_given_up(task.transaction):
            passed_over += 1
            continue
        row = state.task_row(task_id)
        changed = _changed(task, row, command)
        count += 1
        if changed != row:
            size += len(row.payload) + _ROW_OVERHEAD_BYTES + len(row.slot) + len(row.key) + len(row.retry)
            records.append((RecordType.TASK_CHANGED, task_fields(task_id, changed)))
    if size > DECISION_BYTES_MAX:
        return refused(
            Refusal.TOO_LARGE,
            f"the rows of these {count} tasks have {size:,} bytes, payloads included, which does not fit one entry of "
            "the log: change fewer at once",
        )
    return answered(records, Changed(count, 0, passed_over))


def _changed(task: TaskState, row: KeptTask, command: ChangeTasks) -> KeptTask:
    changes: dict[str, int | str] = {}
    if command.priority is not None:
        changes["priority"] = command.priority
    if command.group is not None:
        changes["group"] = command.group
    if command.resources is not None and task.status != TaskStatus.RUNNING:
        changes["resources"] = resources_text(command.resources)
    if command.deadline_ms is not None:
        changes["deadline_ms"] = command.deadline_ms
    return replace(row, **changes)


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
    tasks: list[TaskState] = []
    if command.task_ids:
        for task_id in dict.fromkeys(command.task_ids):
            task = state.tasks.of(command.tenant, task_id)
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


def _dead(state: BrokerState, tenant: str) -> Iterator[TaskState]:
    """Iterate over dead letters, oldest first."""
    index = state.tasks
    found = [index.tenants[tenant]] if tenant in index.tenants else [] if tenant else list(index.tenants.values())
    for task_id in sorted(chain.from_iterable(one.sets[TaskStatus.ERROR] for one in found)):
        yield index.by_id[task_id]


def delete_dead(state: BrokerState, command: DeleteDead) -> Decision:
    """Decide that dead letters are forgotten, as the purge would after their retention."""
    fault = name_fault("tenant", command.tenant, may_be_empty=True) or _ids_fault(command.task_ids)
    if fault:
        return refused(Refusal.INVALID, fault)
    records: list[LoggedRecord] = []
    count = passed_over = 0
    for task_id in dict.fromkeys(command.task_ids):
        task = state.tasks.of(command.tenant, task_id)
        if task is None or task.status != TaskStatus.ERROR:
            passed_over += 1
            continue
        records += _forgotten(state, task)
        count += 1
    return answered(records, Changed(count, 0, passed_over))


def _forgotten(state: BrokerState, task: TaskState) -> Iterator[LoggedRecord]:
    """Yield the records that forget a task; what an entry had no room for when it ended goes with it."""
    task_id = task.task_id
    if task.flags & TaskFlag.SLOT:
        yield RecordType.SLOT_RELEASED, (task.tenant.name, state.task_row(task_id).slot)
    # The task goes before what became of it: without the latter it would seem to wait.
    yield RecordType.TASK_REMOVED, (task_id,)
    if task.flags & TaskFlag.PROGRESS:
        yield RecordType.PROGRESS_REMOVED, (task_id,)
    if task.flags & TaskFlag.STATE:
        yield RecordType.STATE_REMOVED, (task_id,)


def _replay_fault(state: BrokerState, task: TaskState, command: ReplayDead) -> str:
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
    if command.is_bound:
        tenant, code = task.tenant.name, state.task_row(task.task_id).code if task.flags & TaskFlag.CODE else ""
        denial = denial_of(tenant, state.policies.of(tenant), task_type=task.type, code=code)
        if denial:
            return f"stays dead: {denial}"
    return ""


def _replayed(state: BrokerState, tasks: list[TaskState], now_ms: int) -> Decision:
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
            records.append((RecordType.SLOT_TAKEN, row_fields(slot, SlotRow(task.task_id))))
            size += _ROW_OVERHEAD_BYTES + len(row.tenant) + len(row.slot)
        if row.code and row.code not in state.codes.ends:
            return refused(
                Refusal.UNKNOWN_CODE,
                f"task {task.task_id} needs code pool {row.code!r}, which is gone: deploy it again",
            )
        if row.deadline_ms and row.deadline_ms <= now_ms:
            records.append((RecordType.TASK_CHANGED, task_fields(task.task_id, replace(row, deadline_ms=0))))
            size += len(row.payload) + _ROW_OVERHEAD_BYTES
        size += _ROW_OVERHEAD_BYTES
        records += requeued(task, now_ms, attempts=0)
    if size > DECISION_BYTES_MAX:
        return refused(
            Refusal.TOO_LARGE, f"{len(tasks)} tasks do not fit one entry of the log with their payloads: replay fewer"
        )
    return answered(records, Changed(len(tasks)))

"""The index made from the tables, after a snapshot; and compared with them."""

from __future__ import annotations

from sys import intern
from typing import Any

import msgspec

from broker.machine import folding_policies as policies
from broker.machine import rows
from broker.machine.folding_tasks import flags_of, plan_task, settle_residue
from broker.machine.index.tasks import TaskFlag, TaskState
from broker.machine.index.timers import PlanKind
from broker.machine.payload_release import note_spent
from broker.machine.rows import KeptState, KeptTask
from broker.machine.state import BrokerState
from broker.machine.statuses import ENDED, TaskStatus
from broker.machine.tables import Table
from rsm_spark.core.machine import RowChange

_ID = msgspec.msgpack.Decoder(tuple[int])
_NO_CHANGE = RowChange("", b"", None, None)


def rebuild(state: BrokerState) -> None:
    """Make the index of a state whose tables were just restored."""
    _rebuild_policies(state)
    for (transaction,), columns in sorted(state.items(Table.TRANSACTIONS)):
        row = rows.TransactionRow(*columns)
        state.tasks.begin(transaction)
        state.timers.plan(PlanKind.TRANSACTION, transaction, row.expires_ms)
        state.logged_ms = max(state.logged_ms, row.created_ms)
    ended: list[TaskState] = []
    for task_id in sorted(state.ids(Table.TASKS)):
        task = _rebuild_task(state, task_id)
        state.logged_ms = max(state.logged_ms, task.at_ms if task.status != TaskStatus.DELAYED else 0)
        if task.status in ENDED:
            ended.append(task)
    ended.sort(key=lambda task: (task.at_ms, task.task_id))
    for task in ended:
        state.ended.add(task)
        note_spent(state, task)
    _rebuild_marks(state)
    state.bounds.note_all()


def _rebuild_policies(state: BrokerState) -> None:
    folds: tuple[tuple[str, Any, Any], ...] = (
        (Table.TENANTS, rows.TenantRow, policies.tenant_set),
        (Table.HOLDS, rows.HoldRow, policies.hold_set),
        (Table.RESOURCES, rows.LimitRow, policies.resource_limited),
        (Table.CODE, rows.CodeRow, policies.code_deployed),
        (Table.WORKERS, rows.WorkerRow, policies.worker_changed),
    )
    for table, made, fold in folds:
        for key, columns in sorted(state.items(table)):
            fold(state, key, made(*columns), _NO_CHANGE, 0)
    requests = sorted((rows.RequestRow(*columns).created_ms, *key) for key, columns in state.items(Table.REQUESTS))
    for created_ms, tenant, request_key in requests:
        state.requests.add(created_ms, tenant, request_key)
        state.logged_ms = max(state.logged_ms, created_ms)


def status_of(row: KeptTask, found: KeptState | None, *, is_open: bool) -> int:
    """Return the status of a task by its rows; `is_open`: its transaction has a row."""
    if found is not None:
        return found.status
    if is_open:
        return TaskStatus.PREPARED
    return TaskStatus.DELAYED if row.start_ms > row.created_ms else TaskStatus.WAITING


def _rebuild_task(state: BrokerState, task_id: int) -> TaskState:
    index, row, found = state.tasks, state.task_row(task_id), state.state_row(task_id)
    flags = flags_of(row)
    status = status_of(row, found, is_open=row.transaction in index.by_transaction)
    task = TaskState(task_id, index.tenant(row.tenant), intern(row.type), status, flags)
    task.deadline_ms, task.transaction = row.deadline_ms, row.transaction
    task.at_ms = row.start_ms if status == TaskStatus.DELAYED else row.created_ms
    index.add(task)
    index.weigh(task, None, state.row_bytes(Table.TASKS, task_id))
    if found is not None:
        index.weigh(task, None, state.row_bytes(Table.STATES, task_id))
        task.flags |= TaskFlag.STATE
        task.attempts = found.attempts
        task.assignment_id = found.assignment_id
        if status == TaskStatus.RUNNING:
            task.at_ms = found.assigned_ms
            task.assignment_id = found.assignment_id or state.revision_of(Table.STATES, task_id)
            task.flags |= TaskFlag.CANCEL if found.cancel_ms else 0
            index.run(task, found.worker_id)
            state.scheduler.resume(state.demand(task, row), found.worker_id, found.assigned_ms)
        else:
            task.at_ms = found.due_ms or found.ended_ms
    if status == TaskStatus.WAITING:
        state.scheduler.enqueue(state.demand(task, row))
    if row.code and status not in ENDED:
        state.codes.need(row.code)
    plan_task(state, task)
    return task


def _rebuild_marks(state: BrokerState) -> None:
    """Mark what has a slot or progress, and what is left over of tasks that are over."""
    tasks = state.tasks.by_id
    for _, (task_id,) in state.items(Table.SLOTS):
        tasks[task_id].flags |= TaskFlag.SLOT
    for task_id in state.ids(Table.PROGRESS):
        if task_id in tasks:
            tasks[task_id].flags |= TaskFlag.PROGRESS
    for table in (Table.STATES, Table.PROGRESS):
        for task_id in sorted(state.ids(table)):
            if task_id not in tasks:
                settle_residue(state, task_id)
    for task_id, task in tasks.items():
        if task.status in ENDED:
            settle_residue(state, task_id)


def _summary(state: BrokerState, *, is_told: bool) -> dict[str, Any]:
    """Return all of the index that matters, to be compared."""
    tasks = {}
    for task_id, task in state.tasks.by_id.items():
        tasks[task_id] = (
            task.tenant.name, task.type, task.status, task.flags, task.attempts, task.worker_id, task.assignment_id,
            task.deadline_ms, task.transaction, 0 if task.status == TaskStatus.WAITING else task.at_ms,
            state.timers.planned_ms(PlanKind.TASK, task_id) is not None,
        )  # fmt: skip
    return {
        "tasks": tasks,
        "bytes": {name: one.bytes for name, one in sorted(state.tasks.tenants.items())},
        "residue": sorted(state.tasks.residue),
        "transactions": {one: list(tasks) for one, tasks in state.tasks.by_transaction.items()},
        "workers": state.workers.by_id,
        "policies": state.policies.by_tenant,
        "holds": (state.holds.ends, state.holds.counts),
        "draining": sorted(state.holds.draining),
        "scheduler": state.scheduler.known() if is_told else None,
        "code": (state.codes.use, state.codes.ends),
    }


def check_rebuilt(state: BrokerState, rebuilt: BrokerState) -> None:
    """Check that an index that was kept is the one that the tables make."""
    assert list(state.tasks.by_id) == sorted(state.ids(Table.TASKS))
    is_told = not state.demands
    mine, theirs = (_summary(one, is_told=is_told) for one in (state, rebuilt))
    for what, value in mine.items():
        assert value == theirs[what], f"{what}: the index has {value!r}, the tables say {theirs[what]!r}"

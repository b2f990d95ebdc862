"""The index made from the tables, after a snapshot; and compared with them."""

from __future__ import annotations

from sys import intern
from typing import TYPE_CHECKING, Any

import msgspec

from broker.core import folding_policies as policies
from broker.core.folding_tasks import flags_of, plan_task, settle_residue
from broker.core.rows import StateRow, TaskRow
from broker.core.statuses import ENDED, TaskStatus
from broker.core.tables import Table
from broker.core.tasks import Task, TaskFlag
from broker.core.timers import PlanKind
from rsm_spark.core.machine import RowChange

if TYPE_CHECKING:
    from broker.core.state import BrokerState

__all__ = ["check_index", "rebuild"]

_ID = msgspec.msgpack.Decoder(tuple[int])
_NO_CHANGE = RowChange("", b"", None, None)


def rebuild(state: BrokerState) -> None:
    """Make the index of a state whose tables were just restored."""
    _rebuild_policies(state)
    for (transaction,), (_, created_ms, expires_ms) in sorted(state.items(Table.TRANSACTIONS)):
        state.index.by_transaction[transaction] = {}
        state.timers.plan(PlanKind.TRANSACTION, transaction, expires_ms)
        state.logged_ms = max(state.logged_ms, created_ms)
    ended: list[Task] = []
    for task_id in sorted(state.ids(Table.TASKS)):
        task = _rebuild_task(state, task_id)
        state.logged_ms = max(state.logged_ms, task.at_ms if task.status != TaskStatus.DELAYED else 0)
        if task.status in ENDED:
            ended.append(task)
    ended.sort(key=lambda task: (task.at_ms, task.task_id))
    for task in ended:
        state.ended.add(task)
    _rebuild_marks(state)


def _rebuild_policies(state: BrokerState) -> None:
    for table, fold in (
        (Table.TENANTS, policies.tenant_set),
        (Table.HOLDS, policies.hold_set),
        (Table.RESOURCES, policies.resource_limited),
        (Table.CODE, policies.code_deployed),
        (Table.WORKERS, policies.worker_changed),
    ):
        for key, row in sorted(state.items(table)):
            fold(state, key + row, 0, _NO_CHANGE)
    requests = sorted((created_ms, *key) for key, (_, created_ms) in state.items(Table.REQUESTS))
    for created_ms, tenant, request_key in requests:
        state.requests.add(created_ms, tenant, request_key)
        state.logged_ms = max(state.logged_ms, created_ms)


def status_of(row: TaskRow, found: StateRow | None, *, is_open: bool) -> int:
    """Return the status of a task by its rows; `is_open`: its transaction has a row."""
    if found is not None:
        return found.status
    if is_open:
        return TaskStatus.PREPARED
    return TaskStatus.DELAYED if row.start_ms > row.created_ms else TaskStatus.WAITING


def _rebuild_task(state: BrokerState, task_id: int) -> Task:
    index, row, found = state.index, state.task_row(task_id), state.state_row(task_id)
    flags = flags_of(
        row.at_most_once, row.group, row.priority, row.code, is_watched=bool(row.timeout_ms or row.heartbeat_ms)
    )
    status = status_of(row, found, is_open=row.transaction in index.by_transaction)
    task = Task(task_id, index.tenant(row.tenant), intern(row.type), status, flags)
    task.deadline_ms, task.transaction = row.deadline_ms, row.transaction
    task.at_ms = row.start_ms if status == TaskStatus.DELAYED else row.created_ms
    index.add(task)
    if found is not None:
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
    elif status == TaskStatus.PREPARED:
        index.by_transaction[row.transaction][task_id] = task
    if row.code and status not in ENDED:
        state.code_use[row.code] = state.code_use.get(row.code, 0) + 1
    plan_task(state, task)
    return task


def _rebuild_marks(state: BrokerState) -> None:
    """Mark what has a slot or progress, and what is left over of tasks that are over."""
    tasks = state.index.tasks
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


def _summary(state: BrokerState, *, is_filed: bool) -> dict[str, Any]:
    """Return all of the index that matters, to be compared."""
    tasks = {}
    for task_id, task in state.index.tasks.items():
        tasks[task_id] = (
            task.tenant.name, task.type, task.status, task.flags, task.attempts, task.worker_id, task.assignment_id,
            task.deadline_ms, task.transaction, 0 if task.status == TaskStatus.WAITING else task.at_ms,
            state.timers.planned_ms(PlanKind.TASK, task_id) is not None,
        )  # fmt: skip
    return {
        "tasks": tasks,
        "residue": sorted(state.index.residue),
        "transactions": {one: list(tasks) for one, tasks in state.index.by_transaction.items()},
        "workers": state.workers,
        "policies": state.policies,
        "holds": state.holds,
        "draining": sorted(state.draining),
        "scheduler": state.scheduler.known() if is_filed else None,
        "code": (state.code_use, state.code_ends),
    }


def check_index(state: BrokerState) -> None:
    """Check that an index that was kept is the one that the tables make."""
    state.index.validate()
    state.timers.validate()
    state.scheduler.validate()
    state.ended.validate()
    state.requests.validate(state.count(Table.REQUESTS))
    assert list(state.index.tasks) == sorted(state.ids(Table.TASKS))
    other = state.fresh()
    other.restore(state.rows())
    mine, theirs = (_summary(one, is_filed=state.is_filed) for one in (state, other))
    for what, value in mine.items():
        assert value == theirs[what], f"{what}: the index has {value!r}, the tables say {theirs[what]!r}"

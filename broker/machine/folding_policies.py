"""Fold of the records of workers, tenants, holds, limits, code pools and request keys.

See `broker.machine.folding` for their arguments.
"""

from __future__ import annotations

from broker.machine.folding_tasks import Key
from broker.machine.index.tasks import TaskFlag
from broker.machine.outbox import OutboxKind
from broker.machine.policies import TenantPolicy
from broker.machine.rows import CodeRow, HoldRow, LimitRow, RequestRow, TenantRow, WorkerRow, policy_of
from broker.machine.state import BrokerState
from broker.machine.statuses import TaskStatus, WorkerStatus
from rsm_spark.core.machine import RowChange


def worker_changed(state: BrokerState, key: Key, row: WorkerRow, change: RowChange, revision: int) -> None:
    """Take notice that a worker offers something else, or is gone."""
    (worker_id,) = key
    offer = state.workers.set(worker_id, row)
    state.scheduler.set_worker(worker_id, offer if row.status == WorkerStatus.CONNECTED else None)
    state.logged_ms = max(state.logged_ms, row.changed_ms)


def worker_connected(state: BrokerState, key: Key, row: WorkerRow, change: RowChange, revision: int) -> None:
    """Take notice that a worker came, and said what it has.

    What waits to be sent to it is settled by that; only what it is to cancel it may not have heard.
    """
    worker_changed(state, key, row, change, revision)
    (worker_id,) = key
    state.outbox.drop_worker(worker_id)
    for task in state.tasks.runs_of(worker_id):
        if task.flags & TaskFlag.CANCEL:
            state.outbox.add(revision, OutboxKind.CANCEL, worker_id, task.task_id, task.assignment_id)


def worker_removed(state: BrokerState, fields: Key, change: RowChange) -> None:
    (worker_id,) = fields
    state.workers.remove(worker_id)
    state.scheduler.set_worker(worker_id, None)


def tenant_set(state: BrokerState, key: Key, row: TenantRow, change: RowChange, revision: int) -> None:
    """Give a tenant another service level."""
    (tenant,) = key
    _set_policy(state, tenant, policy_of(row))


def tenant_removed(state: BrokerState, fields: Key, change: RowChange) -> None:
    """Give a tenant the default service level."""
    (tenant,) = fields
    _set_policy(state, tenant, None)


def _set_policy(state: BrokerState, tenant: str, policy: TenantPolicy | None) -> None:
    before = state.policies.of(tenant)
    state.policies.set(tenant, policy)
    state.scheduler.set_tenant(tenant, policy)
    state.ended.replan(tenant)
    now = state.policies.of(tenant)
    moved = (TaskFlag.GROUP if before.group != now.group else 0) | (
        TaskFlag.PRIORITY if before.priority != now.priority else 0
    )
    found = state.tasks.tenants.get(tenant)
    if moved and found is not None:
        tasks = state.tasks.by_id
        state.demands.add([task_id for task_id in found.sets[TaskStatus.WAITING] if tasks[task_id].flags & moved])


def hold_set(state: BrokerState, key: Key, row: HoldRow, change: RowChange, revision: int) -> None:
    """Hold tasks back, or have them refused."""
    tenant, task_type, task_key = hold = key
    state.scheduler.set_hold(tenant, task_type, task_key, is_paused=row.is_paused)
    state.holds.set(hold, row)


def hold_ended(state: BrokerState, fields: Key, change: RowChange) -> None:
    """Hold tasks back no more."""
    tenant, task_type, task_key = hold = fields
    state.scheduler.set_hold(tenant, task_type, task_key, is_paused=False)
    state.holds.remove(hold)


def resource_limited(state: BrokerState, key: Key, row: LimitRow, change: RowChange, revision: int) -> None:
    resource, tenant, task_type = key
    state.scheduler.set_limit(resource, tenant, task_type, row.amount_max)


def resource_unlimited(state: BrokerState, fields: Key, change: RowChange) -> None:
    """Lift the limit of a resource."""
    resource, tenant, task_type = fields
    state.scheduler.set_limit(resource, tenant, task_type, None)


def code_deployed(state: BrokerState, key: Key, row: CodeRow, change: RowChange, revision: int) -> None:
    """Keep a code pool, for its time."""
    (code,) = key
    state.codes.add(code, row)


def code_removed(state: BrokerState, fields: Key, change: RowChange) -> None:
    (code,) = fields
    state.codes.remove(code)


def request_noted(state: BrokerState, key: Key, row: RequestRow, change: RowChange, revision: int) -> None:
    """Keep a reply, for its time."""
    tenant, request_key = key
    state.requests.add(row.created_ms, tenant, request_key)


def request_forgotten(state: BrokerState, fields: Key, change: RowChange) -> None:
    """Forget a reply."""
    tenant, request_key = fields
    state.requests.forget(tenant, request_key)

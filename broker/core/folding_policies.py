"""What records of workers, tenants, holds, limits, code pools and request keys do to the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from broker.core.outbox import OutboxKind
from broker.core.policies import TenantPolicy, WorkerOffer
from broker.core.rows import WorkerRow, policy_of
from broker.core.statuses import TaskStatus, WorkerStatus
from broker.core.tasks import TaskFlag
from broker.core.timers import PlanKind
from rsm_spark.core.machine import RowChange

if TYPE_CHECKING:
    from broker.core.state import BrokerState

__all__ = [
    "code_deployed",
    "code_removed",
    "hold_ended",
    "hold_set",
    "request_forgotten",
    "request_noted",
    "resource_limited",
    "resource_unlimited",
    "tenant_removed",
    "tenant_set",
    "worker_changed",
    "worker_connected",
    "worker_removed",
]

_OFFER = msgspec.json.Decoder(WorkerOffer)


def worker_changed(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Take notice that a worker offers something else, or is gone."""
    worker_id = fields[0]
    row = WorkerRow(*fields[1:])
    offer = _OFFER.decode(row.offer)
    state.workers[worker_id] = row
    state.offers[worker_id] = offer
    state.scheduler.set_worker(worker_id, offer if row.status == WorkerStatus.CONNECTED else None)
    state.logged_ms = max(state.logged_ms, row.changed_ms)
    if row.status == WorkerStatus.DEAD:
        state.timers.plan(PlanKind.WORKER, worker_id, row.changed_ms + state.rules.worker_retention_ms)
    else:
        state.timers.forget(PlanKind.WORKER, worker_id)


def worker_connected(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:
    """Take notice that a worker came, and said what it has.

    What waits to be sent to it is settled by that; only what it is to cancel it may not have heard.
    """
    worker_changed(state, fields, revision, change)
    worker_id = fields[0]
    state.outbox.drop_worker(worker_id)
    for task in state.index.runs_of(worker_id):
        if task.flags & TaskFlag.CANCEL:
            state.outbox.add(revision, OutboxKind.CANCEL, worker_id, task.task_id, task.assignment_id)


def worker_removed(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Forget a dead worker."""
    del state.workers[fields[0]]
    del state.offers[fields[0]]
    state.scheduler.set_worker(fields[0], None)
    state.timers.forget(PlanKind.WORKER, fields[0])


def tenant_set(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Give a tenant another service level."""
    _set_policy(state, fields[0], policy_of(fields[1:]))


def tenant_removed(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Give a tenant the default service level."""
    _set_policy(state, fields[0], None)


def _set_policy(state: BrokerState, tenant: str, policy: TenantPolicy | None) -> None:
    before = state.policy(tenant)
    if policy is None:
        state.policies.pop(tenant, None)
    else:
        state.policies[tenant] = policy
    state.scheduler.set_tenant(tenant, policy)
    state.ended.replan(tenant)
    now = state.policy(tenant)
    moved = (TaskFlag.GROUP if before.group != now.group else 0) | (
        TaskFlag.PRIORITY if before.priority != now.priority else 0
    )
    found = state.index.tenants.get(tenant)
    if moved and found is not None:
        tasks = state.index.tasks
        state.file_anew([task_id for task_id in found.sets[TaskStatus.WAITING] if tasks[task_id].flags & moved])


def hold_set(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Hold tasks back, or have them refused."""
    tenant, task_type, key, is_paused, is_draining, until_ms, _ = fields
    hold = (tenant, task_type, key)
    state.scheduler.set_hold(tenant, task_type, key, is_paused=is_paused)
    state.holds[hold] = until_ms
    if is_draining:
        state.draining[hold] = None
    else:
        state.draining.pop(hold, None)
    if until_ms:
        state.timers.plan(PlanKind.HOLD, hold, until_ms)
    else:
        state.timers.forget(PlanKind.HOLD, hold)


def hold_ended(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Hold tasks back no more."""
    hold = (fields[0], fields[1], fields[2])
    state.scheduler.set_hold(*hold, is_paused=False)
    state.holds.pop(hold, None)
    state.draining.pop(hold, None)
    state.timers.forget(PlanKind.HOLD, hold)


def resource_limited(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Limit a resource."""
    resource, tenant, task_type, amount_max = fields
    state.scheduler.set_limit(resource, tenant, task_type, amount_max)


def resource_unlimited(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Lift the limit of a resource."""
    resource, tenant, task_type = fields
    state.scheduler.set_limit(resource, tenant, task_type, None)


def code_deployed(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Keep a code pool, for its time."""
    code, created_ms, ttl_ms = fields[:3]
    state.code_ends[code] = created_ms + ttl_ms if ttl_ms else 0
    state.plan_code(code)


def code_removed(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Forget a code pool."""
    state.code_ends.pop(fields[0], None)
    state.timers.forget(PlanKind.CODE, fields[0])


def request_noted(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Keep a reply, for its time."""
    tenant, request_key, _, created_ms = fields
    state.requests.add(created_ms, tenant, request_key)


def request_forgotten(state: BrokerState, fields: tuple[Any, ...], revision: int, change: RowChange) -> None:  # noqa: ARG001
    """Forget a reply."""
    state.requests.forget(fields[0], fields[1])

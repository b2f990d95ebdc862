"""What an administrator sets: tenants, holds, limits; and what tenants may hold of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.core.commands import ClearHold, LimitResource, RemoveTenant, SetHold, SetTenant
from broker.core.deciding import answered, refused
from broker.core.faults import name_fault, number_fault, policy_fault, resource_name_fault, text_fault
from broker.core.limits import AMOUNT_MAX, ERROR_BYTES_MAX, TIME_MS_MAX
from broker.core.replies import Done, Refusal
from broker.core.rows import policy_columns
from broker.core.tables import RecordType, Table
from rsm_spark.core.machine import Decision

if TYPE_CHECKING:
    from broker.core.state import BrokerState

__all__ = ["clear_hold", "limit_resource", "remove_tenant", "set_hold", "set_tenant"]

_ROWS_MAX = 100_000


def set_tenant(state: BrokerState, command: SetTenant, revision: int) -> Decision:
    """Decide a tenant's policy."""
    fault = name_fault("tenant", command.tenant) or policy_fault(command.policy)
    if fault:
        return refused(Refusal.INVALID, fault)
    if state.count(Table.TENANTS) >= _ROWS_MAX and command.tenant not in state.policies:
        return refused(Refusal.QUEUE_FULL, f"{_ROWS_MAX:,} tenants have a policy: remove some")
    return answered([(RecordType.TENANT_SET, (command.tenant, *policy_columns(command.policy)))], Done(revision))


def remove_tenant(state: BrokerState, command: RemoveTenant, revision: int) -> Decision:
    """Decide that a tenant has the default policy."""
    if command.tenant not in state.policies:
        return refused(Refusal.NOT_FOUND, f"tenant {command.tenant[:60]!r} has no policy of its own")
    return answered([(RecordType.TENANT_REMOVED, (command.tenant,))], Done(revision))


def _hold_fault(tenant: str, task_type: str, key: str) -> str:
    return (
        name_fault("tenant", tenant, may_be_empty=True)
        or name_fault("type", task_type, may_be_empty=True)
        or name_fault("key", key, may_be_empty=True)
        or ("a hold of a key needs its tenant" if key and not tenant else "")
    )


def set_hold(state: BrokerState, command: SetHold, revision: int, now_ms: int) -> Decision:
    """Decide that tasks are held back, or refused."""
    hold = (command.tenant, command.type, command.key)
    fault = (
        _hold_fault(*hold)
        or number_fault("until_ms", command.until_ms, 0, TIME_MS_MAX)
        or text_fault("reason", command.reason, ERROR_BYTES_MAX)
        or ("" if command.is_paused or command.is_draining else "a hold pauses, or drains, or both")
        or ("until_ms has passed" if command.until_ms and command.until_ms <= now_ms else "")
    )
    if fault:
        return refused(Refusal.INVALID, fault)
    if len(state.holds) >= _ROWS_MAX and hold not in state.holds:
        return refused(Refusal.QUEUE_FULL, f"there are {_ROWS_MAX:,} holds: clear some")
    fields = (*hold, command.is_paused, command.is_draining, command.until_ms, command.reason)
    return answered([(RecordType.HOLD_SET, fields)], Done(revision))


def clear_hold(state: BrokerState, command: ClearHold, revision: int) -> Decision:
    """Decide that a hold ends."""
    hold = (command.tenant, command.type, command.key)
    if hold not in state.holds:
        return refused(Refusal.NOT_FOUND, "there is no such hold")
    return answered([(RecordType.HOLD_ENDED, hold)], Done(revision))


def limit_resource(state: BrokerState, command: LimitResource, revision: int) -> Decision:
    """Decide a resource's limit, or that it has none."""
    key = (command.resource, command.tenant, command.type)
    fault = (
        resource_name_fault(command.resource)
        or name_fault("tenant", command.tenant, may_be_empty=True)
        or name_fault("type", command.type, may_be_empty=True)
        or ("" if command.amount_max is None else number_fault("amount_max", command.amount_max, 0, AMOUNT_MAX))
    )
    if fault:
        return refused(Refusal.INVALID, fault)
    if command.amount_max is None:
        if state.get(Table.RESOURCES, *key) is None:
            return refused(Refusal.NOT_FOUND, f"resource {command.resource!r} has no such limit")
        return answered([(RecordType.RESOURCE_UNLIMITED, key)], Done(revision))
    if state.count(Table.RESOURCES) >= _ROWS_MAX and state.get(Table.RESOURCES, *key) is None:
        return refused(Refusal.QUEUE_FULL, f"there are {_ROWS_MAX:,} limits: remove some")
    return answered([(RecordType.RESOURCE_LIMITED, (*key, command.amount_max))], Done(revision))

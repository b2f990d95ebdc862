"""Settings of an administrator: tenants, holds, limits; and the settings that tenants may make of their own."""

from __future__ import annotations

from broker.machine.commands import ClearHold, LimitResource, RemoveTenant, SetHold, SetTenant
from broker.machine.decisions import answered, refused
from broker.machine.faults import name_fault, number_fault, policy_fault, resource_name_fault, text_fault
from broker.machine.holds import AuthorRole, author_of, signed
from broker.machine.limits import AMOUNT_MAX, ERROR_BYTES_MAX, TIME_MS_MAX
from broker.machine.replies import Done, Refusal
from broker.machine.rows import HoldRow, LimitRow, policy_columns, row_fields
from broker.machine.state import BrokerState
from broker.machine.tables import RecordType, Table
from rsm_spark.core.machine import Decision

_ROWS_MAX = 100_000
_TENANT_HOLDS_MAX = 1_000
"""Holds of one tenant; all together they never fill what an operator needs."""


def set_tenant(state: BrokerState, command: SetTenant, revision: int) -> Decision:
    """Decide a tenant's policy."""
    fault = name_fault("tenant", command.tenant) or policy_fault(command.policy)
    if fault:
        return refused(Refusal.INVALID, fault)
    if command.policy.format_level > state.format_level:
        return refused(
            Refusal.CONFLICT,
            f"the log has format level {state.format_level}, and older brokers would stop at what this policy allows: "
            "once all of them are upgraded, raise it by rsm log raise-format",
        )
    if state.count(Table.TENANTS) >= _ROWS_MAX and command.tenant not in state.policies.by_tenant:
        return refused(Refusal.QUEUE_FULL, f"{_ROWS_MAX:,} tenants have a policy: remove some")
    return answered(
        [(RecordType.TENANT_SET, row_fields((command.tenant,), policy_columns(command.policy)))], Done(revision)
    )


def remove_tenant(state: BrokerState, command: RemoveTenant, revision: int) -> Decision:
    """Decide that a tenant has the default policy."""
    if command.tenant not in state.policies.by_tenant:
        return refused(Refusal.NOT_FOUND, f"tenant {command.tenant[:60]!r} has no policy of its own")
    return answered([(RecordType.TENANT_REMOVED, (command.tenant,))], Done(revision))


def _hold_fault(tenant: str, task_type: str, key: str) -> str:
    return (
        name_fault("tenant", tenant, may_be_empty=True)
        or name_fault("type", task_type, may_be_empty=True)
        or name_fault("key", key, may_be_empty=True)
        or ("a hold of a key needs its tenant" if key and not tenant else "")
    )


def _ban_fault(state: BrokerState, hold: tuple[str, str, str], command: SetHold | ClearHold) -> str:
    """Return why somebody may not end or replace the hold that there is; "" = it may, or there is none."""
    found = state.get(Table.HOLDS, *hold)
    if found is None:
        return ""
    author = author_of(HoldRow(*found).reason)[1]
    if command.by.may_lift(author):
        return ""
    return "this hold was set by an operator" + (f" ({author.name})" if author.name else "") + ": only one can end it"


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
    ban = _ban_fault(state, hold, command)
    if ban:
        return refused(Refusal.NOT_ALLOWED, ban)
    if hold not in state.holds.ends:
        if len(state.holds.ends) >= _ROWS_MAX:
            return refused(Refusal.QUEUE_FULL, f"there are {_ROWS_MAX:,} holds: clear some")
        if command.by.role == AuthorRole.TENANT and state.holds.counts.get(command.tenant, 0) >= _TENANT_HOLDS_MAX:
            return refused(Refusal.QUEUE_FULL, f"tenant {command.tenant!r} has {_TENANT_HOLDS_MAX:,} holds: clear some")
    row = HoldRow(command.is_paused, command.is_draining, command.until_ms, signed(command.reason, command.by))
    return answered([(RecordType.HOLD_SET, row_fields(hold, row))], Done(revision))


def clear_hold(state: BrokerState, command: ClearHold, revision: int) -> Decision:
    """Decide that a hold ends."""
    hold = (command.tenant, command.type, command.key)
    if hold not in state.holds.ends:
        return refused(Refusal.NOT_FOUND, "there is no such hold")
    ban = _ban_fault(state, hold, command)
    if ban:
        return refused(Refusal.NOT_ALLOWED, ban)
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
    return answered([(RecordType.RESOURCE_LIMITED, row_fields(key, LimitRow(command.amount_max)))], Done(revision))

"""Rows of the broker's tables as they are read back, in the order of their columns."""

from __future__ import annotations

import msgspec

from broker.core.policies import TenantPolicy

__all__ = ["ProgressRow", "StateRow", "TaskRow", "WorkerRow", "policy_columns", "policy_of"]


class TaskRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of `tasks`; the payload stays packed until it is asked for."""

    tenant: str
    type: str
    payload: msgspec.Raw
    created_ms: int
    at_most_once: bool
    max_attempts: int
    priority: int
    group: int
    resources: str
    slot: str
    key: str
    start_ms: int
    deadline_ms: int
    timeout_ms: int
    heartbeat_ms: int
    code: str
    mode: str
    retry: str
    transaction: int

    def payload_bytes(self) -> bytes:
        """Return the payload."""
        return msgspec.msgpack.decode(self.payload, type=bytes)


class StateRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of `task_states`."""

    status: int
    attempts: int
    worker_id: str
    assignment_id: int
    assigned_ms: int
    ended_ms: int
    due_ms: int
    cancel_ms: int
    outcome: str
    error: str
    result: msgspec.Raw

    def result_bytes(self) -> bytes:
        """Return the result."""
        return msgspec.msgpack.decode(self.result, type=bytes)


class ProgressRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of `task_progress`."""

    assignment_id: int
    reported_ms: int
    fraction: float
    message: str


class WorkerRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of `workers`."""

    incarnation: str
    status: int
    location: str
    connected_ms: int
    changed_ms: int
    offer: str
    replaced: str = ""
    stream: int = 0


_OWN_COLUMNS = ("weight", "running_max", "waiting_max")


def policy_columns(policy: TenantPolicy) -> tuple[float, int, int, str]:
    """Return the columns of a row of `tenants`."""
    rest = msgspec.to_builtins(policy)
    for name in _OWN_COLUMNS:
        del rest[name]
    return float(policy.weight), policy.running_max, policy.waiting_max, msgspec.json.encode(rest).decode()


def policy_of(columns: tuple[float, int, int, str]) -> TenantPolicy:
    """Return the policy of a row of `tenants`."""
    weight, running_max, waiting_max, rest = columns
    fields = msgspec.json.decode(rest)
    fields.update(weight=weight, running_max=running_max, waiting_max=waiting_max)
    return msgspec.convert(fields, TenantPolicy)

"""Rows of the broker's tables: the one place where their columns have name, type and order.

`broker.machine.tables` describes the log by these classes, decisions write their fields, folds read them by name. A new
column is the last one of its class. A row stays packed in the state; what may be large in it (`msgspec.Raw`) stays
packed also when the row is read.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from broker.machine.policies import TenantPolicy
from ledger.decoding import convert, msgpack_decoder

Content = TypeVar("Content", bytes, msgspec.Raw)
"""Bytes in a record; packed in a row that is read."""


class TaskRow(msgspec.Struct, Generic[Content], frozen=True, array_like=True):
    """Row of a task as it was submitted.

    Attributes:
        max_attempts: 0 = unlimited.
        priority: `PRIORITY_OF_TENANT` = its tenant's.
        group: 0 = its tenant's.
        resources: "db=1,gpu=2", sorted by name.
        retry: JSON of a `RetryPolicy`; "" = the tenant's.
        transaction: 0 = none.

    """

    tenant: str
    type: str
    payload: Content
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


class StateRow(msgspec.Struct, Generic[Content], frozen=True, array_like=True):
    """State of a task: waiting, running, or how it ended."""

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
    result: Content


KeptTask = TaskRow[msgspec.Raw]
"""A row of `tasks` as it is read."""
KeptState = StateRow[msgspec.Raw]
"""A row of `task_states` as it is read."""


class ProgressRow(msgspec.Struct, frozen=True, array_like=True):
    """Last progress that a task's run reported."""

    assignment_id: int
    reported_ms: int
    fraction: float
    message: str


class SlotRow(msgspec.Struct, frozen=True, array_like=True):
    """Task that has a slot."""

    task_id: int


class RequestRow(msgspec.Struct, frozen=True, array_like=True):
    """Answer that a request got."""

    reply: bytes
    created_ms: int


class TransactionRow(msgspec.Struct, frozen=True, array_like=True):
    """A transaction that is open, or, with `expires_ms` 0, given up."""

    tenant: str
    created_ms: int
    expires_ms: int


class WorkerRow(msgspec.Struct, frozen=True, array_like=True):
    """A worker.

    Attributes:
        offer: JSON of a `WorkerOffer`.
        replaced: The last incarnations that this one and its predecessors replaced, "," between them.
        stream: The incarnation's number of the last stream by which it appeared; 0 = not said.

    """

    incarnation: str
    status: int
    location: str
    connected_ms: int
    changed_ms: int
    offer: str
    replaced: str = ""
    stream: int = 0


class TenantRow(msgspec.Struct, frozen=True, array_like=True):
    """A tenant's policy; 0 = no bound, `policy`: JSON of the rest."""

    weight: float
    running_max: int
    waiting_max: int
    policy: str


class HoldRow(msgspec.Struct, frozen=True, array_like=True):
    is_paused: bool
    is_draining: bool
    until_ms: int
    reason: str


class LimitRow(msgspec.Struct, frozen=True, array_like=True):
    """The limit of a resource."""

    amount_max: int


class CodeRow(msgspec.Struct, frozen=True, array_like=True):
    created_ms: int
    ttl_ms: int
    sha256: str
    archive: bytes


def unpacked(content: msgspec.Raw) -> bytes:
    """Return a payload or a result of a row that was read."""
    return msgpack_decoder(bytes).decode(content)


def row_fields(key: tuple[Any, ...], row: msgspec.Struct) -> tuple[Any, ...]:
    """Return the fields of the record that writes a row."""
    return key + msgspec.structs.astuple(row)


def task_fields(task_id: int, row: KeptTask, *, payload: bytes | None = None) -> tuple[Any, ...]:
    """Return the fields of the record that writes a task's row, perhaps with another payload."""
    content = unpacked(row.payload) if payload is None else payload
    return row_fields((task_id,), msgspec.structs.replace(row, payload=content))


def state_fields(
    task_id: int,
    status: int,
    attempts: int,
    worker_id: str = "",
    assignment_id: int = 0,
    *,
    assigned_ms: int = 0,
    ended_ms: int = 0,
    due_ms: int = 0,
    cancel_ms: int = 0,
    outcome: str = "",
    error: str = "",
    result: bytes = b"",
) -> tuple[Any, ...]:
    """Return the fields of a record that writes a row of `task_states`: a tuple at once costs less than a row."""
    return (
        task_id, status, attempts, worker_id, assignment_id, assigned_ms, ended_ms, due_ms, cancel_ms, outcome, error,
        result,
    )  # fmt: skip


_OWN_COLUMNS = ("weight", "running_max", "waiting_max")
_NEWER_FIELDS = {"bytes_max": 0, "types": None, "codes": (), "resources": None, "groups": None}
"""Fields that format level 1 does not know, with their values in rows without them: see `TenantPolicy.format_level`."""


def policy_columns(policy: TenantPolicy) -> TenantRow:
    """Return the row of a tenant with this policy."""
    rest = msgspec.to_builtins(policy)
    for name in _OWN_COLUMNS:
        del rest[name]
    for name, value in _NEWER_FIELDS.items():
        if getattr(policy, name) == value:
            del rest[name]
    text = msgspec.json.encode(rest).decode()
    return TenantRow(float(policy.weight), policy.running_max, policy.waiting_max, text)


def policy_of(row: TenantRow) -> TenantPolicy:
    """Return the policy of a row of `tenants`."""
    fields = msgspec.json.decode(row.policy)
    fields.update(weight=row.weight, running_max=row.running_max, waiting_max=row.waiting_max)
    return convert(fields, TenantPolicy)

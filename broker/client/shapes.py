"""What the broker answers, typed. Times are ms since 1970 in logged time, 0 = none; statuses are lower-case words.

Fields that a newer broker adds are passed over; those that an older one lacks have their defaults.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from broker.core.policies import TenantPolicy, WorkerOffer

__all__ = [
    "BatchSubmitted",
    "Change",
    "Code",
    "Event",
    "Explanation",
    "Hold",
    "Limits",
    "Overview",
    "Problem",
    "RefusedTask",
    "Resource",
    "Slot",
    "Status",
    "Submitted",
    "Task",
    "TaskPage",
    "Tenant",
    "Transaction",
    "TypeCounts",
    "Worker",
]

ENDED_STATUSES = frozenset({"finished", "error", "cancelled"})


class Problem(msgspec.Struct, frozen=True):
    """Why a request was not carried out (application/problem+json)."""

    title: str = ""
    detail: str = ""
    reason: str = ""
    slot_task_id: int = 0
    leader: str | None = None


class Task(msgspec.Struct, frozen=True):
    """A task as it is; see `broker.core.tables` for the fields.

    Attributes:
        status: "waiting", "delayed", "running", "finished", "error", "cancelled" or "prepared".
        payload: Only where one task is read, and if it is UTF-8; see `payload_bytes`.
        result: The same; see `result_bytes`.

    """

    task_id: int
    tenant: str = ""
    type: str = ""
    status: str = ""
    attempts: int = 0
    max_attempts: int = 0
    at_most_once: bool = False
    priority: int = 0
    group: int = 0
    resources: dict[str, int] = {}
    slot: str = ""
    key: str = ""
    created_ms: int = 0
    start_ms: int = 0
    deadline_ms: int = 0
    timeout_ms: int = 0
    heartbeat_ms: int = 0
    code: str = ""
    mode: str = ""
    transaction: int = 0
    worker_id: str = ""
    assignment_id: int = 0
    assigned_ms: int = 0
    ended_ms: int = 0
    due_ms: int = 0
    cancel_ms: int = 0
    outcome: str = ""
    error: str = ""
    progress_ms: int = 0
    progress: float = -1.0
    progress_message: str = ""
    payload: str | None = None
    payload_base64: str | None = None
    result: str | None = None
    result_base64: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it is finished, in error or cancelled."""
        return self.status in ENDED_STATUSES

    @property
    def payload_bytes(self) -> bytes:
        """What it was submitted with."""
        return _bytes(self.payload, self.payload_base64)

    @property
    def result_bytes(self) -> bytes:
        """What its run returned."""
        return _bytes(self.result, self.result_base64)


def _bytes(text: str | None, encoded: str | None) -> bytes:
    if encoded is not None:
        return base64.b64decode(encoded)
    return (text or "").encode()


class TaskPage(msgspec.Struct, frozen=True):
    """Tasks without payload and result, and where the next page begins; None = there are no more."""

    tasks: list[Task]
    next: int | None = None


class Submitted(msgspec.Struct, frozen=True):
    """A task was accepted."""

    task_id: int
    status: str = ""


class RefusedTask(msgspec.Struct, frozen=True):
    """A task of a batch was not accepted: another one has its slot."""

    index: int
    slot_task_id: int


class BatchSubmitted(msgspec.Struct, frozen=True):
    """Ids in the order of the batch, 0 where a task was refused."""

    task_ids: list[int]
    refused: list[RefusedTask] = []


class Change(msgspec.Struct, frozen=True):
    """Tasks were cancelled, changed or replayed: `count` now; `asked`: their workers are; `passed_over`: not there."""

    count: int = 0
    asked: int = 0
    passed_over: int = 0


class Explanation(msgspec.Struct, frozen=True):
    """Why a task is where it is; see `broker.core.shown.Explanation`."""

    status: str
    reason: str
    text: str
    place: int = -1
    due_ms: int = 0


class TypeCounts(msgspec.Struct, frozen=True):
    """Counts of one task type."""

    type: str
    by_status: dict[str, int] = {}


class Overview(msgspec.Struct, frozen=True):
    """Counts of all, or of one tenant's; see `broker.core.shown.OverviewShown`."""

    by_status: dict[str, int] = {}
    types: list[TypeCounts] = []
    workers_by_status: dict[str, int] = {}
    threads: int = 0
    tenant_count: int = 0
    oldest_waiting_ms: int = 0
    revision: int = 0
    logged_ms: int = 0


class Status(msgspec.Struct, frozen=True):
    """What the broker that was asked says of itself; `leader`, `leader_http`: who leads, as far as it knows."""

    role: str
    replica_id: str = ""
    leader: str = ""
    leader_http: str | None = None
    leader_epoch: int = 0
    revision: int = 0
    lag_ms: int = 0
    log: str = ""


class Worker(msgspec.Struct, frozen=True):
    """A worker."""

    worker_id: str
    incarnation: str = ""
    status: str = ""
    location: str = ""
    connected_ms: int = 0
    changed_ms: int = 0
    offer: WorkerOffer = WorkerOffer()
    running: int = 0
    running_by_type: dict[str, int] = {}


class Tenant(msgspec.Struct, frozen=True):
    """A tenant; see `broker.core.shown.TenantShown`."""

    tenant: str
    policy: TenantPolicy = TenantPolicy()
    is_default: bool = False
    by_status: dict[str, int] = {}
    share: float = 0.0
    dispatched: int = 0
    wait_ms_p50: float = -1
    wait_ms_p99: float = -1


class Resource(msgspec.Struct, frozen=True):
    """Use and limit (None = none) of a resource, in all or of one tenant or type."""

    resource: str
    tenant: str = ""
    type: str = ""
    amount_max: int | None = None
    used: int = 0


class Hold(msgspec.Struct, frozen=True):
    """Tasks that are held back, by tenant, type and key; "" = any."""

    tenant: str = ""
    type: str = ""
    key: str = ""
    is_paused: bool = False
    is_draining: bool = False
    until_ms: int = 0
    reason: str = ""


class Limits(msgspec.Struct, frozen=True):
    """Resources and holds."""

    resources: list[Resource] = []
    holds: list[Hold] = []


class Slot(msgspec.Struct, frozen=True):
    """A taken slot."""

    tenant: str
    slot: str
    task_id: int


class Transaction(msgspec.Struct, frozen=True):
    """An open transaction."""

    transaction: int
    tenant: str = ""
    created_ms: int = 0
    expires_ms: int = 0
    task_count: int = 0


class Code(msgspec.Struct, frozen=True):
    """A code pool."""

    code: str
    created_ms: int = 0
    ttl_ms: int = 0
    sha256: str = ""
    size_bytes: int = 0
    task_count: int = 0


class Event(msgspec.Struct, frozen=True):
    """A record of the log: its revision, its name (see `broker.core.tables`), its fields."""

    revision: int
    name: str
    fields: dict[str, Any] = {}

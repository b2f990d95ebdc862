"""Views: the results of queries."""

from __future__ import annotations

import msgspec

from broker.machine.holds import AuthorRole
from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.replies import Refused

__all__ = [
    "BrokerResult",
    "CodeArchive",
    "CodeView",
    "Codes",
    "ExplanationView",
    "HoldView",
    "LimitsView",
    "Nothing",
    "OverviewView",
    "ResourceView",
    "SlotView",
    "Slots",
    "TaskPageView",
    "TaskView",
    "TenantView",
    "Tenants",
    "TransactionView",
    "Transactions",
    "TypeView",
    "WorkerView",
    "Workers",
]


class TaskView(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=1):
    """A task as it is. Times are logged ms, 0 = none; see `broker.machine.tables` for the fields."""

    task_id: int
    tenant: str
    type: str
    status: int
    attempts: int
    max_attempts: int
    at_most_once: bool
    priority: int
    group: int
    resources: dict[str, int]
    slot: str
    key: str
    created_ms: int
    start_ms: int
    deadline_ms: int
    timeout_ms: int
    heartbeat_ms: int
    code: str
    mode: str
    transaction: int
    worker_id: str
    assignment_id: int
    assigned_ms: int
    ended_ms: int
    due_ms: int
    cancel_ms: int
    outcome: str
    error: str
    progress_ms: int
    progress: float
    progress_message: str
    payload: bytes = b""
    result: bytes = b""
    payload_gone: bool = False


class TaskPageView(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=2):
    """Tasks, and where the next page begins (`after`); 0 = there are no more."""

    tasks: list[TaskView]
    next: int


class ExplanationView(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=3):
    """Explanation of the state of a task.

    Attributes:
        status: Its status.
        reason: Machine-readable: "runnable", "delayed", "tenant-limit", "tenant-type-limit", "resource", "held",
            "key-held", "no-worker" (none serves its type and group), "workers-full", "worker-resource",
            "tenant-share", "prepared", "running", "ended".
        text: For people: the exact limit, who uses it up, or the task's place.
        place: Tasks of the tenant before it in its queue, -1 = not waiting.
        due_ms: When it may go on, if a time is what it waits for; 0 = no time.

    """

    status: int
    reason: str
    text: str
    place: int = -1
    due_ms: int = 0


class TypeView(msgspec.Struct, frozen=True, array_like=True):
    """Counts of one task type."""

    type: str
    by_status: dict[int, int]


class OverviewView(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=4):
    """Counts of all, or of one tenant's.

    Attributes:
        by_status: Tasks by status; no zeros.
        types: The same by type, by name; at most 200.
        workers_by_status: Workers by status.
        threads: Tasks that connected workers can run at once.
        tenant_count: Tenants with tasks that are not ended.
        oldest_waiting_ms: Creation of the oldest waiting task; 0 = none.
        revision: Of the state shown.
        logged_ms: Its logged time.

    """

    by_status: dict[int, int]
    types: list[TypeView]
    workers_by_status: dict[int, int]
    threads: int
    tenant_count: int
    oldest_waiting_ms: int
    revision: int
    logged_ms: int


class WorkerView(msgspec.Struct, frozen=True, array_like=True):
    worker_id: str
    incarnation: str
    status: int
    location: str
    connected_ms: int
    changed_ms: int
    offer: WorkerOffer
    running: int
    running_by_type: dict[str, int]


class Workers(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=5):
    workers: list[WorkerView]


class TenantView(msgspec.Struct, frozen=True, array_like=True):
    """A tenant.

    Attributes:
        tenant: Name.
        policy: In force.
        is_default: Nothing was said of it.
        by_status: Its tasks by status.
        share: Of all that run, 0 to 1.
        dispatched: Tasks dispatched since this process has followed.
        wait_ms_p50: From when a task could have run to its dispatch, over the last ones; -1 = none yet.
        wait_ms_p99: The same.

    """

    tenant: str
    policy: TenantPolicy
    is_default: bool
    by_status: dict[int, int]
    share: float
    dispatched: int
    wait_ms_p50: float
    wait_ms_p99: float


class Tenants(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=6):
    """Tenants by name; `next`: name after which the next page begins, "" = no more."""

    tenants: list[TenantView]
    next: str


class ResourceView(msgspec.Struct, frozen=True, array_like=True):
    """A resource: its use, and its limit (None = none), in all or of one tenant or type."""

    resource: str
    tenant: str
    type: str
    amount_max: int | None
    used: int


class HoldView(msgspec.Struct, frozen=True, array_like=True):
    """A hold, and who set it: "operator" or "tenant", and the name of the token."""

    tenant: str
    type: str
    key: str
    is_paused: bool
    is_draining: bool
    until_ms: int
    reason: str
    by_role: str = AuthorRole.OPERATOR
    by_name: str = ""


class LimitsView(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=7):
    """Resources and holds."""

    resources: list[ResourceView]
    holds: list[HoldView]


class SlotView(msgspec.Struct, frozen=True, array_like=True):
    tenant: str
    slot: str
    task_id: int


class Slots(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=8):
    """Taken slots; `next` as in `Tenants`."""

    slots: list[SlotView]
    next: str


class TransactionView(msgspec.Struct, frozen=True, array_like=True):
    transaction: int
    tenant: str
    created_ms: int
    expires_ms: int
    task_count: int


class Transactions(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=9):
    """Open transactions by id."""

    transactions: list[TransactionView]


class CodeView(msgspec.Struct, frozen=True, array_like=True):
    code: str
    created_ms: int
    ttl_ms: int
    sha256: str
    size_bytes: int
    task_count: int


class Codes(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=10):
    """Code pools by name."""

    codes: list[CodeView]


class CodeArchive(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=11):
    """A code pool with its bytes."""

    code: str
    sha256: str
    archive: bytes


class Nothing(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=12):
    """There is none, or none of that tenant."""


BrokerResult = (
    TaskView
    | TaskPageView
    | ExplanationView
    | OverviewView
    | Workers
    | Tenants
    | LimitsView
    | Slots
    | Transactions
    | Codes
    | CodeArchive
    | Nothing
    | Refused
)

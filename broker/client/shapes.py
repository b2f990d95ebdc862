"""Answers of the broker, typed. Times are ms since 1970 in logged time, 0 = none; statuses are lower-case words.

Fields that a newer broker adds are passed over; those that an older one lacks have their defaults.
"""

from __future__ import annotations

from typing import Any

import msgspec

from broker.client.task import Task
from broker.machine.policies import TenantPolicy, WorkerOffer


class Problem(msgspec.Struct, frozen=True):
    """Reason why a request was not carried out (application/problem+json)."""

    title: str = ""
    detail: str = ""
    reason: str = ""
    slot_task_id: int = 0
    leader: str | None = None


class TaskPage(msgspec.Struct, frozen=True):
    """Tasks without payload and result, and where the next page begins; None = there are no more."""

    tasks: list[Task]
    next: int | None = None


class Submitted(msgspec.Struct, frozen=True):
    """A task was accepted."""

    task_id: int
    status: str = ""


class TaskRefused(msgspec.Struct, frozen=True):
    """A task of a batch was not accepted: another one has its slot."""

    index: int
    slot_task_id: int


class BatchSubmitted(msgspec.Struct, frozen=True):
    """Ids in the order of the batch, 0 where a task was refused."""

    task_ids: list[int]
    refused: list[TaskRefused] = []


class Change(msgspec.Struct, frozen=True):
    """Tasks were cancelled, changed or replayed: `count` now; `asked`: their workers are; `passed_over`: not there."""

    count: int = 0
    asked: int = 0
    passed_over: int = 0


class Explanation(msgspec.Struct, frozen=True):
    """Explanation of a task's state; see `broker.machine.views.ExplanationView`."""

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
    """Counts of all, or of one tenant's; see `broker.machine.views.OverviewView`."""

    by_status: dict[str, int] = {}
    types: list[TypeCounts] = []
    workers_by_status: dict[str, int] = {}
    threads: int = 0
    tenant_count: int = 0
    oldest_waiting_ms: int = 0
    revision: int = 0
    logged_ms: int = 0


class BrokerStatus(msgspec.Struct, frozen=True):
    """Status of the broker that was asked; `leader`, `leader_http`: the leader, as far as it knows."""

    role: str
    replica_id: str = ""
    leader: str = ""
    leader_http: str | None = None
    leader_epoch: int = 0
    revision: int = 0
    lag_ms: int = 0
    log: str = ""


class WorkerSummary(msgspec.Struct, frozen=True):
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
    """A tenant; see `broker.machine.views.TenantView`."""

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
    """Tasks that are held back, by tenant, type and key ("" = any), and who did that: an operator or a tenant."""

    tenant: str = ""
    type: str = ""
    key: str = ""
    is_paused: bool = False
    is_draining: bool = False
    until_ms: int = 0
    reason: str = ""
    by_role: str = "operator"
    by_name: str = ""


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
    """A record of the log: its revision, its name (see `broker.machine.tables`), its fields."""

    revision: int
    name: str
    fields: dict[str, Any] = {}

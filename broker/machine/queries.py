"""Queries of the broker. An empty tenant stands for all tenants: the administrator's view."""

from __future__ import annotations

import msgspec


class GetTask(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=1):
    """One task, with payload and result if `whole`."""

    tenant: str
    task_id: int
    whole: bool = True


class ListTasks(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=2):
    """Tasks by filter, by id; without payloads and results.

    Attributes:
        tenant: Whose; "" = all.
        statuses: Of these; empty = any.
        type: "" = any.
        worker_id: That run there; if `statuses` names ended ones, also that ran there last. "" = any.
        slot: That have it; if `statuses` names ended ones, also that had it. "" = any.
        key: "" = any.
        after: Ids above (below, if `newest_first`) this one; 0 = from the beginning.
        limit: At most so many, 1 to 1,000. A page may end early, having looked at very many: see `TaskPage.next`.
        newest_first: Descending.
        looks_max: Tasks looked at before the page ends early, 1 to 10,000.

    """

    tenant: str
    statuses: list[int] = []
    type: str = ""
    worker_id: str = ""
    slot: str = ""
    key: str = ""
    after: int = 0
    limit: int = 100
    newest_first: bool = False
    looks_max: int = 10_000


class ExplainTask(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=3):
    """Query for the reason why a task waits."""

    tenant: str
    task_id: int


class GetOverview(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=4):
    """Counts."""

    tenant: str = ""


class ListWorkers(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=5):
    """All workers, by id."""


class ListTenants(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=6):
    """Tenants with a policy or with tasks, by name: those after `after`."""

    tenant: str = ""
    after: str = ""
    limit: int = 1_000


class ListLimits(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=7):
    """Resources, their limits and use, and holds."""

    tenant: str = ""


class ListSlots(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=8):
    """Slots that are taken."""

    tenant: str = ""
    after: str = ""
    limit: int = 1_000


class ListTransactions(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=9):
    tenant: str = ""


class ListCodes(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=10):
    """Code pools, without their archives."""


class GetCode(msgspec.Struct, frozen=True, array_like=True, tag_field="kind", tag=11):
    """One code pool with its archive."""

    code: str


BrokerQuery = (
    GetTask
    | ListTasks
    | ExplainTask
    | GetOverview
    | ListWorkers
    | ListTenants
    | ListLimits
    | ListSlots
    | ListTransactions
    | ListCodes
    | GetCode
)

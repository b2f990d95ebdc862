"""Queries, but for lists of tasks: see `broker.core.listing`."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

from broker.core import queries as ask
from broker.core.listing import list_tasks, show_task
from broker.core.shown import (
    BrokerResult,
    CodeArchive,
    Codes,
    CodeShown,
    Explanation,
    HoldShown,
    Limits,
    Nothing,
    OverviewShown,
    ResourceShown,
    Slots,
    SlotShown,
    Tenants,
    TenantShown,
    Transactions,
    TransactionShown,
    TypeShown,
    Workers,
    WorkerShown,
)
from broker.core.statuses import ENDED, TaskStatus, WorkerStatus
from broker.core.tables import Table
from broker.core.tasks import STATUS_COUNT, Task, TenantTasks

if TYPE_CHECKING:
    from broker.core.state import BrokerState

__all__ = ["answer"]

_TYPES_MAX = 200
_PAGE_MAX = 1_000
_EXACT_MAX = 1_000


def answer(state: BrokerState, query: ask.BrokerQuery, revision: int) -> BrokerResult:
    """Return what a query asks for."""
    match query:
        case ask.GetTask():
            task = _visible(state, query.tenant, query.task_id)
            return Nothing() if task is None else show_task(state, task, is_whole=query.whole)
        case ask.ListTasks():
            return list_tasks(state, query)
        case ask.ExplainTask():
            return _explain(state, query)
        case ask.Overview():
            return _overview(state, query.tenant, revision)
        case ask.ListWorkers():
            return _workers(state)
        case ask.ListTenants():
            return _tenants(state, query)
        case ask.ListLimits():
            return _limits(state, query.tenant)
        case ask.ListSlots():
            return _slots(state, query)
        case ask.ListTransactions():
            return _transactions(state, query.tenant)
        case ask.ListCodes():
            return _codes(state)
        case ask.GetCode():
            found = state.get(Table.CODE, query.code)
            return Nothing() if found is None else CodeArchive(query.code, found[2], found[3])
    raise AssertionError(query)


def _visible(state: BrokerState, tenant: str, task_id: int) -> Task | None:
    task = state.index.of(tenant, task_id)
    return None if task is None or state.is_given_up(task.transaction) else task


def _explain(state: BrokerState, query: ask.ExplainTask) -> BrokerResult:
    task = _visible(state, query.tenant, query.task_id)
    if task is None:
        return Nothing()
    status = int(task.status)
    if status == TaskStatus.WAITING:
        return state.scheduler.explain(task.task_id)
    if status == TaskStatus.DELAYED:
        row = state.state_row(task.task_id)
        after = "its start" if row is None else f"its next attempt, after {task.attempts} ({row.outcome}: {row.error})"
        return Explanation(status, "delayed", f"it waits for {after}", -1, task.at_ms)
    if status == TaskStatus.PREPARED:
        found = state.get(Table.TRANSACTIONS, task.transaction)
        text = f"it waits for the commit of transaction {task.transaction}"
        return Explanation(status, "prepared", text, -1, found[2] if found is not None else 0)
    if status == TaskStatus.RUNNING:
        text = f"worker {task.worker_id} runs it, attempt {task.attempts}, assignment {task.assignment_id}"
        return Explanation(status, "running", text)
    row = state.state_row(task.task_id)
    words = [TaskStatus(status).name.lower()]
    if row is not None:
        words += [word for word in (row.outcome, row.error) if word]
    return Explanation(status, "ended", "it is over: " + ", ".join(words))


def _overview(state: BrokerState, tenant: str, revision: int) -> OverviewShown:
    index = state.index
    one = index.tenants.get(tenant) if tenant else None
    by_type = index.by_type if not tenant else one.by_type if one is not None else {}
    totals = [0] * STATUS_COUNT
    for counts in by_type.values():
        for status, count in enumerate(counts):
            totals[status] += count
    largest = sorted(nsmallest(_TYPES_MAX, by_type, key=lambda kind: (-sum(by_type[kind]), kind)))
    workers: dict[int, int] = {}
    threads = 0
    for worker_id, row in state.workers.items():
        workers[row.status] = workers.get(row.status, 0) + 1
        if row.status == WorkerStatus.CONNECTED:
            threads += state.offers[worker_id].threads_max
    scope = list(index.tenants.values()) if not tenant else [one] if one is not None else []
    waiting = [first for each in scope if (first := _oldest_waiting(each))]
    oldest = min(waiting, default=0)
    return OverviewShown(
        _by_status(totals),
        [TypeShown(kind, _by_status(by_type[kind])) for kind in largest],
        workers,
        threads,
        sum(1 for each in scope if each.unfinished),
        state.task_row(oldest).created_ms if oldest else 0,
        revision,
        state.logged_ms,
    )


def _oldest_waiting(tenant: TenantTasks) -> int:
    """Return the lowest id that waits, 0 = none; of very many that came in, the first that has waited all along."""
    waiting = tenant.sets[TaskStatus.WAITING]
    if len(waiting) > _EXACT_MAX:
        return next(iter(waiting))
    return min(waiting, default=0)


def _by_status(counts: list[int]) -> dict[int, int]:
    return {status: count for status, count in enumerate(counts) if count}


def _workers(state: BrokerState) -> Workers:
    shown: list[WorkerShown] = []
    for worker_id in sorted(state.workers):
        row = state.workers[worker_id]
        by_type: dict[str, int] = {}
        runs = state.index.by_worker.get(worker_id, {})
        for task in runs.values():
            by_type[task.type] = by_type.get(task.type, 0) + 1
        shown.append(
            WorkerShown(
                worker_id=worker_id,
                incarnation=row.incarnation,
                status=row.status,
                location=row.location,
                connected_ms=row.connected_ms,
                changed_ms=row.changed_ms,
                offer=state.offers[worker_id],
                running=len(runs),
                running_by_type=by_type,
            )
        )
    return Workers(shown)


def _tenants(state: BrokerState, query: ask.ListTenants) -> Tenants:
    index = state.index
    if query.tenant:
        names = [query.tenant] if query.tenant in index.tenants or query.tenant in state.policies else []
    else:
        every = {**dict.fromkeys(index.tenants), **dict.fromkeys(state.policies)}
        names = nsmallest(_limit(query.limit) + 1, (name for name in every if name > query.after))
    limit = _limit(query.limit)
    page, rest = names[:limit], names[limit:]
    running = sum(map(len, index.by_worker.values()))
    return Tenants([_tenant(state, name, running) for name in page], page[-1] if rest else "")


def _tenant(state: BrokerState, name: str, running: int) -> TenantShown:
    found = state.index.tenants.get(name)
    by_status = {} if found is None else _by_status([len(ids) for ids in found.sets])
    share = by_status.get(TaskStatus.RUNNING, 0) / running if running else 0.0
    dispatched, waits = state.scheduler.waits(name)
    p50, p99 = (float(waits[int(len(waits) * part)]) if waits else -1.0 for part in (0.5, 0.99))
    return TenantShown(name, state.policy(name), name not in state.policies, by_status, share, dispatched, p50, p99)


def _limit(limit: int) -> int:
    return max(1, min(limit, _PAGE_MAX))


def _limits(state: BrokerState, tenant: str) -> Limits:
    resources = [
        ResourceShown(resource, of_tenant, of_type, amount_max, state.scheduler.used(resource, of_tenant, of_type))
        for (resource, of_tenant, of_type), (amount_max,) in sorted(state.items(Table.RESOURCES))
        if not tenant or of_tenant in {"", tenant}
    ]
    limited = {shown.resource for shown in resources if not shown.tenant and not shown.type}
    resources += [
        ResourceShown(resource, "", "", None, used)
        for resource, used in state.scheduler.resources_in_use()
        if resource not in limited and not tenant
    ]
    holds = [
        HoldShown(*key, *row) for key, row in sorted(state.items(Table.HOLDS)) if not tenant or key[0] in {"", tenant}
    ]
    return Limits(resources, holds)


def _slots(state: BrokerState, query: ask.ListSlots) -> Slots:
    """Return a page of slots: by name within a tenant; of all tenants, "tenant/slot" is what a page goes on after."""

    def _place(tenant: str, slot: str) -> str:
        return slot if query.tenant else f"{tenant}/{slot}"

    limit = _limit(query.limit)
    found = (
        (_place(tenant, slot), tenant, slot, task_id)
        for (tenant, slot), (task_id,) in state.items(Table.SLOTS)
        if (not query.tenant or tenant == query.tenant) and _place(tenant, slot) > query.after
    )
    page = nsmallest(limit + 1, found)
    shown = [
        SlotShown(tenant, slot, task_id)
        for _, tenant, slot, task_id in page[:limit]
        if task_id in state.index.tasks and state.index.tasks[task_id].status not in ENDED
    ]
    return Slots(shown, page[limit - 1][0] if len(page) > limit else "")


def _transactions(state: BrokerState, tenant: str) -> Transactions:
    return Transactions(
        [
            TransactionShown(number, owner, created_ms, expires_ms, len(state.index.by_transaction[number]))
            for (number,), (owner, created_ms, expires_ms) in sorted(state.items(Table.TRANSACTIONS))
            if expires_ms and (not tenant or owner == tenant)
        ]
    )


def _codes(state: BrokerState) -> Codes:
    return Codes(
        [
            CodeShown(code, created_ms, ttl_ms, digest, len(archive), state.code_use.get(code, 0))
            for (code,), (created_ms, ttl_ms, digest, archive) in sorted(state.items(Table.CODE))
        ]
    )

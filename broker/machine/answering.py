"""Queries, but for lists of tasks: see `broker.machine.listing`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import Any, TypeVar

from broker.machine import queries as ask
from broker.machine.holds import author_of
from broker.machine.index.tasks import STATUS_COUNT, TaskState, TenantTasks
from broker.machine.listing import list_tasks, show_task
from broker.machine.rows import CodeRow, HoldRow, TransactionRow
from broker.machine.state import BrokerState
from broker.machine.statuses import ENDED, TaskStatus, WorkerStatus
from broker.machine.tables import Table
from broker.machine.views import (
    BrokerResult,
    CodeArchive,
    Codes,
    CodeView,
    ExplanationView,
    HoldView,
    LimitsView,
    Nothing,
    OverviewView,
    ResourceView,
    Slots,
    SlotView,
    Tenants,
    TenantView,
    Transactions,
    TransactionView,
    TypeView,
    Workers,
    WorkerView,
)

_TYPES_MAX = 200
_PAGE_MAX = 1_000
_EXACT_MAX = 1_000


RowT = TypeVar("RowT")


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
        case ask.GetOverview():
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
            if found is None:
                return Nothing()
            row = CodeRow(*found)
            return CodeArchive(query.code, row.sha256, row.archive)
    raise AssertionError(query)


def _visible(state: BrokerState, tenant: str, task_id: int) -> TaskState | None:
    task = state.tasks.of(tenant, task_id)
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
        return ExplanationView(status, "delayed", f"it waits for {after}", -1, task.at_ms)
    if status == TaskStatus.PREPARED:
        found = state.transaction_row(task.transaction)
        text = f"it waits for the commit of transaction {task.transaction}"
        return ExplanationView(status, "prepared", text, -1, found.expires_ms if found is not None else 0)
    if status == TaskStatus.RUNNING:
        text = f"worker {task.worker_id} runs it, attempt {task.attempts}, assignment {task.assignment_id}"
        return ExplanationView(status, "running", text)
    row = state.state_row(task.task_id)
    words = [TaskStatus(status).name.lower()]
    if row is not None:
        words += [word for word in (row.outcome, row.error) if word]
    return ExplanationView(status, "ended", "it is over: " + ", ".join(words))


def _overview(state: BrokerState, tenant: str, revision: int) -> OverviewView:
    index = state.tasks
    one = index.tenants.get(tenant) if tenant else None
    by_type = index.by_type if not tenant else one.by_type if one is not None else {}
    totals = [0] * STATUS_COUNT
    for counts in by_type.values():
        for status, count in enumerate(counts):
            totals[status] += count
    largest = sorted(nsmallest(_TYPES_MAX, by_type, key=lambda kind: (-sum(by_type[kind]), kind)))
    workers: dict[int, int] = {}
    threads = 0
    for worker_id, row in state.workers.by_id.items():
        workers[row.status] = workers.get(row.status, 0) + 1
        if row.status == WorkerStatus.CONNECTED:
            threads += state.workers.offers[worker_id].threads_max
    scope = list(index.tenants.values()) if not tenant else [one] if one is not None else []
    waiting = [first for each in scope if (first := _oldest_waiting(each))]
    oldest = min(waiting, default=0)
    return OverviewView(
        _by_status(totals),
        [TypeView(kind, _by_status(by_type[kind])) for kind in largest],
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
    shown: list[WorkerView] = []
    for worker_id in sorted(state.workers.by_id):
        row = state.workers.by_id[worker_id]
        by_type: dict[str, int] = {}
        runs = state.tasks.by_worker.get(worker_id, {})
        for task in runs.values():
            by_type[task.type] = by_type.get(task.type, 0) + 1
        shown.append(
            WorkerView(
                worker_id=worker_id,
                incarnation=row.incarnation,
                status=row.status,
                location=row.location,
                connected_ms=row.connected_ms,
                changed_ms=row.changed_ms,
                offer=state.workers.offers[worker_id],
                running=len(runs),
                running_by_type=by_type,
            )
        )
    return Workers(shown)


def _tenants(state: BrokerState, query: ask.ListTenants) -> Tenants:
    index = state.tasks
    if query.tenant:
        names = [query.tenant] if query.tenant in index.tenants or query.tenant in state.policies.by_tenant else []
    else:
        every = {**dict.fromkeys(index.tenants), **dict.fromkeys(state.policies.by_tenant)}
        names = nsmallest(_limit(query.limit) + 1, (name for name in every if name > query.after))
    limit = _limit(query.limit)
    page, rest = names[:limit], names[limit:]
    running = sum(map(len, index.by_worker.values()))
    return Tenants([_tenant(state, name, running) for name in page], page[-1] if rest else "")


def _tenant(state: BrokerState, name: str, running: int) -> TenantView:
    found = state.tasks.tenants.get(name)
    by_status = {} if found is None else _by_status([len(ids) for ids in found.sets])
    share = by_status.get(TaskStatus.RUNNING, 0) / running if running else 0.0
    dispatched, waits = state.scheduler.waits(name)
    p50, p99 = (float(waits[int(len(waits) * part)]) if waits else -1.0 for part in (0.5, 0.99))
    return TenantView(
        name, state.policies.of(name), name not in state.policies.by_tenant, by_status, share, dispatched, p50, p99
    )


def _limit(limit: int) -> int:
    return max(1, min(limit, _PAGE_MAX))


def _limits(state: BrokerState, tenant: str) -> LimitsView:
    resources = [
        ResourceView(resource, of_tenant, of_type, amount_max, state.scheduler.used(resource, of_tenant, of_type))
        for (resource, of_tenant, of_type), (amount_max,) in sorted(state.items(Table.RESOURCES))
        if not tenant or of_tenant in {"", tenant}
    ]
    limited = {shown.resource for shown in resources if not shown.tenant and not shown.type}
    resources += [
        ResourceView(resource, "", "", None, used)
        for resource, used in state.scheduler.resources_in_use()
        if resource not in limited and not tenant
    ]
    holds = [_hold(key, row) for key, row in _rows(state, Table.HOLDS, HoldRow) if not tenant or key[0] in {"", tenant}]
    return LimitsView(resources, holds)


def _hold(key: tuple[Any, ...], row: HoldRow) -> HoldView:
    reason, author = author_of(row.reason)
    tenant, task_type, hold_key = key
    return HoldView(
        tenant, task_type, hold_key, row.is_paused, row.is_draining, row.until_ms, reason, author.role, author.name
    )


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
        SlotView(tenant, slot, task_id)
        for _, tenant, slot, task_id in page[:limit]
        if task_id in state.tasks.by_id and state.tasks.by_id[task_id].status not in ENDED
    ]
    return Slots(shown, page[limit - 1][0] if len(page) > limit else "")


def _rows(state: BrokerState, table: str, made: Callable[..., RowT]) -> Iterator[tuple[tuple[Any, ...], RowT]]:
    """Iterate over (key, row) of a table, by key."""
    return ((key, made(*columns)) for key, columns in sorted(state.items(table)))


def _transactions(state: BrokerState, tenant: str) -> Transactions:
    return Transactions(
        [
            TransactionView(number, row.tenant, row.created_ms, row.expires_ms, len(state.tasks.by_transaction[number]))
            for (number,), row in _rows(state, Table.TRANSACTIONS, TransactionRow)
            if row.expires_ms and (not tenant or row.tenant == tenant)
        ]
    )


def _codes(state: BrokerState) -> Codes:
    return Codes(
        [
            CodeView(code, row.created_ms, row.ttl_ms, row.sha256, len(row.archive), state.codes.use.get(code, 0))
            for (code,), row in _rows(state, Table.CODE, CodeRow)
        ]
    )

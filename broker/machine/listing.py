"""Tasks as they are shown, one and many.

A list is taken from the smallest set that its filter names: a slot's task, a worker's runs, the sets of its statuses.
Where those are large, ids are gone through in order, up to a bound: then the page ends early and says where to go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice

from broker.machine.index.tasks import STATUS_COUNT, TaskFlag, TaskState
from broker.machine.payload_release import is_payload_gone
from broker.machine.queries import ListTasks
from broker.machine.resources import resources_of
from broker.machine.rows import TaskRow, unpacked
from broker.machine.state import BrokerState
from broker.machine.statuses import ENDED, TaskStatus
from broker.machine.submitting import slot_holder
from broker.machine.tables import PRIORITY_OF_TENANT
from broker.machine.views import TaskPageView, TaskView

_LIMIT_MAX = 1_000
_SET_MAX = 2_000
"""Sets that are larger together are not put in order for each page."""
_LOOKS_MAX = 10_000
_KNOWN = TaskView.__struct_fields__.index("payload_gone") + 1


_ADDED = [name for name in TaskView.__struct_fields__[_KNOWN:] if name in TaskRow.__struct_fields__]
"""Fields behind those that `show_task` names: shown as they are in the task's row."""


def show_task(state: BrokerState, task: TaskState, *, is_whole: bool) -> TaskView:
    """Return a task as it is, with payload and result if `is_whole`."""
    task_id, status = task.task_id, int(task.status)
    row, policy = state.task_row(task_id), state.policies.of(task.tenant.name)
    found = state.state_row(task_id) if task.flags & TaskFlag.STATE else None
    progress = state.progress_row(task_id) if task.flags & TaskFlag.PROGRESS else None
    is_running, is_delayed = status == TaskStatus.RUNNING, status == TaskStatus.DELAYED
    return TaskView(
        task_id=task_id,
        tenant=row.tenant,
        type=row.type,
        status=status,
        attempts=task.attempts,
        max_attempts=row.max_attempts,
        at_most_once=row.at_most_once,
        priority=policy.priority if row.priority == PRIORITY_OF_TENANT else row.priority,
        group=row.group or policy.group,
        resources=dict(resources_of(row.resources)),
        slot=row.slot,
        key=row.key,
        created_ms=row.created_ms,
        start_ms=row.start_ms,
        deadline_ms=row.deadline_ms,
        timeout_ms=row.timeout_ms,
        heartbeat_ms=row.heartbeat_ms,
        code=row.code,
        mode=row.mode,
        transaction=row.transaction,
        worker_id="" if found is None else found.worker_id,
        assignment_id=task.assignment_id,
        assigned_ms=0 if found is None else found.assigned_ms,
        ended_ms=task.at_ms if task.has_ended else 0,
        due_ms=task.at_ms if is_delayed else 0,
        cancel_ms=0 if found is None or not (is_running or task.has_ended) else found.cancel_ms,
        outcome="" if found is None else found.outcome,
        error="" if found is None else found.error,
        progress_ms=0 if progress is None else progress.reported_ms,
        progress=-1.0 if progress is None else progress.fraction,
        progress_message="" if progress is None else progress.message,
        payload=unpacked(row.payload) if is_whole else b"",
        result=unpacked(found.result) if found is not None and is_whole else b"",
        payload_gone=is_whole and is_payload_gone(state, task),
        **{name: getattr(row, name) for name in _ADDED},
    )


def list_tasks(state: BrokerState, query: ListTasks) -> TaskPageView:
    """Return a page of tasks."""
    limit = max(1, min(query.limit, _LIMIT_MAX))
    if query.type and not _has_type(state, query):
        return TaskPageView([], 0)
    ids = _candidates(state, query)
    page: list[TaskView] = []
    last = 0
    for task_id in islice(ids, max(1, min(query.looks_max, _LOOKS_MAX))):
        if len(page) == limit:
            return TaskPageView(page, last)
        last = task_id
        task = state.tasks.by_id[task_id]
        if _fits(state, task, query):
            page.append(show_task(state, task, is_whole=False))
    return TaskPageView(page, 0 if next(ids, None) is None else last)


def _has_type(state: BrokerState, query: ListTasks) -> bool:
    """Return whether there is any task of the type that is asked for."""
    one = state.tasks.tenants.get(query.tenant) if query.tenant else None
    by_type = state.tasks.by_type if not query.tenant else {} if one is None else one.by_type
    return query.type in by_type


def _candidates(state: BrokerState, query: ListTasks) -> Iterator[int]:
    """Iterate over ids among which all are that fit, in the order asked for, after the place asked for."""
    index = state.tasks
    is_present = all(status not in ENDED for status in query.statuses)
    if query.slot and is_present:
        tenants = [query.tenant] if query.tenant else list(index.tenants)
        holders = (slot_holder(state, tenant, query.slot) for tenant in tenants)
        return _ordered([holder for holder in holders if holder], query)
    if query.worker_id and is_present:
        return _ordered(index.by_worker.get(query.worker_id, {}), query)
    one = index.tenants.get(query.tenant) if query.tenant else None
    if query.tenant and one is None:
        return iter(())
    if query.statuses:
        scope = list(index.tenants.values()) if one is None else [one]
        sets = [tenant.sets[status] for tenant in scope for status in _statuses(query)]
        if sum(map(len, sets)) <= _SET_MAX:
            return _ordered(chain.from_iterable(sets), query)
    ids = index.ids if one is None else one.ids
    return ids.before(query.after) if query.newest_first else ids.after(query.after)


def _statuses(query: ListTasks) -> list[int]:
    return [status for status in range(STATUS_COUNT) if status in query.statuses]


def _ordered(ids: Iterable[int], query: ListTasks) -> Iterator[int]:
    after = query.after
    if query.newest_first:
        return iter(sorted((one for one in ids if not after or one < after), reverse=True))
    return iter(sorted(one for one in ids if one > after))


def _fits(state: BrokerState, task: TaskState, query: ListTasks) -> bool:
    if query.statuses and task.status not in query.statuses:
        return False
    if (query.tenant and task.tenant.name != query.tenant) or (query.type and task.type != query.type):
        return False
    if task.transaction and state.is_given_up(task.transaction):
        return False
    if query.worker_id and task.worker_id != query.worker_id:
        row = state.state_row(task.task_id) if task.flags & TaskFlag.STATE else None
        if row is None or row.worker_id != query.worker_id:
            return False
    if query.slot or query.key:
        columns = state.task_row(task.task_id)
        return query.slot in {"", columns.slot} and query.key in {"", columns.key}
    return True

"""Records that time makes due, and the assignments that the scheduler decides.

Every record is applied before the next is asked for, so each looks at the state as it then is; and each is right on its
own, since an entry may end with any of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.machine.completion import cancel_asked, ended, lost, requeued
from broker.machine.decisions import LoggedRecord
from broker.machine.index.tasks import TaskFlag, TaskState
from broker.machine.index.timers import PlanKind
from broker.machine.payload_release import payloads_spent
from broker.machine.rows import state_fields
from broker.machine.state import BrokerState
from broker.machine.statuses import Outcome, TaskStatus
from broker.machine.tables import RecordType, Table
from broker.machine.transactions import expired
from broker.machine.worker_changes import awaited

_TOLD_MAX = 5_000
_RUNNING = int(TaskStatus.RUNNING)


def next_due_ms(state: BrokerState, promoted_ms: int) -> int | None:
    """Return when something is due next: 0 = at once, None = nothing is planned."""
    if not state.workers.is_promoted(promoted_ms) or state.workers.awaited:
        return 0
    if state.scheduler.has_work or state.tasks.residue or state.bounds or state.spent or state.demands:
        return 0
    first = state.timers.first()
    times = (None if first is None else first.at_ms, state.ended.next_ms(), state.requests.next_ms())
    return min((at_ms for at_ms in times if at_ms is not None), default=None)


def due(state: BrokerState, now_ms: int, promoted_ms: int, limit: int) -> Iterator[LoggedRecord]:
    """Yield what is due, at most `limit` records: what a promotion, what time ends, what was kept, assignments.

    Half of them at most for time, three quarters for that and the purge: assignments have room in every entry.
    """
    count = 0
    for record in awaited(state, promoted_ms, now_ms):
        yield record
        count += 1
        if count >= limit:
            return
    for share, records in ((2, _timed(state, now_ms, promoted_ms)), (3, _purge(state, now_ms))):
        for record in records:
            yield record
            count += 1
            if count >= limit:
                return
            if count * 4 >= limit * share:
                break
    state.demands.tell_some(_TOLD_MAX)
    for task_id, worker_id in _assignments(state, now_ms):
        attempts = state.tasks.by_id[task_id].attempts + 1
        yield RecordType.TASK_ASSIGNED, state_fields(task_id, _RUNNING, attempts, worker_id, assigned_ms=now_ms)
        count += 1
        if count >= limit:
            return


def _assignments(state: BrokerState, now_ms: int) -> Iterator[tuple[int, str]]:
    """Yield (task, worker); no task goes by a policy of its tenant that holds no more."""
    is_stale = True
    while is_stale:
        is_stale = False
        for task_id, worker_id in state.scheduler.next_assignments(now_ms):
            if state.demands and state.demands.tell_first(task_id):
                is_stale = True
                break
            yield task_id, worker_id


def _timed(state: BrokerState, now_ms: int, promoted_ms: int) -> Iterator[LoggedRecord]:
    while state.tasks.residue:
        yield from _residue(state, next(iter(state.tasks.residue)))
    while (first := state.timers.first()) is not None and first.at_ms <= now_ms:
        match first.kind:
            case PlanKind.TASK:
                yield from _task(state, state.tasks.by_id[first.key], now_ms, promoted_ms)
            case PlanKind.TRANSACTION:
                yield from _transaction(state, first.key, now_ms, promoted_ms)
            case PlanKind.HOLD:
                yield RecordType.HOLD_ENDED, first.key
            case PlanKind.WORKER:
                yield RecordType.WORKER_REMOVED, (first.key,)
            case PlanKind.CODE:
                if first.key in state.codes.use:
                    state.timers.forget(PlanKind.CODE, first.key)  # Planned again when nothing needs it.
                else:
                    yield RecordType.CODE_REMOVED, (first.key,)


def _residue(state: BrokerState, task_id: int) -> Iterator[LoggedRecord]:
    """Yield the records that remove what an entry had no room for."""
    task = state.tasks.by_id.get(task_id)
    if task is not None:
        if task.flags & TaskFlag.SLOT:
            yield RecordType.SLOT_RELEASED, (task.tenant.name, state.task_row(task_id).slot)
        if task.flags & TaskFlag.PROGRESS:
            yield RecordType.PROGRESS_REMOVED, (task_id,)
        return
    if state.has_row(Table.PROGRESS, task_id):
        yield RecordType.PROGRESS_REMOVED, (task_id,)
    if state.has_row(Table.STATES, task_id):
        yield RecordType.STATE_REMOVED, (task_id,)


def _task(state: BrokerState, task: TaskState, now_ms: int, promoted_ms: int) -> Iterator[LoggedRecord]:
    """Yield what is due of one task; plan it anew if it is nothing."""
    task_id, deadline_ms = task.task_id, task.deadline_ms
    is_over = bool(deadline_ms) and deadline_ms <= now_ms
    if task.status == TaskStatus.RUNNING:
        yield from _run(state, task, now_ms, promoted_ms)
    elif is_over and task.status in {TaskStatus.WAITING, TaskStatus.DELAYED}:
        text = f"its deadline passed before it {'ran' if not task.attempts else 'had ended well'}"
        yield from ended(state, task, now_ms, TaskStatus.ERROR, Outcome.DEADLINE_EXPIRED, text)
    elif task.status == TaskStatus.DELAYED and task.at_ms <= now_ms:
        row = state.state_row(task_id)
        outcome, error = ("", "") if row is None else (row.outcome, row.error)
        yield from requeued(task, now_ms, attempts=task.attempts, due_ms=task.at_ms, outcome=outcome, error=error)
    else:
        state.timers.forget(PlanKind.TASK, task_id)


def _run(state: BrokerState, task: TaskState, now_ms: int, promoted_ms: int) -> Iterator[LoggedRecord]:
    """Yield what is due of a running task. A new leader gives it its full lengths again, but not a later deadline."""
    task_id = task.task_id
    is_asked = bool(task.flags & TaskFlag.CANCEL)
    times: list[int] = []
    if task.deadline_ms and not is_asked:
        if task.deadline_ms <= now_ms:
            yield cancel_asked(task, now_ms, Outcome.DEADLINE_EXPIRED)
            return
        times.append(task.deadline_ms)
    if task.flags & TaskFlag.WATCHED:
        row = state.task_row(task_id)
        since_ms = max(task.at_ms, promoted_ms)
        if row.timeout_ms and not is_asked:
            end_ms = since_ms + row.timeout_ms + state.rules.timeout_grace_ms
            if end_ms <= now_ms:
                yield cancel_asked(task, now_ms, Outcome.TIMED_OUT)
                return
            times.append(end_ms)
        if row.heartbeat_ms:
            progress = state.progress_row(task_id)
            heard_ms = since_ms if progress is None else max(since_ms, progress.reported_ms)
            if heard_ms + row.heartbeat_ms <= now_ms:
                text = f"worker {task.worker_id} said nothing of it for {now_ms - heard_ms} ms"
                yield from lost(state, task, now_ms, Outcome.STALLED, text)
                return
            times.append(heard_ms + row.heartbeat_ms)
    if times:
        state.timers.plan(PlanKind.TASK, task_id, min(times))
    else:
        state.timers.forget(PlanKind.TASK, task_id)


def _transaction(state: BrokerState, transaction: int, now_ms: int, promoted_ms: int) -> Iterator[LoggedRecord]:
    found = state.transaction_row(transaction)
    assert found is not None
    end_ms = max(found.created_ms, promoted_ms) + found.expires_ms - found.created_ms
    if found.expires_ms and end_ms > now_ms:
        state.timers.plan(PlanKind.TRANSACTION, transaction, end_ms)
    else:
        yield from expired(state, transaction)


def _purge(state: BrokerState, now_ms: int) -> Iterator[LoggedRecord]:
    """Yield the records that remove what was kept for long enough."""
    for tenant, request_key in state.requests.due(now_ms):
        yield RecordType.REQUEST_FORGOTTEN, (tenant, request_key)
    left = state.rules.purge_tasks_max
    for task in state.ended.due(now_ms):
        # The task goes before what became of it: without the latter it would seem to wait.
        yield RecordType.TASK_REMOVED, (task.task_id,)
        yield from _residue(state, task.task_id)
        left -= 1
        if not left:
            return
    yield from payloads_spent(state, state.rules.purge_tasks_max)
    for task in state.bounds.beyond():
        yield RecordType.TASK_REMOVED, (task.task_id,)
        yield from _residue(state, task.task_id)
        left -= 1
        if not left:
            return

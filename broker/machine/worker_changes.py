"""Workers come and go, and what becomes of their runs.

    assigned above `delivered_up_to`, same incarnation    never delivered: waits again, the attempt does not count
    named in `ended`                                      ends as it says
    named in `held`, same incarnation                     goes on
    anything else                                         lost: at-most-once ends as `outcome_unknown`, others run again
    held, but no task's present run                       it is told to end it

Of another incarnation than the one that comes, nothing is known of delivery: all its runs are lost, but those ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from broker.machine.commands import HeldRun, RemoveWorker, WorkerAppeared, WorkerChanged, WorkerLost
from broker.machine.completion import lost, undelivered
from broker.machine.decisions import LoggedRecord, answered, refused
from broker.machine.faults import name_fault, number_fault, offer_fault, text_fault
from broker.machine.limits import ID_MAX, NAME_BYTES_MAX, THREADS_MAX
from broker.machine.policies import WorkerOffer
from broker.machine.replies import Done, Refusal
from broker.machine.rows import WorkerRow, row_fields
from broker.machine.runs import end_records, is_current, settled_ids
from broker.machine.state import BrokerState
from broker.machine.statuses import Outcome, WorkerStatus
from broker.machine.tables import RecordType
from rsm_spark.core.machine import Decision

_REPLACED_MAX = 8
_WORKERS_MAX = 10_000
_WITH_STREAM = frozenset({WorkerStatus.CONNECTED, WorkerStatus.DRAINING})


def _offer_text(offer: WorkerOffer) -> str:
    said = msgspec.to_builtins(offer)
    if offer.tenants is None:
        del said["tenants"]  # Level 1 does not know the word.
    return msgspec.json.encode(said).decode()


def _level_fault(state: BrokerState, offer: WorkerOffer) -> str:
    if offer.format_level <= state.format_level:
        return ""
    return (
        f"the log has format level {state.format_level}, and older brokers would stop at a worker that is bound to "
        "tenants: once all of them are upgraded, raise it by rsm log raise-format"
    )


def _fields(worker_id: str, row: WorkerRow) -> tuple[str | int, ...]:
    return row_fields((worker_id,), msgspec.structs.replace(row, status=int(row.status)))


def _stale(worker_id: str, incarnation: str, found: WorkerRow | None) -> Decision:
    known = "is not known" if found is None else f"is at present incarnation {found.incarnation!r}"
    return refused(
        Refusal.STALE_WORKER,
        f"incarnation {incarnation[:60]!r} of worker {worker_id[:60]!r}: that worker {known}. Two processes with one "
        "worker id take turns: give each its own",
    )


def _runs_fault(runs: Iterable[HeldRun]) -> str:
    is_sound = all(0 < run.task_id <= ID_MAX and 0 < run.assignment_id <= ID_MAX for run in runs)
    return "" if is_sound else "a held run has an id that no run can have"


def worker_appeared(state: BrokerState, command: WorkerAppeared, revision: int, now_ms: int) -> Decision:
    """Decide that a worker has opened its stream."""
    worker_id, incarnation = command.worker_id, command.incarnation
    fault = (
        name_fault("worker_id", worker_id)
        or name_fault("incarnation", incarnation)
        or ("incarnation has ',' in it" if "," in incarnation else "")
        or text_fault("location", command.location, NAME_BYTES_MAX)
        or offer_fault(command.offer)
        or number_fault("number of runs held", len(command.held), 0, 2 * THREADS_MAX)
        or _runs_fault(command.held)
    )
    if fault:
        return refused(Refusal.INVALID, fault)
    if too_new := _level_fault(state, command.offer):
        return refused(Refusal.CONFLICT, too_new)
    found = state.workers.by_id.get(worker_id)
    replaced = found.replaced.split(",") if found is not None and found.replaced else []
    if incarnation in replaced:
        return _stale(worker_id, incarnation, found)
    if found is None and len(state.workers.by_id) >= _WORKERS_MAX:
        return refused(Refusal.QUEUE_FULL, f"{_WORKERS_MAX:,} workers are known: remove dead ones")
    is_same = found is not None and found.incarnation == incarnation
    if found is not None and is_same and found.stream and command.stream <= found.stream:
        return refused(
            Refusal.STALE_WORKER,
            f"worker {worker_id!r} has appeared by its stream {found.stream}: what stream {command.stream} said of it "
            "came too late",
        )
    records = end_records(state, worker_id, command.ended, now_ms)
    settled = settled_ids(records)
    held = {(run.task_id, run.assignment_id) for run in command.held}
    for task in state.tasks.runs_of(worker_id):
        if task.task_id in settled:
            continue
        if is_same and task.assignment_id > command.delivered_up_to:
            records += undelivered(state, task, now_ms)
        elif not is_same or (task.task_id, task.assignment_id) not in held:
            why = "was restarted" if not is_same else "came back without it"
            records += lost(state, task, now_ms, Outcome.WORKER_DIED, f"worker {worker_id} {why}")
    if found is not None and not is_same:
        replaced = [*replaced, found.incarnation][-_REPLACED_MAX:]
        died = msgspec.structs.replace(found, status=WorkerStatus.DEAD, changed_ms=now_ms)
        records.insert(0, (RecordType.WORKER_DIED, _fields(worker_id, died)))
    row = WorkerRow(
        incarnation, WorkerStatus.CONNECTED, command.location, now_ms, now_ms, _offer_text(command.offer),
        ",".join(replaced), command.stream,
    )  # fmt: skip
    records.append((RecordType.WORKER_CONNECTED, _fields(worker_id, row)))
    over = settled_ids(records)
    for task_id, assignment_id in sorted(held):
        if is_current(state, worker_id, task_id, assignment_id) is None or task_id in over:
            records.append((RecordType.RUN_DISOWNED, (task_id, assignment_id, worker_id)))
    return answered(records, Done(revision))


def worker_changed(state: BrokerState, command: WorkerChanged, revision: int, now_ms: int) -> Decision:
    """Decide that a worker offers something else; one that drains does so until it appears again."""
    found = state.workers.by_id.get(command.worker_id)
    if found is None or found.incarnation != command.incarnation:
        return _stale(command.worker_id, command.incarnation, found)
    fault = "" if command.offer is None else offer_fault(command.offer)
    if fault:
        return refused(Refusal.INVALID, fault)
    if command.offer is not None and (too_new := _level_fault(state, command.offer)):
        return refused(Refusal.CONFLICT, too_new)
    status = found.status
    if command.is_draining and status == WorkerStatus.CONNECTED:
        status = WorkerStatus.DRAINING
    offer = found.offer if command.offer is None else _offer_text(command.offer)
    if (status, offer) == (found.status, found.offer):
        return answered([], Done(revision))
    row = msgspec.structs.replace(found, status=int(status), offer=offer, changed_ms=now_ms)
    return answered([(RecordType.WORKER_CHANGED, _fields(command.worker_id, row))], Done(revision))


def worker_lost(state: BrokerState, command: WorkerLost, revision: int, now_ms: int) -> Decision:
    """Decide that a worker's stream is down; it keeps its runs until it is dead."""
    worker_id = command.worker_id
    found = state.workers.by_id.get(worker_id)
    if found is None or found.incarnation != command.incarnation:
        return _stale(worker_id, command.incarnation, found)
    status = WorkerStatus.DEAD if command.is_dead else WorkerStatus.DISCONNECTED
    if found.status in {WorkerStatus.DEAD, status}:
        return answered([], Done(revision))
    row = msgspec.structs.replace(found, status=int(status), changed_ms=now_ms)
    record = RecordType.WORKER_DIED if command.is_dead else RecordType.WORKER_CHANGED
    records: list[LoggedRecord] = [(record, _fields(worker_id, row))]
    if command.is_dead:
        for task in state.tasks.runs_of(worker_id):
            records += lost(state, task, now_ms, Outcome.WORKER_DIED, f"worker {worker_id} was lost")
    return answered(records, Done(revision))


def awaited(state: BrokerState, promoted_ms: int, now_ms: int) -> Iterator[LoggedRecord]:
    """Yield that workers have no stream, of those that came to an earlier leader only.

    They keep their runs; nothing is assigned to them before they have come to this one.
    """
    workers = state.workers
    workers.promote(promoted_ms)
    while workers.awaited:
        worker_id = workers.awaited.popleft()
        row = workers.by_id.get(worker_id)
        if row is not None and row.connected_ms < promoted_ms and row.status in _WITH_STREAM:
            gone = msgspec.structs.replace(row, status=int(WorkerStatus.DISCONNECTED), changed_ms=now_ms)
            yield RecordType.WORKER_CHANGED, _fields(worker_id, gone)


def worker_removed(state: BrokerState, command: RemoveWorker, revision: int) -> Decision:
    """Decide that a dead worker is forgotten."""
    found = state.workers.by_id.get(command.worker_id)
    if found is None:
        return refused(Refusal.NOT_FOUND, f"there is no worker {command.worker_id[:60]!r}")
    if found.status != WorkerStatus.DEAD:
        return refused(
            Refusal.IN_USE,
            f"worker {command.worker_id!r} is {WorkerStatus(found.status).name.lower()}: only dead ones are removed",
        )
    return answered([(RecordType.WORKER_REMOVED, (command.worker_id,))], Done(revision))

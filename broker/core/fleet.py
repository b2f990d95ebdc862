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
from typing import TYPE_CHECKING

import msgspec

from broker.core.commands import HeldRun, RemoveWorker, WorkerAppeared, WorkerChanged, WorkerLost
from broker.core.deciding import LoggedRecord, answered, refused
from broker.core.ending import lost, undelivered
from broker.core.faults import name_fault, number_fault, offer_fault, text_fault
from broker.core.limits import ID_MAX, NAME_BYTES_MAX, THREADS_MAX
from broker.core.policies import WorkerOffer
from broker.core.replies import Done, Refusal
from broker.core.rows import WorkerRow
from broker.core.runs import end_records, is_current, settled_ids
from broker.core.statuses import Outcome, WorkerStatus
from broker.core.tables import RecordType
from rsm_spark.core.machine import Decision

if TYPE_CHECKING:
    from broker.core.state import BrokerState

__all__ = ["awaited", "worker_appeared", "worker_changed", "worker_lost", "worker_removed"]

_REPLACED_MAX = 8
_WORKERS_MAX = 10_000
_WITH_STREAM = frozenset({WorkerStatus.CONNECTED, WorkerStatus.DRAINING})


def _offer_text(offer: WorkerOffer) -> str:
    return msgspec.json.encode(offer).decode()


def _fields(worker_id: str, row: WorkerRow) -> tuple[str | int, ...]:
    status = int(row.status)
    return (
        worker_id, row.incarnation, status, row.location, row.connected_ms, row.changed_ms, row.offer, row.replaced,
        row.stream,
    )  # fmt: skip


def _stale(worker_id: str, incarnation: str, found: WorkerRow | None) -> Decision:
    known = "is not known" if found is None else f"is at present incarnation {found.incarnation!r}"
    return refused(
        Refusal.STALE_WORKER,
        f"incarnation {incarnation[:60]!r} of worker {worker_id[:60]!r}: that worker {known}. Two processes with one "
        "worker id take turns: give each its own",
    )


def _runs_fault(runs: Iterable[HeldRun]) -> str:
    is_sound = all(0 < run.task_id <= ID_MAX and 0 < run.assignment_id <= ID_MAX for run in runs)
    return "" if is_sound else "a run that is held has an id that is none"


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
    found = state.workers.get(worker_id)
    replaced = found.replaced.split(",") if found is not None and found.replaced else []
    if incarnation in replaced:
        return _stale(worker_id, incarnation, found)
    if found is None and len(state.workers) >= _WORKERS_MAX:
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
    for task in state.index.runs_of(worker_id):
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
    found = state.workers.get(command.worker_id)
    if found is None or found.incarnation != command.incarnation:
        return _stale(command.worker_id, command.incarnation, found)
    fault = "" if command.offer is None else offer_fault(command.offer)
    if fault:
        return refused(Refusal.INVALID, fault)
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
    found = state.workers.get(worker_id)
    if found is None or found.incarnation != command.incarnation:
        return _stale(worker_id, command.incarnation, found)
    status = WorkerStatus.DEAD if command.is_dead else WorkerStatus.DISCONNECTED
    if found.status in {WorkerStatus.DEAD, status}:
        return answered([], Done(revision))
    row = msgspec.structs.replace(found, status=int(status), changed_ms=now_ms)
    record = RecordType.WORKER_DIED if command.is_dead else RecordType.WORKER_CHANGED
    records: list[LoggedRecord] = [(record, _fields(worker_id, row))]
    if command.is_dead:
        for task in state.index.runs_of(worker_id):
            records += lost(state, task, now_ms, Outcome.WORKER_DIED, f"worker {worker_id} was lost")
    return answered(records, Done(revision))


def awaited(state: BrokerState, promoted_ms: int, now_ms: int) -> Iterator[LoggedRecord]:
    """Yield that workers have no stream, of those that came to an earlier leader only.

    They keep their runs; nothing is assigned to them before they have come to this one.
    """
    if state.promoted_ms != promoted_ms:
        state.promoted_ms = promoted_ms
        state.awaited.extend(w for w, row in state.workers.items() if row.connected_ms < promoted_ms)
    while state.awaited:
        worker_id = state.awaited.popleft()
        row = state.workers.get(worker_id)
        if row is not None and row.connected_ms < promoted_ms and row.status in _WITH_STREAM:
            gone = msgspec.structs.replace(row, status=int(WorkerStatus.DISCONNECTED), changed_ms=now_ms)
            yield RecordType.WORKER_CHANGED, _fields(worker_id, gone)


def worker_removed(state: BrokerState, command: RemoveWorker, revision: int) -> Decision:
    """Decide that a dead worker is forgotten."""
    found = state.workers.get(command.worker_id)
    if found is None:
        return refused(Refusal.NOT_FOUND, f"there is no worker {command.worker_id[:60]!r}")
    if found.status != WorkerStatus.DEAD:
        return refused(
            Refusal.IN_USE,
            f"worker {command.worker_id!r} is {WorkerStatus(found.status).name.lower()}: only dead ones are removed",
        )
    return answered([(RecordType.WORKER_REMOVED, (command.worker_id,))], Done(revision))

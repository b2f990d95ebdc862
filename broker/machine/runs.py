"""Reports of workers on runs: ends, late ends, progress."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from broker.machine.commands import EndedRun, ProgressOf, ReportRuns
from broker.machine.completion import ended, failed
from broker.machine.decisions import LoggedRecord, answered, refused
from broker.machine.index.tasks import TaskState
from broker.machine.limits import ERROR_BYTES_MAX, ID_MAX, NAME_BYTES_MAX, RESULT_BYTES_MAX
from broker.machine.replies import Done, Refusal
from broker.machine.rows import ProgressRow, row_fields
from broker.machine.state import BrokerState
from broker.machine.statuses import ENDED, Outcome, TaskStatus
from broker.machine.tables import RecordType
from rsm_spark.core.machine import Decision

_LOST = frozenset({Outcome.OUTCOME_UNKNOWN, Outcome.WORKER_DIED, Outcome.STALLED})


def is_current(state: BrokerState, worker_id: str, task_id: int, assignment_id: int) -> TaskState | None:
    """Return the task whose present run this is, or None."""
    task = state.tasks.by_id.get(task_id)
    if task is None or task.assignment_id != assignment_id or task.worker_id != worker_id or not worker_id:
        return None
    return task


def report(state: BrokerState, command: ReportRuns, revision: int, now_ms: int) -> Decision:
    """Decide what a worker reports."""
    worker = state.workers.by_id.get(command.worker_id)
    if worker is None or worker.incarnation != command.incarnation:
        return refused(
            Refusal.STALE_WORKER,
            f"worker {command.worker_id[:60]!r} of incarnation {command.incarnation[:60]!r} is not the one that this "
            "broker knows: open a stream and say what runs",
        )
    records = end_records(state, command.worker_id, command.ended, now_ms)
    over = settled_ids(records) if command.progress else set()
    seen: dict[int, None] = {}
    for progress in reversed(command.progress):  # Of several of one run the last one counts.
        task = is_current(state, command.worker_id, progress.task_id, progress.assignment_id)
        if task is not None and task.task_id not in over and task.task_id not in seen:
            seen[task.task_id] = None
            records.append((RecordType.PROGRESS_REPORTED, _progress(progress, now_ms)))
    return answered(records, Done(revision))


def settled_ids(records: Sequence[LoggedRecord]) -> set[int]:
    """Return the tasks whose present run these records end."""
    ends = {RecordType.TASK_ENDED, RecordType.TASK_REQUEUED}
    return {task_id for kind, (task_id, *_) in records if kind in ends}


def _progress(progress: ProgressOf, now_ms: int) -> tuple[Any, ...]:
    fraction = float(progress.fraction)
    if not isfinite(fraction) or not 0 <= fraction <= 1:
        fraction = -1.0
    message = _cut(progress.message, ERROR_BYTES_MAX)
    return row_fields((progress.task_id,), ProgressRow(progress.assignment_id, now_ms, fraction, message))


def _cut(text: str, bytes_max: int) -> str:
    """Return a text for people, cut where it is too long, which its sender should have done."""
    if len(text) * 4 <= bytes_max:
        return text
    return text.encode(errors="replace")[:bytes_max].decode(errors="ignore")


def end_records(state: BrokerState, worker_id: str, ends: Sequence[EndedRun], now_ms: int) -> list[LoggedRecord]:
    """Return the records of ends that a worker reports: by assignment id, whatever the epoch was."""
    records: list[LoggedRecord] = []
    done: dict[int, None] = {}
    for end in ends:
        if not (0 < end.task_id <= ID_MAX and 0 < end.assignment_id <= ID_MAX) or end.assignment_id in done:
            continue
        done[end.assignment_id] = None
        task = is_current(state, worker_id, end.task_id, end.assignment_id)
        if task is None:
            records += _late(state, worker_id, end, now_ms)
        elif end.status == TaskStatus.FINISHED and len(end.result) <= RESULT_BYTES_MAX:
            records += ended(state, task, now_ms, TaskStatus.FINISHED, "", "", end.result)
        else:
            records += _not_well(state, task, end, now_ms)
    return records


def _not_well(state: BrokerState, task: TaskState, end: EndedRun, now_ms: int) -> list[LoggedRecord]:
    error = _cut(end.error, ERROR_BYTES_MAX)
    outcome = _cut(end.outcome, NAME_BYTES_MAX)
    if len(end.result) > RESULT_BYTES_MAX:
        outcome = Outcome.FAILED
        error = (
            f"ResultTooLarge: the run ended well, with a result of {len(end.result):,} bytes: at most "
            f"{RESULT_BYTES_MAX:,} are taken. Keep it elsewhere and return its address"
        )
    elif end.status == TaskStatus.CANCELLED:
        outcome = outcome or Outcome.CANCELLED
    elif end.status != TaskStatus.ERROR:
        error = error or f"its worker said status {end.status}, which is not an end"
        outcome = outcome or Outcome.FAILED
    return failed(state, task, now_ms, outcome or Outcome.FAILED, error)


def _late(state: BrokerState, worker_id: str, end: EndedRun, now_ms: int) -> list[LoggedRecord]:
    """Return a note of an end that comes too late; none of one that is known, or of no task of ours."""
    task = state.tasks.by_id.get(end.task_id)
    if task is not None and task.status in ENDED and task.assignment_id == end.assignment_id:
        row = state.state_row(task.task_id)
        if row is not None and row.outcome not in _LOST:
            return []
    result = end.result if len(end.result) <= RESULT_BYTES_MAX else b""
    status = end.status if end.status in TaskStatus.__members__.values() else int(TaskStatus.ERROR)
    error = _cut(end.error, ERROR_BYTES_MAX)
    return [(RecordType.LATE_END, (end.task_id, end.assignment_id, worker_id, int(status), now_ms, error, result))]

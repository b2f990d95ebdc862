"""End of tasks, or their return to the queue, as records.

A task that ends gives up its slot and what its run said of itself, in records that follow `task_ended`. Where an entry
is full before them, the task is `TaskIndex.residue` until the next one.
"""

from __future__ import annotations

from broker.machine.decisions import LoggedRecord
from broker.machine.index.tasks import TaskFlag, TaskState
from broker.machine.retrying import backoff_ms, retry_policy, rule_for
from broker.machine.rows import state_fields
from broker.machine.state import BrokerState
from broker.machine.statuses import Outcome, TaskStatus
from broker.machine.tables import RecordType


def ended(
    state: BrokerState,
    task: TaskState,
    now_ms: int,
    status: TaskStatus,
    outcome: str = "",
    error: str = "",
    result: bytes = b"",
) -> list[LoggedRecord]:
    """Return the records of a task's end."""
    is_running = task.status == TaskStatus.RUNNING
    cancel_ms = 0
    if task.flags & TaskFlag.CANCEL:
        row = state.state_row(task.task_id)
        cancel_ms = row.cancel_ms if row is not None else 0
    fields = state_fields(
        task.task_id, int(status), task.attempts, task.worker_id, task.assignment_id,
        assigned_ms=task.at_ms if is_running else 0, ended_ms=now_ms, cancel_ms=cancel_ms, outcome=outcome, error=error,
        result=result,
    )  # fmt: skip
    records: list[LoggedRecord] = [(RecordType.TASK_ENDED, fields)]
    if task.flags & (TaskFlag.SLOT | TaskFlag.PROGRESS):
        records += leftovers(state, task)
    return records


def leftovers(state: BrokerState, task: TaskState) -> list[LoggedRecord]:
    """Return the records by which a task gives up its slot and its progress."""
    records: list[LoggedRecord] = []
    if task.flags & TaskFlag.SLOT:
        records.append((RecordType.SLOT_RELEASED, (task.tenant.name, state.task_row(task.task_id).slot)))
    if task.flags & TaskFlag.PROGRESS:
        records.append((RecordType.PROGRESS_REMOVED, (task.task_id,)))
    return records


def requeued(
    task: TaskState, now_ms: int, *, attempts: int, due_ms: int = 0, outcome: str = "", error: str = ""
) -> list[LoggedRecord]:
    """Return the records by which a task waits again, until `due_ms` first if it is not 0."""
    status = TaskStatus.DELAYED if due_ms > now_ms else TaskStatus.WAITING
    fields = state_fields(
        task.task_id, int(status), attempts, ended_ms=now_ms, due_ms=due_ms, outcome=outcome, error=error
    )
    records: list[LoggedRecord] = [(RecordType.TASK_REQUEUED, fields)]
    if task.flags & TaskFlag.PROGRESS:
        records.append((RecordType.PROGRESS_REMOVED, (task.task_id,)))
    return records


def cancel_asked(task: TaskState, now_ms: int, outcome: str) -> LoggedRecord:
    """Return the record by which the worker of a running task is asked to end its run, and why."""
    fields = state_fields(
        task.task_id, int(TaskStatus.RUNNING), task.attempts, task.worker_id, task.assignment_id,
        assigned_ms=task.at_ms, cancel_ms=now_ms, outcome=outcome,
    )  # fmt: skip
    return RecordType.TASK_CANCEL_ASKED, fields


def _asked_outcome(state: BrokerState, task: TaskState) -> str:
    """Return why the end of a run was asked for, "" if it was not."""
    if not task.flags & TaskFlag.CANCEL:
        return ""
    row = state.state_row(task.task_id)
    return row.outcome if row is not None else ""


def failed(state: BrokerState, task: TaskState, now_ms: int, outcome: str, error: str) -> list[LoggedRecord]:
    """Return the records of a run that failed, or was ended before its time: again, or an end for good."""
    asked = _asked_outcome(state, task)
    if asked == Outcome.CANCELLED:
        return ended(state, task, now_ms, TaskStatus.CANCELLED, Outcome.CANCELLED, error)
    if asked and outcome in {"", Outcome.CANCELLED}:
        outcome = asked
    dead = ended(state, task, now_ms, TaskStatus.ERROR, outcome, error)
    is_late = bool(task.deadline_ms) and task.deadline_ms <= now_ms
    if task.flags & TaskFlag.AT_MOST_ONCE or is_late or asked == Outcome.DEADLINE_EXPIRED:
        return dead
    row = state.task_row(task.task_id)
    policy = retry_policy(row.retry, state.policies.of(row.tenant).retry)
    rule = rule_for(policy, outcome, error)
    attempts_max = row.max_attempts
    if rule is not None:
        if not rule.retry:
            return dead
        attempts_max = attempts_max if rule.max_attempts is None else rule.max_attempts
    if attempts_max and task.attempts >= attempts_max:
        return dead
    # That its run was lost is not the task's fault: unless a rule says so, it does not wait for that.
    is_blameless = outcome in {Outcome.WORKER_DIED, Outcome.STALLED} and (rule is None or rule.backoff_ms is None)
    wait_ms = 0 if is_blameless else backoff_ms(policy, rule, task.task_id, task.attempts)
    due_ms = now_ms + wait_ms if wait_ms else 0
    return requeued(task, now_ms, attempts=task.attempts, due_ms=due_ms, outcome=outcome, error=error)


def lost(state: BrokerState, task: TaskState, now_ms: int, outcome: str, error: str) -> list[LoggedRecord]:
    """Return the records of a run of which nobody will ever say how it ended, and which was delivered, perhaps."""
    if task.flags & TaskFlag.AT_MOST_ONCE:
        return ended(state, task, now_ms, TaskStatus.ERROR, Outcome.OUTCOME_UNKNOWN, error)
    return failed(state, task, now_ms, outcome, error)


def undelivered(state: BrokerState, task: TaskState, now_ms: int) -> list[LoggedRecord]:
    """Return the records of an assignment that its worker never got: as if it had not been made."""
    asked = _asked_outcome(state, task)
    if asked == Outcome.CANCELLED:
        return ended(state, task, now_ms, TaskStatus.CANCELLED, Outcome.CANCELLED)
    if asked == Outcome.DEADLINE_EXPIRED:
        return ended(state, task, now_ms, TaskStatus.ERROR, Outcome.DEADLINE_EXPIRED)
    return requeued(task, now_ms, attempts=task.attempts - 1)

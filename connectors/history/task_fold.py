"""Facts to rows of tasks, attempts and waits. Pure: the state that it goes on from comes in as rows of the tables.

1. A task is keyed by the revision that submitted it. Every later record of it carries the whole of one half: what was
   asked (`task_submitted`, `task_changed`), or what became of it (`task_assigned`, `task_ended`, `task_requeued`,
   `task_cancel_asked`). Only `transaction_committed` speaks of tasks without naming them.
2. An attempt begins with `task_assigned`, whose revision is its id, and ends with the next record that takes its task
   out of RUNNING. `task_requeued` does not name the run that it ends: the task's row does.
3. A wait goes from when the task came into WAITING to `task_assigned`.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectors.history.fleet_fold import group_and_priority
from connectors.history.layout import Fact
from connectors.history.rows import AttemptRow, TaskRow, WaitRow, day_of
from connectors.history.words import (
    GROUP_DEFAULT,
    PRIORITY_DEFAULT,
    PRIORITY_OF_TENANT,
    STATUS_WORDS,
    FactKind,
    TaskStatus,
)

__all__ = ["TaskFold"]

_UNDELIVERED = "undelivered"


class TaskFold:
    """Folds the facts of one range of records.

    Args:
        tasks: Rows, as they stand before the range, of every task that its facts name or whose transaction they
            commit; what is not there is taken for submitted before the history began.
        incarnations: The present one of each worker that is named, before the range.
        policies: (group, priority) of tenants whose policy was set, before the range.
        attempt_days: Day of attempts that facts name and that are no task's present one.

    Attributes:
        tasks: Rows of tasks, by id.
        attempts: What the facts say of attempts, by assignment; fields of which they say nothing are None.
        waits: In the order of the log.

    """

    def __init__(
        self,
        tasks: Mapping[int, TaskRow] | None = None,
        incarnations: Mapping[str, str] | None = None,
        policies: Mapping[str, tuple[int | None, int | None]] | None = None,
        attempt_days: Mapping[int, int] | None = None,
    ) -> None:
        self.tasks: dict[int, TaskRow] = dict(tasks or {})
        self.attempts: dict[int, AttemptRow] = {}
        self.waits: list[WaitRow] = []
        self._touched: dict[int, None] = {}
        self._incarnations = dict(incarnations or {})
        self._policies = dict(policies or {})
        self._attempt_days = dict(attempt_days or {})
        self._prepared: dict[int, list[TaskRow]] = {}
        for task in self.tasks.values():
            if task.status == TaskStatus.PREPARED and task.transaction:
                self._prepared.setdefault(task.transaction, []).append(task)
        self._apply = {
            FactKind.TASK_SUBMITTED: self._submitted,
            FactKind.TASK_CHANGED: self._changed,
            FactKind.TASK_REMOVED: self._removed,
            FactKind.TASK_ASSIGNED: self._assigned,
            FactKind.TASK_ENDED: self._ended,
            FactKind.TASK_REQUEUED: self._requeued,
            FactKind.TASK_CANCEL_ASKED: self._cancel_asked,
            FactKind.PROGRESS_REPORTED: self._reported,
            FactKind.LATE_END: self._late,
            FactKind.TRANSACTION_COMMITTED: self._committed,
            FactKind.WORKER_CONNECTED: self._connected,
            FactKind.TENANT_SET: self._tenant_set,
            FactKind.TENANT_REMOVED: self._tenant_removed,
        }

    @property
    def changed_tasks(self) -> list[TaskRow]:
        """Rows of the tasks that the facts changed."""
        return [self.tasks[task_id] for task_id in self._touched]

    def apply(self, fact: Fact) -> None:
        """Fold one fact; those that say nothing of tasks are passed over."""
        apply = self._apply.get(FactKind(fact.kind))
        if apply is not None:
            apply(fact)

    def _task(self, task_id: int, fact: Fact) -> TaskRow:
        task = self.tasks.get(task_id)
        if task is None:
            task = self.tasks[task_id] = TaskRow(task_id, day_of(fact.logged_ms), fact.revision)
        task.revision = fact.revision
        self._touched[task_id] = None
        return task

    # ---- what was asked

    def _submitted(self, fact: Fact) -> None:
        created_ms, start_ms = fact.values[3], fact.values[11]
        task = self.tasks[fact.values[0]] = TaskRow(fact.values[0], day_of(created_ms), fact.revision)
        self._asked(task, fact)
        task.since_at = created_ms
        if task.transaction:
            task.status = TaskStatus.PREPARED
            self._prepared.setdefault(task.transaction, []).append(task)
        elif start_ms > created_ms:
            task.status, task.due_at = TaskStatus.DELAYED, start_ms
        else:
            task.status = TaskStatus.WAITING

    def _changed(self, fact: Fact) -> None:
        self._asked(self._task(fact.values[0], fact), fact)

    def _asked(self, task: TaskRow, fact: Fact) -> None:
        (
            task.task_id, task.tenant, task.type, task.created_at, task.at_most_once, task.max_attempts, priority,
            group, resources, slot, key, start_ms, deadline_ms, timeout_ms, heartbeat_ms, code, mode, retry,
            transaction, *payload,
        ) = fact.values  # fmt: skip
        self._touched[task.task_id] = None
        task.priority = None if priority == PRIORITY_OF_TENANT else priority
        task.group = group or None
        task.resources, task.slot, task.key = resources or None, slot or None, key or None
        task.start_at, task.deadline_at = start_ms or None, deadline_ms or None
        task.timeout_ms, task.heartbeat_ms = timeout_ms or None, heartbeat_ms or None
        task.code, task.mode, task.retry = code or None, mode or None, retry or None
        task.transaction = transaction or None
        if payload:
            task.payload = payload[0]

    def _committed(self, fact: Fact) -> None:
        transaction, committed_ms = fact.values
        for task in self._prepared.pop(transaction, ()):
            if task.status != TaskStatus.PREPARED:
                continue
            self._touched[task.task_id] = None
            task.revision, task.since_at = fact.revision, committed_ms
            if task.start_at and task.created_at is not None and task.start_at > task.created_at:
                task.status, task.due_at = TaskStatus.DELAYED, task.start_at
            else:
                task.status = TaskStatus.WAITING

    def _removed(self, fact: Fact) -> None:
        task = self._task(fact.values[0], fact)
        task.purged_at = fact.logged_ms
        if task.status == TaskStatus.PREPARED:
            task.status = TaskStatus.ROLLED_BACK

    # ---- what became of it

    def _state(self, fact: Fact) -> tuple[TaskRow, int | None, str | None]:
        """Write what a record says; return the task, since when it was delayed, and the outcome that is said."""
        (
            task_id, status, attempts, worker_id, assignment_id, assigned_ms, _, due_ms, cancel_ms, outcome, error,
            *result,
        ) = fact.values  # fmt: skip
        task = self._task(task_id, fact)
        delayed_ms = task.since_at if task.status == TaskStatus.DELAYED else None
        task.status = STATUS_WORDS.get(status, f"status {status}")
        task.attempts = attempts
        task.worker_id = worker_id or None
        task.assignment_id = assignment_id or None
        task.assigned_at = assigned_ms or None
        task.due_at = due_ms if task.status == TaskStatus.DELAYED else None
        task.cancel_asked_at = cancel_ms or None
        task.ended_at = None
        task.outcome, task.error = outcome or None, error or None
        if result:
            task.result = result[0]
        return task, delayed_ms, outcome or None

    def _assigned(self, fact: Fact) -> None:
        runnable_at = task.since_at if (task := self.tasks.get(fact.values[0])) is not None else None
        task, _, _ = self._state(fact)
        task.assignment_id = fact.revision
        assigned_at = task.assigned_at = task.assigned_at or fact.logged_ms
        task.since_at = assigned_at
        attempt = self._attempt(task, fact.revision, fact.revision)
        attempt.incarnation = self._incarnations.get(task.worker_id or "")
        group, priority = self._policies.get(task.tenant or "", (None, None))
        is_known = task.tenant is not None
        self.waits.append(
            WaitRow(
                fact.revision, task.task_id, day_of(assigned_at), task.attempts, task.tenant, task.type,
                (task.group or group or GROUP_DEFAULT) if is_known else None,
                _first(task.priority, priority, PRIORITY_DEFAULT) if is_known else None,
                task.worker_id or "", runnable_at, assigned_at,
                None if runnable_at is None else max(0, assigned_at - runnable_at),
            )
        )  # fmt: skip

    def _ended(self, fact: Fact) -> None:
        attempt = self._held(fact.values[0])
        assignment_id, assigned_ms, ended_ms = fact.values[4:7]
        task, _, outcome = self._state(fact)
        # A task that ends while it waits names no time of assignment: it ran before, or never.
        if attempt is None and assignment_id and assigned_ms:
            attempt = self._attempt(task, assignment_id, fact.revision)
        if attempt is not None:
            is_well = outcome is None and task.status == TaskStatus.FINISHED
            _end(attempt, fact.revision, ended_ms, TaskStatus.FINISHED if is_well else outcome, task)
        task.since_at = task.ended_at = ended_ms

    def _requeued(self, fact: Fact) -> None:
        attempt = self._held(fact.values[0])
        now_ms, due_ms = fact.values[6:8]
        task, delayed_ms, outcome = self._state(fact)
        if attempt is not None:
            is_delivered = attempt.attempt is None or task.attempts >= attempt.attempt
            _end(attempt, fact.revision, now_ms, outcome if is_delivered else _UNDELIVERED, task)
        if task.status == TaskStatus.DELAYED:
            task.since_at = now_ms
        else:
            # It could run from the time that it was put off to; not before it was visible at all.
            task.since_at = max(due_ms or now_ms, delayed_ms or 0)

    def _cancel_asked(self, fact: Fact) -> None:
        self._state(fact)
        attempt = self._held(fact.values[0])
        if attempt is not None:
            attempt.revision, attempt.cancel_asked_at = fact.revision, fact.values[8]

    # ---- runs

    def _held(self, task_id: int) -> AttemptRow | None:
        """Return what is said of the present attempt of a task that runs; None if it does not."""
        task = self.tasks.get(task_id)
        if task is None or task.status != TaskStatus.RUNNING or not task.assignment_id:
            return None
        return self._attempt(task, task.assignment_id, task.revision)

    def _attempt(self, task: TaskRow, assignment_id: int, revision: int) -> AttemptRow:
        """Return what is said of a task's last attempt, with what its task knows of it."""
        found = self.attempts.get(assignment_id)
        if found is None:
            found = self.attempts[assignment_id] = AttemptRow(
                assignment_id, task.task_id, day_of(task.assigned_at or 0), revision, task.attempts, task.tenant,
                task.type, task.worker_id, assigned_at=task.assigned_at,
            )  # fmt: skip
        return found

    def _reported(self, fact: Fact) -> None:
        task_id, assignment_id, reported_ms, fraction = fact.values
        attempt = self._named(task_id, assignment_id, fact)
        if attempt is not None:
            attempt.first_report_at = attempt.first_report_at or reported_ms
            attempt.last_report_at = reported_ms
            attempt.fraction = fraction if fraction >= 0 else attempt.fraction

    def _late(self, fact: Fact) -> None:
        task_id, assignment_id, _, status, late_ms = fact.values
        attempt = self._named(task_id, assignment_id, fact)
        if attempt is not None and attempt.late_at is None:
            attempt.late_at = late_ms
            attempt.late_status = STATUS_WORDS.get(status, f"status {status}")

    def _named(self, task_id: int, assignment_id: int, fact: Fact) -> AttemptRow | None:
        """Return what is said of an attempt that a worker named; None if the history has none of that number."""
        task = self.tasks.get(task_id)
        if task is not None and task.assignment_id == assignment_id and task.assigned_at:
            found: AttemptRow | None = self._attempt(task, assignment_id, fact.revision)
        else:
            found = self.attempts.get(assignment_id)
            day = self._attempt_days.get(assignment_id)
            if found is None and day is not None:
                found = self.attempts[assignment_id] = AttemptRow(assignment_id, task_id, day, fact.revision)
        if found is not None:
            found.revision = fact.revision
        return found

    # ---- what tasks are read by

    def _connected(self, fact: Fact) -> None:
        self._incarnations[fact.values[0]] = fact.values[1]

    def _tenant_set(self, fact: Fact) -> None:
        self._policies[fact.values[0]] = group_and_priority(fact.values[4])

    def _tenant_removed(self, fact: Fact) -> None:
        self._policies.pop(fact.values[0], None)


def _end(attempt: AttemptRow, revision: int, ended_ms: int, outcome: str | None, task: TaskRow) -> None:
    attempt.revision = revision
    attempt.ended_at = ended_ms
    attempt.run_ms = None if attempt.assigned_at is None else max(0, ended_ms - attempt.assigned_at)
    attempt.outcome, attempt.error, attempt.task_status = outcome, task.error, task.status


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)

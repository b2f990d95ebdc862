"""Facts to rows of tasks, attempts and waits. Pure: the state that it goes on from comes in as rows of the tables.

1. A task is keyed by the revision that submitted it. Every later record of it carries the whole of one half: what was
   asked (`task_submitted`, `task_changed`), or what became of it (`task_assigned`, `task_ended`, `task_requeued`,
   `task_cancel_asked`). Only `transaction_committed` speaks of tasks without naming them.
2. An attempt begins with `task_assigned`, whose revision is its id, and ends with the next record that takes its task
   out of RUNNING. `task_requeued` does not name the run that it ends: the task's row does.
3. A wait goes from when the task came into WAITING to `task_assigned`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from connectors.history.fleet_fold import group_and_priority
from connectors.history.layout import (
    CommittedFact,
    Fact,
    LateEndFact,
    ProgressFact,
    PurgedFact,
    StateFact,
    TaskFact,
    TenantFact,
    TenantGoneFact,
    WorkerFact,
)
from connectors.history.rows import AttemptRow, HistoryTask, WaitRow, day_of
from connectors.history.words import (
    GROUP_DEFAULT,
    PRIORITY_DEFAULT,
    PRIORITY_OF_TENANT,
    STATUS_WORDS,
    FactKind,
    HistoryTaskStatus,
)

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
        tasks: Mapping[int, HistoryTask] | None = None,
        incarnations: Mapping[str, str] | None = None,
        policies: Mapping[str, tuple[int | None, int | None]] | None = None,
        attempt_days: Mapping[int, int] | None = None,
    ) -> None:
        self.tasks: dict[int, HistoryTask] = dict(tasks or {})
        self.attempts: dict[int, AttemptRow] = {}
        self.waits: list[WaitRow] = []
        self._touched: dict[int, None] = {}
        self._incarnations = dict(incarnations or {})
        self._policies = dict(policies or {})
        self._attempt_days = dict(attempt_days or {})
        self._prepared: dict[int, list[HistoryTask]] = {}
        for task in self.tasks.values():
            if task.status == HistoryTaskStatus.PREPARED and task.transaction:
                self._prepared.setdefault(task.transaction, []).append(task)
        self._apply: dict[str, Callable[[Fact], None]] = {
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
    def changed_tasks(self) -> list[HistoryTask]:
        """Rows of the tasks that the facts changed."""
        return [self.tasks[task_id] for task_id in self._touched]

    def apply(self, fact: Fact) -> None:
        """Fold one fact; those that say nothing of tasks are passed over."""
        apply = self._apply.get(fact.kind)
        if apply is not None:
            apply(fact)

    def _task(self, task_id: int, fact: Fact) -> HistoryTask:
        task = self.tasks.get(task_id)
        if task is None:
            task = self.tasks[task_id] = HistoryTask(task_id, day_of(fact.logged_ms), fact.revision)
        task.revision = fact.revision
        self._touched[task_id] = None
        return task

    # ---- what was asked

    def _submitted(self, fact: Fact) -> None:
        said: TaskFact = fact.said
        task = self.tasks[said.task_id] = HistoryTask(said.task_id, day_of(said.created_ms), fact.revision)
        self._asked(task, said)
        task.payload = said.payload
        task.since_at = said.created_ms
        if task.transaction:
            task.status = HistoryTaskStatus.PREPARED
            self._prepared.setdefault(task.transaction, []).append(task)
        elif said.start_ms > said.created_ms:
            task.status, task.due_at = HistoryTaskStatus.DELAYED, said.start_ms
        else:
            task.status = HistoryTaskStatus.WAITING

    def _changed(self, fact: Fact) -> None:
        said: TaskFact = fact.said
        task = self._task(said.task_id, fact)
        self._asked(task, said)
        # A change never gives another payload; an empty one may be that of a task that has ended, and has left.
        task.payload = said.payload or task.payload

    def _asked(self, task: HistoryTask, said: TaskFact) -> None:
        self._touched[task.task_id] = None
        task.tenant, task.type, task.created_at = said.tenant, said.type, said.created_ms
        task.at_most_once, task.max_attempts = said.at_most_once, said.max_attempts
        task.priority = None if said.priority == PRIORITY_OF_TENANT else said.priority
        task.group = said.group or None
        task.resources, task.slot, task.key = said.resources or None, said.slot or None, said.key or None
        task.start_at, task.deadline_at = said.start_ms or None, said.deadline_ms or None
        task.timeout_ms, task.heartbeat_ms = said.timeout_ms or None, said.heartbeat_ms or None
        task.code, task.mode, task.retry = said.code or None, said.mode or None, said.retry or None
        task.transaction = said.transaction or None

    def _committed(self, fact: Fact) -> None:
        said: CommittedFact = fact.said
        for task in self._prepared.pop(said.transaction, ()):
            if task.status != HistoryTaskStatus.PREPARED:
                continue
            self._touched[task.task_id] = None
            task.revision, task.since_at = fact.revision, said.committed_ms
            if task.start_at and task.created_at is not None and task.start_at > task.created_at:
                task.status, task.due_at = HistoryTaskStatus.DELAYED, task.start_at
            else:
                task.status = HistoryTaskStatus.WAITING

    def _removed(self, fact: Fact) -> None:
        said: PurgedFact = fact.said
        task = self._task(said.task_id, fact)
        task.purged_at = fact.logged_ms
        if task.status == HistoryTaskStatus.PREPARED:
            task.status = HistoryTaskStatus.ROLLED_BACK

    # ---- what became of it

    def _state(self, fact: Fact) -> tuple[HistoryTask, int | None]:
        """Write what a record says; return the task, and since when it was delayed."""
        said: StateFact = fact.said
        task = self._task(said.task_id, fact)
        delayed_ms = task.since_at if task.status == HistoryTaskStatus.DELAYED else None
        task.status = STATUS_WORDS.get(said.status, f"status {said.status}")
        task.attempts = said.attempts
        task.worker_id = said.worker_id or None
        task.assignment_id = said.assignment_id or None
        task.assigned_at = said.assigned_ms or None
        task.due_at = said.due_ms if task.status == HistoryTaskStatus.DELAYED else None
        task.cancel_asked_at = said.cancel_ms or None
        task.ended_at = None
        task.outcome, task.error = said.outcome or None, said.error or None
        if said.result is not None:
            task.result = said.result
        return task, delayed_ms

    def _assigned(self, fact: Fact) -> None:
        said: StateFact = fact.said
        before = self.tasks.get(said.task_id)
        runnable_at = None if before is None else before.since_at
        task, _ = self._state(fact)
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
        said: StateFact = fact.said
        attempt = self._held(said.task_id)
        task, _ = self._state(fact)
        # A task that ends while it waits names no time of assignment: it ran before, or never.
        if attempt is None and said.assignment_id and said.assigned_ms:
            attempt = self._attempt(task, said.assignment_id, fact.revision)
        if attempt is not None:
            is_well = not said.outcome and task.status == HistoryTaskStatus.FINISHED
            _end(attempt, fact, HistoryTaskStatus.FINISHED if is_well else task.outcome, task)
        task.since_at = task.ended_at = said.ended_ms

    def _requeued(self, fact: Fact) -> None:
        said: StateFact = fact.said
        attempt = self._held(said.task_id)
        task, delayed_ms = self._state(fact)
        if attempt is not None:
            is_delivered = attempt.attempt is None or task.attempts >= attempt.attempt
            _end(attempt, fact, task.outcome if is_delivered else _UNDELIVERED, task)
        if task.status == HistoryTaskStatus.DELAYED:
            task.since_at = said.ended_ms
        else:
            # It could run from the time that it was put off to; not before it was visible at all.
            task.since_at = max(said.due_ms or said.ended_ms, delayed_ms or 0)

    def _cancel_asked(self, fact: Fact) -> None:
        said: StateFact = fact.said
        self._state(fact)
        attempt = self._held(said.task_id)
        if attempt is not None:
            attempt.revision, attempt.cancel_asked_at = fact.revision, said.cancel_ms

    # ---- runs

    def _held(self, task_id: int) -> AttemptRow | None:
        """Return what is said of the present attempt of a task that runs; None if it does not."""
        task = self.tasks.get(task_id)
        if task is None or task.status != HistoryTaskStatus.RUNNING or not task.assignment_id:
            return None
        return self._attempt(task, task.assignment_id, task.revision)

    def _attempt(self, task: HistoryTask, assignment_id: int, revision: int) -> AttemptRow:
        """Return what is said of a task's last attempt, with what its task knows of it."""
        found = self.attempts.get(assignment_id)
        if found is None:
            found = self.attempts[assignment_id] = AttemptRow(
                assignment_id, task.task_id, day_of(task.assigned_at or 0), revision, task.attempts, task.tenant,
                task.type, task.worker_id, assigned_at=task.assigned_at,
            )  # fmt: skip
        return found

    def _reported(self, fact: Fact) -> None:
        said: ProgressFact = fact.said
        attempt = self._named(said.task_id, said.assignment_id, fact)
        if attempt is not None:
            attempt.first_report_at = attempt.first_report_at or said.reported_ms
            attempt.last_report_at = said.reported_ms
            attempt.fraction = said.fraction if said.fraction >= 0 else attempt.fraction

    def _late(self, fact: Fact) -> None:
        said: LateEndFact = fact.said
        attempt = self._named(said.task_id, said.assignment_id, fact)
        if attempt is not None and attempt.late_at is None:
            attempt.late_at = said.ended_ms
            attempt.late_status = STATUS_WORDS.get(said.status, f"status {said.status}")

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
        said: WorkerFact = fact.said
        self._incarnations[said.worker_id] = said.incarnation

    def _tenant_set(self, fact: Fact) -> None:
        said: TenantFact = fact.said
        self._policies[said.tenant] = group_and_priority(said.policy)

    def _tenant_removed(self, fact: Fact) -> None:
        said: TenantGoneFact = fact.said
        self._policies.pop(said.tenant, None)


def _end(attempt: AttemptRow, fact: Fact, outcome: str | None, task: HistoryTask) -> None:
    ended_ms = fact.said.ended_ms
    attempt.revision = fact.revision
    attempt.ended_at = ended_ms
    attempt.run_ms = None if attempt.assigned_at is None else max(0, ended_ms - attempt.assigned_at)
    attempt.outcome, attempt.error, attempt.task_status = outcome, task.error, task.status


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)

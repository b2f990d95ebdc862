"""One range of records goes into the tables of the history: rows are read that its facts go on from, and written."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from connectors.delta.commits import persisted
from connectors.delta.fold import BatchEnd, RecordRange
from connectors.delta.follower import POSITION_INTERVAL_S
from connectors.history.columns import Writing
from connectors.history.facts import facts_of
from connectors.history.fleet_fold import WorkerFold, policy_row
from connectors.history.layout import (
    Fact,
    LateEndFact,
    ProgressFact,
    PurgedFact,
    StateFact,
    TaskFact,
    WorkerFact,
    WorkerGoneFact,
)
from connectors.history.rows import HistoryTask, HistoryWorker, PolicyRow
from connectors.history.tables import HistoryPosition, HistoryTables, TableHandle
from connectors.history.task_fold import TaskFold
from connectors.history.words import FactKind, HistoryTaskStatus

_T = TypeVar("_T")

_OF_TASKS = (TaskFact, StateFact, PurgedFact, ProgressFact, LateEndFact)
_OF_WORKERS = (WorkerFact, WorkerGoneFact)
# What a row cannot be without, and the day.
_INCARNATION = ("worker_id", "incarnation", "came_revision", "status", "_revision")
_ATTEMPT_DAY = ("assignment_id", "task_id", "day", "_revision")


class AppliedFacts(NamedTuple):
    """Outcome of a range of records.

    Attributes:
        revision: Last record that is in the tables, or needs nothing in them.
        records: Records since the last range that the tables say is in them.
        rows: Rows written, by table.
        is_committed: Whether the tables say so: a range that changes nothing is written down now and then only.

    """

    revision: int
    records: int
    rows: dict[str, int]
    is_committed: bool


class HistoryWriter:
    """Writes the history of one log, range by range.

    Args:
        tables: Where to.
        clock: Monotonic seconds.
        sleep: Waits so many seconds.

    """

    def __init__(
        self,
        tables: HistoryTables,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._tables = tables
        self._clock = clock
        self._sleep = sleep
        # Up to here everything has been read; the tables may say less where the rest changes nothing in them.
        self._end: BatchEnd | None = None
        self._committed_s = clock()

    def apply(self, records: RecordRange) -> AppliedFacts:
        """Apply a range of records, as `fact_reader` made them; what has been applied before changes nothing.

        Raises:
            SinkGapError: The range does not go on where the tables stand.
            SinkConflictError, DeltaSinkError: See `connectors.delta.commits.persisted`.
            ForeignTableError: The tables are not of this log's history.

        """
        return self._persist(lambda: self._apply_once(records), "a range of records")

    def _persist(self, attempt: Callable[[], _T], what: str) -> _T:
        return persisted(attempt, place=self._tables.lake, what=what, clock=self._clock, sleep=self._sleep)

    def _apply_once(self, records: RecordRange) -> AppliedFacts:
        tasks = self._tables.open("tasks")
        after = max(tasks.revision, self._end.revision if self._end else 0)
        if records.end.revision <= after:
            return AppliedFacts(after, 0, {}, is_committed=True)
        records.check_follows(after, self._tables.lake)
        return self._write(tasks, facts_of(records, after), records.end)

    def _write(self, tasks: TableHandle, facts: list[Fact], end: BatchEnd) -> AppliedFacts:
        position = self._position(end)
        fold = self._fold_tasks(tasks, facts)
        changed = fold.changed_tasks
        rows = {
            "policies": self._commit("policies", [row for row in map(policy_row, facts) if row is not None], position),
            "workers": self._commit("workers", self._fold_workers(facts), position),
            "attempts": self._commit("attempts", list(fold.attempts.values()), position),
            "waits": self._commit("waits", fold.waits, position),
            "tasks": len(changed),
        }
        is_due = any(rows.values()) or self._is_due()
        if is_due:
            self._tables.commit(tasks, changed, position)
            self._committed_s = self._clock()
        self._end = end
        return AppliedFacts(end.revision, end.revision - tasks.revision, rows, is_committed=is_due)

    def finish(self, *, only_due: bool = False) -> None:
        """Write down how far the tables are, if they do not say so yet.

        Args:
            only_due: Only if the last commit is older than the interval.

        """
        if self._end is None or (only_due and not self._is_due()):
            return
        end = self._end
        self._persist(lambda: self._finish_once(end), "the position")
        self._committed_s = self._clock()

    def _finish_once(self, end: BatchEnd) -> None:
        tasks = self._tables.open("tasks")
        if tasks.revision < end.revision:  # Else another writer was quicker.
            self._tables.commit(tasks, [], self._position(end))

    def _is_due(self) -> bool:
        return self._clock() - self._committed_s >= POSITION_INTERVAL_S

    def _position(self, end: BatchEnd) -> HistoryPosition:
        return self._tables.position_at(end.revision, end.ledger_id, end.entry_id, end.prefix_hash.hex())

    def _commit(self, name: str, rows: Sequence[msgspec.Struct], position: HistoryPosition) -> int:
        """Commit rows of a table, but those that it has already; return how many."""
        opened = self._tables.open(name)
        if opened.table.writing is Writing.APPEND:  # Each is of one record, which its key names.
            key = opened.table.keys[0]
            rows = [row for row in rows if getattr(row, key) > opened.revision]
        if not rows or opened.revision >= position.revision:
            return 0
        self._tables.commit(opened, rows, position)
        return len(rows)

    # ---- what the facts go on from

    def _fold_workers(self, facts: Sequence[Fact]) -> list[HistoryWorker]:
        """Return the rows of workers, which go on from their own table: it may be ahead of the tasks'."""
        named = list({fact.said.worker_id: None for fact in facts if isinstance(fact.said, _OF_WORKERS)})
        if not named:
            return []
        opened = self._tables.open("workers")
        present: dict[str, HistoryWorker] = {}
        for row in sorted(opened.rows_of("worker_id", named), key=lambda row: int(row.came_revision)):
            present[row.worker_id] = row
        fold = WorkerFold(present)
        for fact in facts:
            if fact.revision > opened.revision:
                fold.apply(fact)
        return list(fold.changed.values())

    def _fold_tasks(self, tasks: TableHandle, facts: Sequence[Fact]) -> TaskFold:
        before = facts[0].revision if facts else 0
        ids = {fact.said.task_id: None for fact in facts if isinstance(fact.said, _OF_TASKS)}
        committed = [fact.said.transaction for fact in facts if fact.kind == FactKind.TRANSACTION_COMMITTED]
        rows: list[HistoryTask] = tasks.rows("task_id", list(ids))
        rows += tasks.rows("transaction", committed, also=f"`status` = '{HistoryTaskStatus.PREPARED}'")
        found = {row.task_id: row for row in rows}
        fold = TaskFold(
            found,
            self._incarnations(facts, before),
            self._policies(facts, found, before),
            self._attempt_days(facts, found),
        )
        for fact in facts:
            fold.apply(fact)
        return fold

    def _incarnations(self, facts: Sequence[Fact], before: int) -> dict[str, str]:
        """Return the present incarnations of workers that get something to run, as they were before the facts."""
        named = {fact.said.worker_id: None for fact in facts if fact.kind == FactKind.TASK_ASSIGNED}
        opened = self._tables.open("workers")
        rows = opened.rows_of("worker_id", list(named), fields=_INCARNATION)
        came = sorted((row.came_revision, row.worker_id, row.incarnation) for row in rows)
        return {worker_id: incarnation for revision, worker_id, incarnation in came if revision < before}

    def _policies(
        self, facts: Sequence[Fact], found: dict[int, HistoryTask], before: int
    ) -> dict[str, tuple[int | None, int | None]]:
        """Return what was said of the tenants whose tasks are assigned, as it was before the facts."""
        if not any(fact.kind == FactKind.TASK_ASSIGNED for fact in facts):
            return {}
        tenants = {row.tenant: None for row in found.values() if row.tenant}
        tenants |= {fact.said.tenant: None for fact in facts if fact.kind == FactKind.TASK_SUBMITTED}
        rows: list[PolicyRow] = self._tables.open("policies").rows_of("tenant", list(tenants))
        said: dict[str, tuple[int | None, int | None]] = {}
        for row in sorted(rows, key=lambda row: row.revision):
            if row.revision < before:
                said[row.tenant] = (row.group, row.priority)
        return said

    def _attempt_days(self, facts: Sequence[Fact], found: dict[int, HistoryTask]) -> dict[int, int]:
        """Return the days of attempts of which a worker speaks when they are no task's last one any more."""
        named = {
            fact.said.assignment_id: None
            for fact in facts
            if fact.kind in {FactKind.LATE_END, FactKind.PROGRESS_REPORTED}
            and ((task := found.get(fact.said.task_id)) is None or task.assignment_id != fact.said.assignment_id)
        }
        rows = self._tables.open("attempts").rows("assignment_id", list(named), fields=_ATTEMPT_DAY) if named else []
        return {row.assignment_id: row.day for row in rows}

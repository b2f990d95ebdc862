"""One range of records goes into the tables of the history: rows are read that its facts go on from, and written."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from connectors.errors import SinkConflictError, SinkGapError
from connectors.history.columns import Writing
from connectors.history.facts import FactBatch, RangeEnd, read_facts
from connectors.history.fleet_fold import WorkerFold, policy_row
from connectors.history.layout import Fact
from connectors.history.rows import PolicyRow, TaskRow, WorkerRow
from connectors.history.tables import HistoryPosition, HistoryTables, TableHandle
from connectors.history.task_fold import TaskFold
from connectors.history.words import FactKind, TaskStatus

__all__ = ["Applied", "HistoryWriter"]

_LOGGER = logging.getLogger(__name__)
_CONFLICT_WAIT_S_MAX = 60.0
_POSITION_INTERVAL_S = 10.0

_OF_TASKS = range(FactKind.TASK_SUBMITTED, FactKind.LATE_END + 1)
_OF_WORKERS = range(FactKind.WORKER_CONNECTED, FactKind.WORKER_REMOVED + 1)
# What a row cannot be without, and the day.
_INCARNATION = ("worker_id", "incarnation", "came_revision", "status", "_revision")
_ATTEMPT_DAY = ("assignment_id", "task_id", "day", "_revision")


class Applied(NamedTuple):
    """What a range of records did.

    Attributes:
        revision: Last record that is in the tables, or needs nothing in them.
        records: Records since the last range that the tables say is in them.
        tasks: Rows written, by table.
        attempts: The same.
        waits: The same.
        workers: The same.
        policies: The same.
        is_committed: Whether the tables say so: a range that changes nothing is written down now and then only.

    """

    revision: int
    records: int = 0
    tasks: int = 0
    attempts: int = 0
    waits: int = 0
    workers: int = 0
    policies: int = 0
    is_committed: bool = True


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
        self._end: RangeEnd | None = None
        self._committed_s = clock()

    def apply(self, facts: pa.Table) -> Applied:
        """Apply the facts of a range of records, in any order; what has been applied before changes nothing.

        Raises:
            SinkGapError: The range does not go on where the tables stand, or has a gap.
            SinkConflictError: Other writers kept committing until the time was up.
            ForeignTableError: The tables are not of this log's history.

        """
        deadline = self._clock() + _CONFLICT_WAIT_S_MAX
        delay_s = 0.05
        while True:
            try:
                return self._apply_once(facts)
            except CommitFailedError as error:
                if self._clock() >= deadline:
                    raise SinkConflictError(
                        f"{self._tables.lake}: a range of records could not be committed for "
                        f"{_CONFLICT_WAIT_S_MAX:.0f} s: others kept committing to the tables ({error})"
                    ) from error
                _LOGGER.info("another writer committed first, going on from there: %s", self._tables.lake)
                self._sleep(delay_s)
                delay_s = min(2 * delay_s, 2.0)

    def _apply_once(self, facts: pa.Table) -> Applied:
        tasks = self._tables.open("tasks")
        after = max(tasks.revision, self._end.revision if self._end else 0)
        try:
            batch = read_facts(facts, after)
        except ValueError as error:
            raise SinkGapError(f"the micro-batch has a gap: {error}") from error
        if batch is None:
            return Applied(after)
        if batch.first > after + 1:
            raise SinkGapError(
                f"the history ends with record {after}, the micro-batch has records {batch.first} to "
                f"{batch.end.revision}: records are missing in between"
            )
        return self._write(tasks, batch)

    def _write(self, tasks: TableHandle, batch: FactBatch) -> Applied:
        position = self._position(batch.end)
        policies = [row for row in map(policy_row, batch.facts) if row is not None]
        workers = self._fold_workers(batch.facts)
        fold = self._fold_tasks(tasks, batch.facts)
        changed = fold.changed_tasks
        written = {
            "policies": self._commit("policies", policies, position),
            "workers": self._commit("workers", workers, position),
            "attempts": self._commit("attempts", list(fold.attempts.values()), position),
            "waits": self._commit("waits", fold.waits, position),
        }
        is_due = any(written.values()) or bool(changed)
        if is_due or self._clock() - self._committed_s >= _POSITION_INTERVAL_S:
            self._tables.commit(tasks, changed, position)
            self._committed_s, is_due = self._clock(), True
        self._end = batch.end
        records = batch.end.revision - tasks.revision
        return Applied(batch.end.revision, records, tasks=len(changed), is_committed=is_due, **written)

    def finish(self) -> None:
        """Write down how far the tables are, if they do not say so yet."""
        if self._end is None:
            return
        tasks = self._tables.open("tasks")
        if tasks.revision < self._end.revision:
            # Another writer that was quicker is as far, or will be.
            with contextlib.suppress(CommitFailedError):
                self._tables.commit(tasks, [], self._position(self._end))

    def _position(self, end: RangeEnd) -> HistoryPosition:
        digest = end.prefix_hash.hex() if end.prefix_hash else ""
        return self._tables.position_at(end.revision, end.ledger_id, end.entry_id, digest)

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

    def _fold_workers(self, facts: Sequence[Fact]) -> list[WorkerRow]:
        """Return the rows of workers, which go on from their own table: it may be ahead of the tasks'."""
        named = list({fact.values[0]: None for fact in facts if fact.kind in _OF_WORKERS})
        if not named:
            return []
        opened = self._tables.open("workers")
        present: dict[str, WorkerRow] = {}
        for row in sorted(opened.rows_of("worker_id", named), key=lambda row: int(row.came_revision)):
            present[row.worker_id] = row
        fold = WorkerFold(present)
        for fact in facts:
            if fact.revision > opened.revision:
                fold.apply(fact)
        return list(fold.changed.values())

    def _fold_tasks(self, tasks: TableHandle, facts: Sequence[Fact]) -> TaskFold:
        before = facts[0].revision if facts else 0
        ids = {fact.values[0]: None for fact in facts if fact.kind in _OF_TASKS}
        committed = [fact.values[0] for fact in facts if fact.kind == FactKind.TRANSACTION_COMMITTED]
        rows: list[TaskRow] = tasks.rows("task_id", list(ids))
        rows += tasks.rows("transaction", committed, also=f"`status` = '{TaskStatus.PREPARED}'")
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
        named = {fact.values[3]: None for fact in facts if fact.kind == FactKind.TASK_ASSIGNED}
        opened = self._tables.open("workers")
        rows = opened.rows_of("worker_id", list(named), fields=_INCARNATION)
        came = sorted((row.came_revision, row.worker_id, row.incarnation) for row in rows)
        return {worker_id: incarnation for revision, worker_id, incarnation in came if revision < before}

    def _policies(
        self, facts: Sequence[Fact], found: dict[int, TaskRow], before: int
    ) -> dict[str, tuple[int | None, int | None]]:
        """Return what was said of the tenants whose tasks are assigned, as it was before the facts."""
        if not any(fact.kind == FactKind.TASK_ASSIGNED for fact in facts):
            return {}
        tenants = {row.tenant: None for row in found.values() if row.tenant}
        tenants |= {fact.values[1]: None for fact in facts if fact.kind == FactKind.TASK_SUBMITTED}
        rows: list[PolicyRow] = self._tables.open("policies").rows_of("tenant", list(tenants))
        said: dict[str, tuple[int | None, int | None]] = {}
        for row in sorted(rows, key=lambda row: row.revision):
            if row.revision < before:
                said[row.tenant] = (row.group, row.priority)
        return said

    def _attempt_days(self, facts: Sequence[Fact], found: dict[int, TaskRow]) -> dict[int, int]:
        """Return the days of attempts of which a worker speaks when they are no task's last one any more."""
        named = {
            fact.values[1]: None
            for fact in facts
            if fact.kind in {FactKind.LATE_END, FactKind.PROGRESS_REPORTED}
            and ((task := found.get(fact.values[0])) is None or task.assignment_id != fact.values[1])
        }
        rows = self._tables.open("attempts").rows("assignment_id", list(named), fields=_ATTEMPT_DAY) if named else []
        return {row.assignment_id: row.day for row in rows}

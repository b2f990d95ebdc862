"""One Delta table that follows one table of a replicated machine, written with `deltalake`, without a JVM.

1. A range of records is applied by: load the table, read the transaction from it, decide, commit *with that handle*.
   Delta refuses the commit if anybody committed meanwhile: so two writers cannot apply one range twice.
2. What is at or below the transaction's revision is left out: running a range again changes nothing, and a commit whose
   reply was lost is found when the table is loaded again.
3. A range that changes no row is held back: the position alone is committed at most every `position_interval_s`, and
   with `flush`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from connectors.delta.columns import FollowedTable
from connectors.delta.commits import persisted
from connectors.delta.fold import RecordRange
from connectors.delta.modes import RowStep, Standing, mode_named, rewritable, scanned
from connectors.delta.place import MERGE_MODE, DeltaPlace, LoadedTable
from connectors.delta.position import TablePosition
from connectors.errors import DeltaSinkError, SinkConflictError
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes
from rsm_spark.core.envelope import root_hash
from rsm_spark.core.machine import TableDescription
from rsm_spark.snapshots.delta_sync import sync_commit

_T = TypeVar("_T")
POSITION_INTERVAL_S = 10.0
"""Commits that only move the position happen at most so often."""


class AppliedToTable(NamedTuple):
    """Outcome of one range of records.

    Attributes:
        position: The table's, afterwards; a change of the position alone may still be held back.
        upserted: Rows inserted or changed.
        deleted: Rows that went.
        is_new: False if every record of the range had been applied before.
        is_committed: Whether there was a commit.

    """

    position: TablePosition
    upserted: int
    deleted: int
    is_new: bool
    is_committed: bool


class _RenamedColumnsError(DeltaSinkError):
    """A range of records renames columns: the table is written anew before it."""

    def __init__(self, table: TableDescription) -> None:
        super().__init__(f"table {table.name}: columns have new names")
        self.table = table


class FollowerTable:
    """One table of a log's machine as a Delta table.

    Args:
        place: Path or URI of the Delta table.
        log: Name of the log.
        log_id: Its uuid, 32 hex digits.
        table: The machine's table, as it is described where the follower begins.
        mode: `place.MERGE_MODE` or `place.APPEND_MODE`.
        has_change_feed: Whether commits tell each change of a row, for Delta's `readChangeFeed`. A table that has a
            change feed keeps it.
        position_interval_s: Least time between commits that only move the position; 0 = each range is committed.
        storage_options: For `deltalake`, for object stores.
        clock: Monotonic seconds.
        sleep: Waits so many seconds.

    """

    def __init__(
        self,
        place: str,
        *,
        log: str,
        log_id: str,
        table: TableDescription,
        mode: str = MERGE_MODE,
        has_change_feed: bool = False,
        position_interval_s: float = POSITION_INTERVAL_S,
        storage_options: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.table = table
        self.mode = mode_named(mode)
        self.at = DeltaPlace(
            place, log=log, log_id=log_id, table=table.name, mode=mode, storage_options=storage_options
        )
        self._has_change_feed = has_change_feed
        self._interval_s = position_interval_s
        self._clock = clock
        self._sleep = sleep
        # A position that no commit has yet. Invariant: no row differs between the committed one and this.
        self._held: TablePosition | None = None
        self._committed_s = clock()
        self.commit_count = 0

    @property
    def place(self) -> str:
        """Path or URI of the Delta table."""
        return self.at.place

    @property
    def name(self) -> str:
        """Name of the machine's table."""
        return self.table.name

    def position(self) -> TablePosition | None:
        """Return where the table is, or None if there is no table yet.

        Raises:
            ForeignTableError: There is a table that does not follow this log.

        """
        loaded = self.at.load()
        return None if loaded is None else self._standing(loaded)

    def open(self, begin: TablePosition | None = None) -> TablePosition:
        """Return where the table is; create it, empty, if there is none.

        Args:
            begin: Where other tables of the machine stand when this one appears; None = before the first record.

        Raises:
            ForeignTableError: There is a table that does not follow this log.
            DeltaSinkError: Its columns cannot be those of a Delta table.

        """
        standing = self._standing(self._opened(begin))
        if self._has_change_feed:
            self._persist(self._try_change_feed, "its change feed")
        return standing

    def _try_change_feed(self) -> None:
        loaded = self._reloaded()
        if self.at.add_change_feed(loaded, self._standing(loaded)):
            self._sync(loaded)

    def _opened(self, begin: TablePosition | None = None) -> LoadedTable:
        loaded = self.at.load()
        if loaded is None:
            followed = FollowedTable.described(self.table)
            self.at.create(
                followed, self.mode.schema(followed), begin or self.empty_position(),
                has_change_feed=self._has_change_feed,
            )  # fmt: skip
            loaded = self._reloaded()
            self._sync(loaded)
        return loaded

    def begin(self, position: TablePosition, rows: pa.RecordBatchReader) -> None:
        """Have the table begin with rows of a snapshot, in one commit; made if it is not there, else written over.

        Args:
            position: Of the snapshot, with digest and count of these rows.
            rows: In the mode's schema.

        Raises:
            SinkConflictError: Somebody else commits to the table.

        """
        loaded = self._opened()
        try:
            self.at.replace(loaded.handle, rows, position)
        except CommitFailedError as error:
            there = self.position()
            if there is None or there.revision < position.revision:
                raise SinkConflictError(
                    f"{self.place}: somebody else commits to this table, so it cannot begin with the snapshot at "
                    f"revision {position.revision}: run it again ({error})"
                ) from error
            return  # By another run of the job, which has begun with the same snapshot or a newer one.
        self._held = None
        self._sync(loaded)

    def empty_position(self) -> TablePosition:
        """Return the position before the first record of the log."""
        return TablePosition(
            self.at.log,
            self.at.log_id,
            self.name,
            revision=0,
            ledger=-1,
            entry=-1,
            prefix_hash=root_hash(bytes.fromhex(self.at.log_id)).hex(),
            digest=digest_bytes(0).hex(),
            row_count=0,
        )

    def apply(self, records: pa.Table | RecordRange) -> AppliedToTable:
        """Apply a range of the log; create the table with the first one.

        Where the machine's description in the range adds columns, the table gets them in the same commit. If it renames
        some, what lies before is committed, then the table is written anew under the new names, then the rest is
        applied. If it changes otherwise, what lies before is committed, then the error is raised.

        Args:
            records: `fold.RECORD_COLUMNS` of all records of the range, in any order.

        Raises:
            SinkGapError: The records do not go on where the table stands.
            SinkConflictError: Other writers kept committing until the time was up.
            DeltaSinkError: The table is described otherwise, a value does not fit, or the store fails again and again.
            ForeignTableError: The table does not follow this log.

        """
        span = records if isinstance(records, RecordRange) else RecordRange(records)
        what = f"records {span.first} to {span.end.revision}"
        applied, problem = self._persist(lambda: self._try(span), what)
        if problem is None:
            return applied
        self.flush()
        if not isinstance(problem, _RenamedColumnsError):
            raise problem
        self._persist(lambda: self._rename(problem.table), "new names of columns")
        rest = self.apply(span)
        upserted, deleted = applied.upserted + rest.upserted, applied.deleted + rest.deleted
        return AppliedToTable(rest.position, upserted, deleted, is_new=True, is_committed=True)

    def flush(self, *, only_due: bool = False) -> TablePosition | None:
        """Commit a position that is held back; return where the table stands.

        Args:
            only_due: Only if the last commit is older than the interval; else return None.

        """
        if only_due and (self._held is None or not self._is_due()):
            return None
        return self._persist(self._try_flush, "the position")

    def _is_due(self) -> bool:
        return self._clock() - self._committed_s >= self._interval_s

    def restate(self, position: TablePosition) -> None:
        """Commit a position anew whose own commit is gone from the history; it must name the same rows."""
        loaded = self._reloaded()
        if position.revision == loaded.revision:
            self._write(loaded, position)

    def upkept(self) -> tuple[DeltaTable, CommitProperties] | None:
        """Return the table and what a commit of its maintenance carries; None if nobody knows where it stands."""
        loaded = self.at.load()
        if loaded is None or loaded.position is None:
            return None
        return loaded.handle, self.at.properties(loaded.position, moves=False)

    def _persist(self, attempt: Callable[[], _T], what: str) -> _T:
        return persisted(attempt, place=self.place, what=what, clock=self._clock, sleep=self._sleep)

    def _try(self, span: RecordRange) -> tuple[AppliedToTable, DeltaSinkError | None]:
        loaded = self._opened()
        before = self._standing(loaded)
        if span.end.revision <= before.revision:
            self._sync(loaded)
            return AppliedToTable(before, 0, 0, is_new=False, is_committed=False), None
        span.check_follows(before.revision, self.place)
        part, followed, problem = self._fitting(span, loaded.followed, before)
        if part is None or part.end.revision <= before.revision:
            return AppliedToTable(before, 0, 0, is_new=False, is_committed=False), problem
        at = Standing(before.revision, int(before.digest, 16), before.row_count)
        step = self.mode.step(loaded, followed, part, at)
        after = self._after(before, part, step)
        is_quiet = step.rows.num_rows == 0 and followed == loaded.followed
        if is_quiet and not self._is_due():
            self._held = after
            return AppliedToTable(after, 0, 0, is_new=True, is_committed=False), problem
        self._write(loaded, after, step, followed)
        return AppliedToTable(after, step.upserted, step.deleted, is_new=True, is_committed=True), problem

    def _try_flush(self) -> TablePosition | None:
        loaded = self.at.load()
        if loaded is None:
            return None
        position = self._standing(loaded)
        if position is self._held:
            self._write(loaded, position)
        return position

    def _fitting(
        self, span: RecordRange, stored: FollowedTable, before: TablePosition
    ) -> tuple[RecordRange | None, FollowedTable, DeltaSinkError | None]:
        """Return how far the range can be applied, the columns then, and why it cannot beyond."""
        followed = stored
        for at, machine in span.descriptions:
            if at <= before.revision:
                continue
            table = next((one for one in machine.tables if one.name == self.name), None)
            if table is None and not before.row_count and not span.holds(self.name, before.revision, at):
                continue  # It is not described yet.
            try:
                followed = followed.widened(table, at)
            except DeltaSinkError as error:
                is_renamed = followed.renamed(table) != followed
                return span.until(at), followed, _RenamedColumnsError(table) if is_renamed and table else error
        return span, followed, None

    def _rename(self, table: TableDescription) -> None:
        """Write the rows anew under the names of a description, in one commit that moves nothing."""
        loaded = self._reloaded()
        followed = loaded.followed.renamed(table)
        followed.check()
        if followed == loaded.followed:
            return  # A commit whose reply was lost.
        schema = self.mode.schema(followed)
        batches = rewritable(loaded.handle, self.mode.schema(loaded.followed))
        rows = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches)
        properties = self.at.properties(self._standing(loaded), moves=False, is_renaming=True)
        write_deltalake(
            loaded.handle, pa.RecordBatchReader.from_batches(schema, rows), mode="overwrite",
            schema_mode="overwrite", commit_properties=properties,
        )  # fmt: skip
        self.commit_count += 1
        self._sync(loaded)

    def _after(self, before: TablePosition, span: RecordRange, step: RowStep) -> TablePosition:
        end = span.end
        return msgspec.structs.replace(
            before,
            revision=end.revision,
            ledger=end.ledger_id,
            entry=end.entry_id,
            prefix_hash=end.prefix_hash.hex(),
            digest=digest_bytes(step.digest % DIGEST_MODULUS).hex(),
            row_count=step.row_count,
        )

    def _write(
        self,
        loaded: LoadedTable,
        after: TablePosition,
        step: RowStep | None = None,
        followed: FollowedTable | None = None,
    ) -> None:
        """Commit a step, or the position alone."""
        followed = followed or loaded.followed
        widens = followed != loaded.followed
        properties = self.at.properties(after)
        if step is not None and step.rows.num_rows:
            self.mode.write(loaded.handle, followed, step, properties, widens=widens)
        else:
            # A merge that changes nothing commits nothing; the position must move all the same.
            empty = self.mode.schema(followed).empty_table()
            mode: Literal["merge"] | None = "merge" if widens else None
            write_deltalake(loaded.handle, empty, mode="append", schema_mode=mode, commit_properties=properties)
        self._held = None
        self._committed_s = self._clock()
        self.commit_count += 1
        self._sync(loaded)

    def _sync(self, loaded: LoadedTable) -> None:
        try:
            sync_commit(self.place, loaded.handle.version())
        except OSError as error:
            # Not one to try again: what the table shows may not be on the disk.
            raise DeltaSinkError(f"{self.place}: a commit could not be synced to the disk: {error}") from error

    def _reloaded(self) -> LoadedTable:
        loaded = self.at.load()
        if loaded is None:
            raise DeltaSinkError(f"{self.place}: the table is gone that was there a moment ago")
        return loaded

    def _standing(self, loaded: LoadedTable) -> TablePosition:
        """Return where the table stands: what its commits say, or the position that is held back."""
        committed = loaded.position or self._summed(loaded)
        held = self._held
        if held is not None and committed.revision < held.revision and committed.digest == held.digest:
            return held
        self._held = None
        return committed

    def _summed(self, loaded: LoadedTable) -> TablePosition:
        """Sum the rows up: the history was cleared away, but the transaction is kept for ever."""
        schema = self.mode.schema(loaded.followed)
        digest = row_count = 0
        for batch in scanned(loaded.handle, schema):
            digest += self.mode.sum(loaded.followed, pa.Table.from_batches([batch]))
            row_count += batch.num_rows
        return msgspec.structs.replace(
            self.empty_position(),
            revision=loaded.revision,
            prefix_hash="",
            digest=digest_bytes(digest % DIGEST_MODULUS).hex(),
            row_count=row_count,
        )

"""One log as a query follows it: where it starts, how far it can go, what the tasks read. Driver only.

A query may begin in a snapshot: first come its rows (`SnapshotOffset`), then the log from the next entry on
(`LogOffset`). Every position in the log is first compared with the log as it is (`connectors.source.loss`): what is
gone ends the query or is passed over, as `failOnDataLoss` says, before anything is planned on it.
"""

# Longer than 400 lines: one log, one look at it, and all that a query asks of it hangs on where both stand.

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from pyspark.sql.datasource import InputPartition

from connectors.errors import OptionError, SparkOffsetError, StartGoneError
from connectors.source.batch_reach import ledgers_behind
from connectors.source.bounds import Bound, BoundKind
from connectors.source.finished_rows import BackLedger
from connectors.source.layouts import PartitionPlace
from connectors.source.locate import locate_bound, round_up
from connectors.source.look import LogLook
from connectors.source.loss import Loss, Losses, gap_before, trimmed_text
from connectors.source.narrow import narrow_log, narrow_ranges
from connectors.source.offsets import LogOffset, LogPosition, SnapshotOffset
from connectors.source.options import Rows, SourceOptions, TimestampStrategy
from connectors.source.plan import LogSpan, LogView, MicroBatchLimits, cut_log, next_offset
from connectors.source.progress import SourceLag, log_backlog
from connectors.source.row_plan import row_plan
from connectors.source.snapshot_phase import LakePort, SnapshotPhase, find_phase, no_snapshot, present_phase
from connectors.source.snapshot_rows import SnapshotPartition
from connectors.source.split import split_log
from connectors.source.task_metadata import SourceAccess, task_metadata
from connectors.source.tasks import LedgerPartition
from rsm_spark.core.machine import encode_description
from rsm_spark.core.plain_log import PLAIN_LOG
from rsm_spark.errors import CorruptLogError

_LOGGER = logging.getLogger(__name__)
_LOOK_FRESH_S = 0.05

OpenLake = Callable[[str], LakePort]
"""Log name -> its snapshots."""


class FollowedLog:
    """One log of a query, and before it, if the query says so, a snapshot.

    Args:
        log: Name.
        options: Of the query.
        access: Where to read.
        losses: Told of what is passed over.
        open_lake: Called only if a snapshot is asked for.
        place: Of which partitioned log it is a partition, where the query names that one; None = of none.

    """

    def __init__(
        self,
        log: str,
        options: SourceOptions,
        access: SourceAccess,
        losses: Losses,
        open_lake: OpenLake,
        place: PartitionPlace | None = None,
    ) -> None:
        self._log = log
        self._place = place
        self._options = options
        self._access = access
        self._losses = losses
        self._open_lake = open_lake
        self._look = LogLook(log, access)
        self._view: LogView | None = None
        self._seen_s = float("-inf")
        # Once the log was made anew: the last ledger of the old one that was seen, and the revision after its end.
        self._old: tuple[int, int] | None = None
        self._lake: LakePort | None = None
        self._phase: SnapshotPhase | None = None

    @property
    def seen_end(self) -> int | None:
        """Revision after the last record that was seen; None before the first look."""
        return None if self._view is None else self._view.end.revision

    # ---- the log as it is

    def _look_now(self) -> LogView:
        """Look at the log.

        Raises:
            NoSuchLogError: There is none (any more).
            StartGoneError: It was made anew, and that is an error.

        """
        try:
            view = self._look.look()
        except CorruptLogError:
            if not self._is_made_anew():
                raise
            assert self._view is not None, "checked above"
            old = self._view.end
            if self._options.fail_on_data_loss:
                raise StartGoneError(
                    f"log {self._log}: it was deleted and made anew while this query ran; the old one was seen up to "
                    f"record {old.revision - 1}. Start a new query (new checkpoint location), or set "
                    "failOnDataLoss=false to go on with the first record of the new log"
                ) from None
            # Ids of ledgers only grow: those of the new log are larger.
            self._look, self._old = LogLook(self._log, self._access), (old.ledger_id, old.revision)
            view = self._look.look()
        self._view, self._seen_s = view, time.monotonic()
        return view

    def _is_made_anew(self) -> bool:
        return self._view is not None and self._access.chain(self._log).log_id != self._look.log_id.hex()

    def _fresh(self) -> LogView:
        """Look, unless that was done just now: Spark asks several things in a row for one micro-batch."""
        if self._view is None or time.monotonic() - self._seen_s > _LOOK_FRESH_S:
            return self._look_now()
        return self._view

    def begin(self) -> LogOffset:
        """Return the first position that is still there; where a log begins that has just appeared."""
        return self._look_now().begin

    def end(self) -> LogOffset:
        """Return the position after everything that may be read now."""
        return self._fresh().end

    # ---- where a query starts and ends

    def start(self, bound: Bound, ending: Bound) -> LogPosition:
        """Return where a new query starts.

        Args:
            bound: As asked for.
            ending: Where the query ends: a snapshot behind it is of no use.

        Raises:
            StartGoneError: It has been trimmed, and that is an error.
            SparkOffsetError: The log does not reach so far, or nothing was logged at or after a time.
            SnapshotError: The begin of the log has been trimmed, and no snapshot that can be read covers it.

        """
        view = self._look_now()
        return self._start_in_snapshot(view, ending) if bound.kind == BoundKind.SNAPSHOT else self._start(view, bound)

    def _start_in_snapshot(self, view: LogView, ending: Bound) -> LogPosition:
        end = self.stop(ending)
        phase, reasons = find_phase(self._snapshots(), view, self._look.log_id, end.revision, self._look)
        for reason in reasons:
            _LOGGER.warning("log %s: a snapshot is not begun with: %s", self._log, reason, extra={"log": self._log})
        if phase is not None:
            self._phase = phase
            return phase.begin
        if view.first_revision > 1:
            raise no_snapshot(self._snapshots(), view, reasons)
        # Before its first record the state is empty: the whole log says what a snapshot and its tail would.
        said = "log %s: no snapshot to begin with; it is read from its first record on"
        _LOGGER.info(said, self._log, extra={"log": self._log})
        return view.begin

    def _start(self, view: LogView, bound: Bound) -> LogOffset:
        if bound.kind == BoundKind.REVISION:
            # Compared here, so that the range that is lost is told in one way.
            position = self._standing(view, LogOffset(-1, 0, bound.revision), can_be_anew=False)
            if position.revision != bound.revision:
                return position
        try:
            found = locate_bound(view, bound, self._look.head_at)
        except StartGoneError:
            if self._options.fail_on_data_loss:
                raise
            self._losses.add(Loss(self._log, last=view.first_revision - 1, reason=f"ledger {bound.ledger_id} is gone"))
            return view.begin
        if found is not None:
            return found
        if self._options.timestamp_strategy == TimestampStrategy.LATEST:
            return view.end
        raise SparkOffsetError(
            f"log {self._log}: nothing was logged at or after startingTimestamp {bound.timestamp_ms} yet "
            f"({self._newest(view)}): choose an earlier time, or set startingOffsetsByTimestampStrategy=latest"
        )

    def _newest(self, view: LogView) -> str:
        end = view.end
        if end.ledger_id < 0:
            return "it holds nothing yet"
        return f"the newest entry is of {self._look.head_at(end.ledger_id, end.entry_id - 1).logged_ms}"

    def stop(self, bound: Bound) -> LogOffset:
        """Return where a batch ends, exclusive; its last entry is read whole.

        Raises:
            StartGoneError, SparkOffsetError: See `start`.

        """
        view = self._fresh()
        try:
            found = locate_bound(view, bound, self._look.head_at)
        except StartGoneError:
            if self._options.fail_on_data_loss:
                raise
            # Whatever lay before that end is gone; `start` has told of it.
            return view.begin
        return view.end if found is None else round_up(view, found, self._look.head_at)

    def _standing(self, view: LogView, position: LogOffset, *, can_be_anew: bool = True) -> LogOffset:
        """Return where a query goes on that stands somewhere.

        Raises:
            StartGoneError: Something is lost in between, and that is an error.

        """
        position = view.present(position)
        is_old = can_be_anew and self._old is not None and position.ledger_id <= self._old[0]
        loss = gap_before(view, position, self._old[1] if self._old is not None and is_old else None)
        if loss is None or (loss.last is None and not can_be_anew):
            return position
        if self._options.fail_on_data_loss:
            raise StartGoneError(trimmed_text(view, loss))
        if loss.count != 0:
            self._losses.add(loss)
        return view.begin

    # ---- micro-batches

    def ahead(self, position: LogPosition, target: LogPosition | None) -> tuple[LogPosition, LogPosition]:
        """Look, and return where the query stands and how far it could go; the same twice if there is nothing new.

        From a row of a snapshot it can go to where the snapshot's tail begins.

        Args:
            position: Where it stood.
            target: Not beyond it; None = up to what may be read now.

        Raises:
            StartGoneError: Log or snapshot is gone from there, and that is an error.

        """
        view = self._look_now()
        if isinstance(position, SnapshotOffset):
            # What Trigger.AvailableNow aims at lies in the tail, if it was there when the query began.
            return position, position if isinstance(target, SnapshotOffset) else self._at(position).tail
        start = self._standing(view, position)
        target = view.present(target) if isinstance(target, LogOffset) else target
        end = next_offset(view, start, counts_records=self._options.rows != Rows.RAW)
        if isinstance(target, LogOffset) and view.place(target) < view.place(end):
            end = target if view.place(target) > view.place(start) else start
        return start, end

    def cut(self, start: LogPosition, end: LogPosition, limits: MicroBatchLimits) -> LogPosition:
        """Return the end of a micro-batch from `start` on, at most `end`; see `plan.cut_log`."""
        if start == end:
            return end
        if isinstance(start, SnapshotOffset):
            return self._at(start).cut(start.row, limits)
        assert isinstance(end, LogOffset), "a log has no snapshot behind it"
        view = self._fresh()
        return cut_log(view, view.present(start), view.present(end), limits, self._look.head_at)

    def up_to(self, start: LogPosition, end: LogPosition, revision: int) -> LogPosition:
        """Return where a query ends that may not read beyond a record with which an entry ends; at most `end`."""
        if not isinstance(start, LogOffset) or not isinstance(end, LogOffset) or end.revision <= revision + 1:
            return end
        count = revision + 1 - start.revision
        return self.cut(start, end, MicroBatchLimits(offsets_max=count)) if count > 0 else start

    def waiting(self, start: LogPosition, end: LogPosition) -> SourceLag:
        """Return what lies between two positions of one look."""
        if isinstance(start, SnapshotOffset):
            return self._rows_behind(start)
        assert isinstance(end, LogOffset), "a log has no snapshot behind it"
        whole, rest = self.backlog(start), self.backlog(end)
        return SourceLag(end.revision - start.revision, whole.bytes - rest.bytes, None)

    def backlog(self, position: LogPosition | None) -> SourceLag:
        """Return what waits behind a position; None = behind the begin of the log."""
        if isinstance(position, SnapshotOffset):
            rows, tail = self._rows_behind(position), self.backlog(self._at(position).tail)
            return SourceLag(rows.records + tail.records, rows.bytes + tail.bytes, tail.ms)
        view = self._fresh()
        return log_backlog(view, view.begin if position is None else view.present(position), self._look.head_at)

    def partitions(self, start: LogPosition, end: LogPosition) -> list[InputPartition]:
        """Return what the tasks read of [start, end); a batch reads rows and tail at once.

        Raises:
            StartGoneError: Some of it is gone, and that is an error.

        """
        if isinstance(start, LogOffset):
            assert isinstance(end, LogOffset), "a log has no snapshot behind it"
            return self._log_partitions(start, end)
        phase = self._at(start)
        rows = self._row_partitions(phase, start, end)
        return rows + self._log_partitions(phase.tail, end) if isinstance(end, LogOffset) else rows

    # ---- the snapshot

    def _snapshots(self) -> LakePort:
        if self._options.lake is None:
            raise SparkOffsetError(
                f"log {self._log}: the checkpoint stands in a snapshot: option lake must say where it lies"
            )
        if self._lake is None:
            self._lake = self._open_lake(self._log)
        return self._lake

    def _at(self, position: SnapshotOffset) -> SnapshotPhase:
        """Return the snapshot in which the query stands.

        Raises:
            StartGoneError: It is not there any more.

        """
        known = self._phase
        if known is None or (known.version, known.manifest.revision) != (position.version, position.revision):
            self._fresh()
            known = present_phase(self._snapshots(), self._log, self._look.log_id, position)
            self._phase = known
        return known

    def _rows_behind(self, position: SnapshotOffset) -> SourceLag:
        phase = self._at(position)
        parts = list(phase.between(position.row, phase.manifest.row_count))
        return SourceLag(sum(part.row_count for part in parts), sum(part.byte_count for part in parts), None)

    def _row_partitions(self, phase: SnapshotPhase, start: SnapshotOffset, end: LogPosition) -> list[InputPartition]:
        manifest = phase.manifest
        last = end.row if isinstance(end, SnapshotOffset) else manifest.row_count
        return [
            SnapshotPartition(
                self._snapshots().place,
                task.file,
                task.groups,
                self._log,
                manifest.revision,
                manifest.logged_ms,
                encode_description(manifest.machine),
                row_plan(self._options),
                self._options.entry_bounds,
                self._options.storage_options,
            )
            for task in phase.tasks(start.row, last, self._options.partition_count_min)
        ]

    # ---- the log's entries

    def _log_partitions(self, start: LogOffset, end: LogOffset) -> list[InputPartition]:
        if start == end:
            return []
        view = self._fresh()
        start, end = view.present(start), view.present(end)
        first = self._standing(view, start)
        if first != start and view.place(end) <= view.place(first):
            return []
        bounds = self._options.entry_bounds
        if bounds is not None:
            counts_records = self._options.rows != Rows.RAW
            first, end = narrow_log(view, first, end, bounds, self._look.head_at, counts_records=counts_records)
        ranges = split_log(view, first, end, self._options.partition_count_min)
        if bounds is not None:
            ranges = narrow_ranges(ranges, bounds, self._look.epochs(view))
        ledger_ids = sorted({part.ledger_id for part in ranges})
        behind = {ledger_id: self._behind(view, ledger_id) for ledger_id in ledger_ids}
        ledger_ids = sorted({*ledger_ids, *(span.ledger_id for spans in behind.values() for span in spans or ())})
        given = task_metadata({ledger_id: self._access.metadata(ledger_id) for ledger_id in ledger_ids}, self._access)
        described = {ledger_id: self._description(view, ledger_id) for ledger_id in behind}
        back = {
            ledger_id: None
            if spans is None
            else tuple(
                BackLedger(
                    span.ledger_id,
                    span.last_entry_id,
                    given.metadata[span.ledger_id],
                    self._look.written_as(span.ledger_id),
                    self._look.seals(span.ledger_id),
                )
                for span in spans
            )
            for ledger_id, spans in behind.items()
        }
        return [
            LedgerPartition(
                part.ledger_id,
                part.first_entry_id,
                part.last_entry_id,
                part.first_revision,
                part.end_revision,
                given.metadata[part.ledger_id],
                given.addresses,
                str(self._options.rows),
                self._log,
                self._look.written_as(part.ledger_id),
                described[part.ledger_id],
                row_plan(self._options),
                bounds,
                self._look.seals(part.ledger_id),
                self._place,
                back[part.ledger_id],
            )
            for part in ranges
        ]

    def _behind(self, view: LogView, ledger_id: int) -> list[LogSpan] | None:
        """Return the ledgers that have rows of batches which may end in this one; None = ends do not matter.

        Raises:
            OptionError: Only logs that are appended to have what tells of ends.

        """
        if not self._options.finished_batches:
            return None
        described = self._look.description_at(view, ledger_id)
        if described is None or described.tables != PLAIN_LOG.tables:
            raise OptionError(
                f"option finishedBatches: {self._log} is the log of a service: only a log to which as=log appends, "
                "plain or partitioned, says of each of its rows whether its batch has ended"
            )
        return ledgers_behind(view.spans, view.index_of(ledger_id), self._look.head_of)

    def _description(self, view: LogView, ledger_id: int) -> bytes | None:
        if self._options.rows == Rows.RAW:
            return None
        description = self._look.description_at(view, ledger_id)
        return None if description is None else encode_description(description)

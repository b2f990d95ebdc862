"""One log of a query that may begin in a snapshot: first its rows, then the log from the next entry on. Driver only."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.sql.datasource import InputPartition

from connectors.errors import SparkOffsetError
from connectors.spark.bounds import Bound, BoundKind
from connectors.spark.followed_log import FollowedLog
from connectors.spark.handover import SourceAccess
from connectors.spark.loss import Losses
from connectors.spark.offsets import LogOffset, LogPosition, SnapshotOffset
from connectors.spark.options import SourceOptions
from connectors.spark.plan import Limits
from connectors.spark.progress import Backlog
from connectors.spark.row_plan import row_plan
from connectors.spark.snapshot_phase import LakePort, SnapshotPhase, find_phase, no_snapshot, present_phase
from connectors.spark.snapshot_rows import SnapshotPartition
from rsm_spark.core.machine import encode_description

__all__ = ["OpenLake", "PhasedLog"]

_LOGGER = logging.getLogger(__name__)

OpenLake = Callable[[str], LakePort]
"""Log name -> its snapshots."""


class PhasedLog:
    """One log of a query: a `FollowedLog`, and before it, if the query says so, a snapshot.

    Args:
        log: Name.
        options: Of the query.
        access: Where to read.
        losses: Told of what is passed over.
        open_lake: Called only if a snapshot is asked for.

    """

    def __init__(
        self, log: str, options: SourceOptions, access: SourceAccess, losses: Losses, open_lake: OpenLake
    ) -> None:
        self._log = log
        self._options = options
        self._followed = FollowedLog(log, options, access, losses)
        self._open_lake = open_lake
        self._lake: LakePort | None = None
        self._phase: SnapshotPhase | None = None

    @property
    def seen_end(self) -> int | None:
        """Revision after the last record that was seen; None before the first look."""
        return self._followed.seen_end

    def begin(self) -> LogOffset:
        """Return the first position that is still there; where a log begins that has just appeared."""
        return self._followed.look().begin

    def end(self) -> LogOffset:
        """Return the position after everything that may be read now."""
        return self._followed.fresh().end

    def start(self, bound: Bound, ending: Bound) -> LogPosition:
        """Return where a new query starts.

        Args:
            bound: As asked for.
            ending: Where the query ends: a snapshot behind it is of no use.

        Raises:
            StartGoneError, SparkOffsetError: See `FollowedLog.start`.
            SnapshotError: The begin of the log has been trimmed, and no snapshot that can be read covers it.

        """
        if bound.kind != BoundKind.SNAPSHOT:
            return self._followed.start(bound)
        view = self._followed.look()
        end = self._followed.stop(ending)
        phase, reasons = find_phase(self._snapshots(), view, self._followed.log_id, end.revision, self._followed)
        for reason in reasons:
            _LOGGER.warning("log %s: a snapshot is not begun with: %s", self._log, reason)
        if phase is not None:
            self._phase = phase
            return phase.begin
        if view.first_revision > 1:
            raise no_snapshot(self._snapshots(), view, reasons)
        # Before its first record the state is empty: the whole log says what a snapshot and its tail would.
        _LOGGER.info("log %s: no snapshot to begin with; it is read from its first record on", self._log)
        return view.begin

    def stop(self, bound: Bound) -> LogOffset:
        """Return where a batch ends; see `FollowedLog.stop`."""
        return self._followed.stop(bound)

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
            self._followed.fresh()
            known = present_phase(self._snapshots(), self._log, self._followed.log_id, position)
            self._phase = known
        return known

    def ahead(self, position: LogPosition, target: LogPosition | None) -> tuple[LogPosition, LogPosition]:
        """Return where the query stands and how far it could go; from a row of a snapshot to where its tail begins.

        Raises:
            StartGoneError: What comes next is gone, and that is an error.

        """
        if isinstance(position, LogOffset):
            return self._followed.ahead(position, target if isinstance(target, LogOffset) else None)
        self._followed.look()
        # What Trigger.AvailableNow aims at lies in the tail, if it was there when the query began.
        return position, position if isinstance(target, SnapshotOffset) else self._at(position).tail

    def cut(self, start: LogPosition, end: LogPosition, limits: Limits) -> LogPosition:
        """Return the end of a micro-batch from `start` on, at most `end`."""
        if isinstance(start, SnapshotOffset):
            return end if start == end else self._at(start).cut(start.row, limits)
        assert isinstance(end, LogOffset), "a log has no snapshot behind it"
        return self._followed.cut(start, end, limits)

    def waiting(self, start: LogPosition, end: LogPosition) -> Backlog:
        """Return what lies between two positions of one look."""
        if isinstance(start, SnapshotOffset):
            return self._rows_behind(start)
        assert isinstance(end, LogOffset), "a log has no snapshot behind it"
        return self._followed.waiting(start, end)

    def _rows_behind(self, position: SnapshotOffset) -> Backlog:
        phase = self._at(position)
        parts = list(phase.between(position.row, phase.manifest.row_count))
        return Backlog(sum(part.row_count for part in parts), sum(part.byte_count for part in parts), None)

    def backlog(self, position: LogPosition | None) -> Backlog:
        """Return what waits behind a position; None = behind the begin of the log."""
        if position is None:
            return self._followed.backlog(self._followed.fresh().begin)
        if isinstance(position, LogOffset):
            return self._followed.backlog(position)
        rows, tail = self._rows_behind(position), self._followed.backlog(self._at(position).tail)
        return Backlog(rows.records + tail.records, rows.bytes + tail.bytes, tail.ms)

    def partitions(self, start: LogPosition, end: LogPosition) -> list[InputPartition]:
        """Return what the tasks read of [start, end); a batch reads rows and tail at once.

        Raises:
            StartGoneError: Some of it is gone, and that is an error.

        """
        if isinstance(start, LogOffset):
            assert isinstance(end, LogOffset), "a log has no snapshot behind it"
            return self._followed.partitions(start, end)
        phase = self._at(start)
        last = end.row if isinstance(end, SnapshotOffset) else phase.manifest.row_count
        manifest = phase.manifest
        rows: list[InputPartition] = [
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
        if isinstance(end, LogOffset) and end != phase.tail:
            rows += self._followed.partitions(phase.tail, end)
        return rows

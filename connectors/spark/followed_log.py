"""One log as a query follows it: where it starts, how far it can go, what the tasks read. Driver only.

Every position is first compared with the log as it is (`connectors.spark.loss`): what is gone ends the query or is
passed over, as `failOnDataLoss` says, before anything is planned on it.
"""

from __future__ import annotations

import time

from pyspark.sql.datasource import InputPartition

from connectors.errors import SparkOffsetError, StartGoneError
from connectors.spark.bounds import Bound, BoundKind
from connectors.spark.handover import SourceAccess, handover
from connectors.spark.locate import locate_bound, round_up
from connectors.spark.look import LogLook
from connectors.spark.loss import Loss, Losses, gap_before, trimmed_text
from connectors.spark.narrow import narrow_log, narrow_ranges
from connectors.spark.offsets import LogOffset
from connectors.spark.options import Rows, SourceOptions, TimestampStrategy
from connectors.spark.plan import Limits, LogView, cut_log, next_offset
from connectors.spark.progress import Backlog, log_backlog
from connectors.spark.row_plan import row_plan
from connectors.spark.split import split_log
from connectors.spark.tasks import LedgerPartition
from rsm_spark.core.machine import encode_description
from rsm_spark.errors import CorruptLogError

__all__ = ["FollowedLog"]

_LOOK_FRESH_S = 0.05


class FollowedLog:
    """One log of a query.

    Args:
        log: Name.
        options: Of the query.
        access: Where to read.
        losses: Told of what is passed over.

    """

    def __init__(self, log: str, options: SourceOptions, access: SourceAccess, losses: Losses) -> None:
        self._log = log
        self._options = options
        self._access = access
        self._losses = losses
        self._look = LogLook(log, access)
        self._view: LogView | None = None
        self._seen_s = float("-inf")
        # Once the log was made anew: the last ledger of the old one that was seen, and the revision after its end.
        self._old: tuple[int, int] | None = None

    @property
    def log_id(self) -> bytes:
        """Id of the log, known after the first look."""
        return self._look.log_id

    def payload_at(self, ledger_id: int, entry_id: int) -> bytes:
        """Return an entry's payload."""
        return self._look.payload_at(ledger_id, entry_id)

    @property
    def seen_end(self) -> int | None:
        """Revision after the last record that was seen; None before the first look."""
        return None if self._view is None else self._view.end.revision

    def look(self) -> LogView:
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

    def fresh(self) -> LogView:
        """Look, unless that was done just now: Spark asks several things in a row for one micro-batch."""
        if self._view is None or time.monotonic() - self._seen_s > _LOOK_FRESH_S:
            return self.look()
        return self._view

    def start(self, bound: Bound) -> LogOffset:
        """Return where a new query starts.

        Raises:
            StartGoneError: It has been trimmed, and that is an error.
            SparkOffsetError: The log does not reach so far, or nothing was logged at or after a time.

        """
        view = self.look()
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
        view = self.fresh()
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
        is_old = can_be_anew and self._old is not None and position.ledger_id <= self._old[0]
        loss = gap_before(view, position, self._old[1] if self._old is not None and is_old else None)
        if loss is None or (loss.last is None and not can_be_anew):
            return position
        if self._options.fail_on_data_loss:
            raise StartGoneError(trimmed_text(view, loss))
        if loss.count != 0:
            self._losses.add(loss)
        return view.begin

    def ahead(self, position: LogOffset, target: LogOffset | None) -> tuple[LogOffset, LogOffset]:
        """Look, and return where the query stands and how far it could go; the same twice if there is nothing new.

        Args:
            position: Where it stood.
            target: Not beyond it; None = up to what may be read now.

        Raises:
            StartGoneError: See `_standing`.

        """
        view = self.look()
        start = self._standing(view, position)
        end = next_offset(view, start, counts_records=self._options.rows != Rows.RAW)
        if target is not None and view.place(target) < view.place(end):
            end = target if view.place(target) > view.place(start) else start
        return start, end

    def cut(self, start: LogOffset, end: LogOffset, limits: Limits) -> LogOffset:
        """Return the end of a micro-batch from `start` on, at most `end`; see `plan.cut_log`."""
        return end if end == start else cut_log(self.fresh(), start, end, limits, self._look.head_at)

    def waiting(self, start: LogOffset, end: LogOffset) -> Backlog:
        """Return what lies between two positions of one look."""
        whole, rest = self.backlog(start), self.backlog(end)
        return Backlog(end.revision - start.revision, whole.bytes - rest.bytes, None)

    def backlog(self, position: LogOffset) -> Backlog:
        """Return what waits behind a position."""
        return log_backlog(self.fresh(), position, self._look.head_at)

    def partitions(self, start: LogOffset, end: LogOffset) -> list[InputPartition]:
        """Return what the tasks read of [start, end).

        Raises:
            StartGoneError: Entries of the range are gone, and that is an error.

        """
        if start == end:
            return []
        view = self.fresh()
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
        given = handover({ledger_id: self._access.metadata(ledger_id) for ledger_id in ledger_ids}, self._access)
        described = {ledger_id: self._description(view, ledger_id) for ledger_id in ledger_ids}
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
                self._look.log_id,
                described[part.ledger_id],
                row_plan(self._options),
                bounds,
            )
            for part in ranges
        ]

    def _description(self, view: LogView, ledger_id: int) -> bytes | None:
        if self._options.rows == Rows.RAW:
            return None
        description = self._look.description_at(view, ledger_id)
        return None if description is None else encode_description(description)

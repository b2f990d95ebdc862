"""A broker's history, kept by a Spark stream: the work behind `jobs/broker_history.py`.

1. The tables are the truth: `tasks` says where to go on.
2. A micro-batch that is run again changes nothing (`HistoryWriter.apply`).
3. Before it goes on, the job checks that the log still has the tables' history: same prefix hash at their position.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from connectors.delta.fold import RecordRange
from connectors.delta.stream import FreshStart, RecordStream
from connectors.delta.upkeep import TableUpkeep
from connectors.history.apply import AppliedFacts, HistoryWriter
from connectors.history.facts import FACTS_DDL, RECORD_COLUMNS, fact_reader
from connectors.history.layout import layout_of
from connectors.history.settings import HistorySettings
from connectors.history.start import HistoryStart, open_history

_TOLD = ("tasks", "attempts", "waits", "workers", "policies")


class HistoryProgress(msgspec.Struct, frozen=True):
    """A micro-batch that changed the tables.

    Attributes:
        revision: Last record that is in them.
        records: Records read.
        rows: Rows written, by table.
        seconds: From reading to the last commit.

    """

    revision: int
    records: int
    rows: dict[str, int]
    seconds: float


class HistorySummary(msgspec.Struct, frozen=True):
    """Summary of a run: sums of its micro-batches.

    Attributes:
        revision: Last record that is in the tables.
        batches: Micro-batches that changed them.
        records: Records of these.
        rows: Rows written, by table; one that was written twice counts twice.
        restarts: Times that the stream was started again.
        files_merged: Small files that became fewer large ones.
        files_removed: Old files that were deleted.
        seconds: In all.

    """

    revision: int
    batches: int
    records: int
    rows: dict[str, int]
    restarts: int
    files_merged: int
    files_removed: int
    seconds: float


class HistoryRecorder:
    """Keeps the history of one broker.

    Args:
        spark: A classic session.
        settings: Of this job.
        report: Told of every micro-batch that changed the tables.
        should_stop: Asked now and then.

    """

    def __init__(
        self,
        spark: SparkSession,
        settings: HistorySettings,
        *,
        report: Callable[[HistoryProgress], None] = lambda _progress: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._report = report
        self._should_stop = should_stop
        self._stream = RecordStream(spark, settings, self, name="broker history", should_stop=should_stop)
        self._upkeep = TableUpkeep(
            optimize_every=settings.optimize_every, vacuum_retain_hours=settings.vacuum_retain_hours
        )
        self._opened: tuple[HistoryStart, HistoryWriter] | None = None
        # Sums: a stream may run for years.
        self._sums: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()

    def run(self) -> HistorySummary:
        """Keep the history until there is nothing left (`available_now`) or `should_stop` says so.

        Raises:
            ConnectorError: The tables cannot be kept; nothing of the failing micro-batch is told of by `tasks`.
            StreamingQueryException: The source failed, again and again.

        """
        began = time.monotonic()
        self._stream.run()
        start, _ = self._present
        return HistorySummary(
            revision=start.tables.open("tasks").revision,
            rows={name: self._rows[name] for name in _TOLD},
            **{name: self._sums[name] for name in ("batches", "records", "files_merged", "files_removed")},
            restarts=self._stream.restarts,
            seconds=round(time.monotonic() - began, 3),
        )

    @property
    def _present(self) -> tuple[HistoryStart, HistoryWriter]:
        assert self._opened is not None, "the stream opens the tables first"
        return self._opened

    @property
    def columns(self) -> tuple[str, ...]:
        """See `StreamedTables`."""
        return RECORD_COLUMNS

    def open(self) -> Mapping[str, int]:
        """See `StreamedTables`."""
        start = open_history(self._settings, self._should_stop)
        self._opened = start, HistoryWriter(start.tables)
        return {self._settings.log: start.revision}

    def read(self, frame: DataFrame) -> pa.Table:
        """See `StreamedTables`: payloads stay in the tasks, the driver gets what the history is made of."""
        start, _ = self._present
        return frame.mapInArrow(fact_reader(start.layout), FACTS_DDL).toArrow()

    def apply(self, records: pa.Table, began_s: float) -> bool:
        """See `StreamedTables`."""
        start, writer = self._present
        span = RecordRange(records)
        changed = self._layout_change(span, start)
        part = span if changed is None else span.until(changed)
        is_told = part is not None and self._told(writer.apply(part), began_s)
        if is_told:
            self._look_after(start)
        if changed is not None:
            raise FreshStart(f"the broker describes its records otherwise from record {changed} on")
        return is_told

    def _told(self, applied: AppliedFacts, began_s: float) -> bool:
        if not applied.records or not applied.is_committed:
            return False
        rows = {name: applied.rows[name] for name in _TOLD}
        self._sums.update(batches=1, records=applied.records)
        self._rows.update(rows)
        self._report(HistoryProgress(applied.revision, applied.records, rows, round(time.monotonic() - began_s, 3)))
        return True

    def flush(self, *, only_due: bool = False) -> None:
        """See `StreamedTables`."""
        self._present[1].finish(only_due=only_due)

    def _layout_change(self, span: RecordRange, start: HistoryStart) -> int | None:
        """Return the first record from which on the present layout does not hold; None if it does for all."""
        for revision, description in span.descriptions:
            layout = layout_of(description, payloads=self._settings.payloads, log=self._settings.log)
            if layout != start.layout:
                return revision
        return None

    def _look_after(self, start: HistoryStart) -> None:
        for place in start.tables.places.values():
            done = self._upkeep.after(place)
            if done is not None:
                self._sums["files_merged"] += done.files_merged
                self._sums["files_removed"] += done.files_removed

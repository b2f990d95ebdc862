"""A broker's history, kept by a Spark stream: the work behind `jobs/broker_history.py`.

1. The tables are the truth: `tasks` says where to go on. Spark's checkpoint lasts for one run, and is thrown away.
2. A micro-batch that is run again changes nothing (`HistoryWriter.apply`).
3. Before it goes on, the job checks that the log still has the tables' history: same prefix hash at their position.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable

import msgspec
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from connectors.errors import ConnectorError, SinkGapError
from connectors.history.apply import HistoryWriter
from connectors.history.facts import FACTS_DDL, RECORD_COLUMNS, descriptions_in, fact_reader, facts_before
from connectors.history.layout import layout_of
from connectors.history.settings import HistorySettings
from connectors.history.start import HistoryStart, open_history

__all__ = ["HistoryProgress", "HistoryRecorder", "HistorySummary"]

_LOGGER = logging.getLogger(__name__)
_RESTARTS_MAX = 5
_POLL_S = 1
# Errors of the source that no restart heals; Spark hands them over as text.
_PERMANENT = (
    "StartGoneError",
    "SparkOffsetError",
    "OptionError",
    "CorruptLogError",
    "ForkedLogError",
    "NoSuchLogError",
    "WrongPasswordError",
)


class HistoryProgress(msgspec.Struct, frozen=True):
    """A micro-batch that changed the tables.

    Attributes:
        revision: Last record that is in them.
        records: Records read.
        tasks: Rows written, by table.
        attempts: The same.
        waits: The same.
        workers: The same.
        policies: The same.
        seconds: From reading to the last commit.

    """

    revision: int
    records: int
    tasks: int
    attempts: int
    waits: int
    workers: int
    policies: int
    seconds: float


class HistorySummary(msgspec.Struct, frozen=True):
    """What a run did: sums of its micro-batches.

    Attributes:
        revision: Last record that is in the tables.
        batches: Micro-batches that changed them.
        records: Records of these.
        tasks: Rows written, by table; one that was written twice counts twice.
        attempts: The same.
        waits: The same.
        workers: The same.
        policies: The same.
        restarts: Times that the stream was started again.
        files_merged: Small files that became fewer large ones.
        files_removed: Old files that were deleted.
        seconds: In all.

    """

    revision: int
    batches: int
    records: int
    tasks: int
    attempts: int
    waits: int
    workers: int
    policies: int
    restarts: int
    files_merged: int
    files_removed: int
    seconds: float


class _LayoutChanged(Exception):  # noqa: N818 - nothing is wrong: the stream goes on with the new description
    """The broker describes its records otherwise from the next one on."""


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
        self._spark = spark
        self._settings = settings
        self._report = report
        self._should_stop = should_stop
        # Sums: a stream may run for years.
        self._sums: Counter[str] = Counter()
        self._failure: Exception | None = None
        # Spark's thread applies; one that was stopped may still be at it.
        self._lock = threading.Lock()
        self._restarts = self._files_merged = self._files_removed = 0

    def run(self) -> HistorySummary:
        """Keep the history until there is nothing left (`available_now`) or `should_stop` says so.

        Raises:
            ConnectorError: The tables cannot be kept; nothing of the failing micro-batch is told of by `tasks`.
            StreamingQueryException: The source failed, again and again.

        """
        began = time.monotonic()
        failures = 0
        while True:
            done = self._sums["batches"]
            start = open_history(self._settings, self._should_stop)
            writer = HistoryWriter(start.tables)
            try:
                self._stream(start, writer)
                with self._lock:
                    writer.finish()
                break
            except StreamingQueryException as error:
                failures = 1 if self._sums["batches"] > done else failures + 1
                self._judge(error, failures)
                time.sleep(min(0.2 * 2**failures, 10))
        return self._summary(start.tables.open("tasks").revision, time.monotonic() - began)

    def _summary(self, revision: int, seconds: float) -> HistorySummary:
        counted = ("batches", "records", "tasks", "attempts", "waits", "workers", "policies")
        return HistorySummary(
            revision=revision,
            **{name: self._sums[name] for name in counted},
            restarts=self._restarts,
            files_merged=self._files_merged,
            files_removed=self._files_removed,
            seconds=round(seconds, 3),
        )

    def _stream(self, start: HistoryStart, writer: HistoryWriter) -> None:
        """Run the stream once, with a checkpoint of its own."""
        checkpoint = tempfile.mkdtemp(prefix="rsm-broker-history-")
        query = self._query(start, writer, checkpoint)
        try:
            while not query.awaitTermination(_POLL_S):
                if self._should_stop():
                    return
        finally:
            query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _query(self, start: HistoryStart, writer: HistoryWriter, checkpoint: str) -> StreamingQuery:
        settings = self._settings
        limits = {"maxOffsetsPerTrigger": str(settings.records_per_batch_max)}
        if settings.bytes_per_batch_max:
            limits["maxBytesPerTrigger"] = settings.bytes_per_batch_max
        begin = {settings.log: {"revision": start.revision}}
        frame = (
            self._spark.readStream.format("ledger")
            .options(**settings.source)
            .options(log=settings.log, rows="records", columns=",".join(RECORD_COLUMNS))
            .options(startingOffsets=msgspec.json.encode(begin).decode(), **limits)
            .load()
            .select(*RECORD_COLUMNS)
        )
        self._failure = None
        query = frame.writeStream.foreachBatch(self._applier(start, writer)).option(
            "checkpointLocation", f"file://{checkpoint}"
        )
        query = query.queryName(f"broker history {settings.log} {checkpoint[-8:]}")
        if settings.available_now:
            return query.trigger(availableNow=True).start()
        return query.trigger(processingTime=settings.trigger).start()

    def _applier(self, start: HistoryStart, writer: HistoryWriter) -> Callable[[DataFrame, int], None]:
        read = fact_reader(start.layout)

        def apply(frame: DataFrame, _batch_id: int) -> None:
            began = time.monotonic()
            try:
                # Payloads stay in the tasks: the driver gets what the history is made of.
                self._apply(start, writer, frame.mapInArrow(read, FACTS_DDL).toArrow(), began)
            except Exception as error:
                # Spark turns it into text; `_judge` wants to know what it was.
                self._failure = error
                raise

        return apply

    def _apply(self, start: HistoryStart, writer: HistoryWriter, facts: pa.Table, began: float) -> None:
        changed = self._layout_change(facts, start)
        with self._lock:
            applied = writer.apply(facts if changed is None else facts_before(facts, changed))
        if applied.records and applied.is_committed:
            self._tell(
                HistoryProgress(
                    applied.revision, applied.records, applied.tasks, applied.attempts, applied.waits,
                    applied.workers, applied.policies, round(time.monotonic() - began, 3),
                )
            )  # fmt: skip
            self._look_after(start)
        if changed is not None:
            raise _LayoutChanged(f"the broker describes its records otherwise from record {changed} on")

    def _layout_change(self, facts: pa.Table, start: HistoryStart) -> int | None:
        """Return the first record from which on the present layout does not hold; None if it does for all."""
        for revision, description in descriptions_in(facts):
            layout = layout_of(description, payloads=self._settings.payloads, log=self._settings.log)
            if layout != start.layout:
                return revision
        return None

    def _tell(self, progress: HistoryProgress) -> None:
        self._sums["batches"] += 1
        for name in ("records", "tasks", "attempts", "waits", "workers", "policies"):
            self._sums[name] += getattr(progress, name)
        self._report(progress)

    def _look_after(self, start: HistoryStart) -> None:
        every, hours = self._settings.optimize_every, self._settings.vacuum_retain_hours
        if every and self._sums["batches"] % every == 0:
            self._files_merged += start.tables.compact()
            if hours is not None:
                self._files_removed += start.tables.vacuum(hours)

    def _judge(self, error: StreamingQueryException, failures: int) -> None:
        """Raise what cannot be healed by starting again from the tables."""
        # A gap: another writer has moved the tables, or made them anew.
        is_gap = isinstance(self._failure, SinkGapError) and failures == 1
        if isinstance(self._failure, ConnectorError) and not is_gap:
            raise self._failure from error
        text = str(error)
        if failures > _RESTARTS_MAX or any(name in text for name in _PERMANENT):
            raise error
        self._restarts += 1
        if isinstance(self._failure, _LayoutChanged):
            _LOGGER.info("%s: the stream starts again there", self._failure)
        else:
            _LOGGER.warning("the stream failed and starts again: %s", text.splitlines()[0][:500])

"""The Spark stream of a log's records from which Delta tables are kept, whatever the tables are.

1. The tables are the truth: they say where to go on. Spark's checkpoint is for one start of the stream and lies in a
   folder of its own: no old one can be wrong, and two runs do not meet in it.
2. A micro-batch that is run again must change nothing.
3. If the log is held for the tables, the hold follows what they have written down, not what Spark has committed.
4. What failed and may heal is begun again from the tables; what no restart heals is raised as it was.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from connectors.delta.settings import StreamSettings
from connectors.error_text import spoken_error, store_complaint
from connectors.errors import ConnectorError, SinkGapError
from connectors.source.access import DriverAccess
from connectors.source.holding import QueryHold
from connectors.source.offsets import LogOffset, LogPosition, decode_log_offsets
from connectors.source.options import parse_options
from connectors.source.preflight import check_source
from connectors.source.traced_batches import TracedBatch, query_id_of, trace_of, traced_batch, traced_step
from rsm_spark.object_stores.complaints import ObjectStoreError
from rsm_spark.snapshots.delta_sync import local_folder

_LOGGER = logging.getLogger(__name__)
_RESTARTS_MAX = 5
_POLL_S = 1
_HOLD_MOVE_S = 15.0
_CHECKPOINT_NAME = re.compile("[0-9a-f]{32}")
_CHECKPOINT_KEPT_S = 24 * 3600
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


class FreshStart(Exception):  # noqa: N818 - nothing is wrong
    """Raised by tables that must be opened anew before the next record; says why."""


class StreamedTables(Protocol):
    """Tables that a stream of records goes into."""

    def open(self) -> Mapping[str, int]:
        """Open the tables, made if need be; called before each start.

        Returns:
            The first record that they lack, by log: of a partitioned one for each partition.

        """
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the records that the tables need, once they are open."""
        ...

    def read(self, frame: DataFrame) -> pa.Table:
        """Return what the tables need of a micro-batch."""
        ...

    def apply(self, records: pa.Table, began_s: float) -> bool:
        """Apply what was read; return whether there was anything new.

        Args:
            records: As `read` returned them; some may have been applied before.
            began_s: Monotonic time at which reading began.

        """
        ...

    def flush(self, *, only_due: bool = False) -> None:
        """Write down how far the tables are, if they do not say so yet."""
        ...


class RecordStream:
    """Runs the stream until it is asked to stop, or has applied all there is.

    Args:
        spark: A classic session.
        settings: Which log, how fast.
        tables: Where the records go.
        name: Of the work, for Spark's pages.
        should_stop: Asked about once a second.

    Attributes:
        restarts: How often the stream failed and started again.

    """

    def __init__(
        self,
        spark: SparkSession,
        settings: StreamSettings,
        tables: StreamedTables,
        *,
        name: str,
        should_stop: Callable[[], bool],
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._tables = tables
        self._name = name
        self._should_stop = should_stop
        self._failure: Exception | None = None
        self._batches = 0
        self._hold = _TablesHold(settings) if settings.hold else None
        self._trace = trace_of(parse_options(_source_options(settings), is_stream=True))
        # Spark's thread applies, ours writes down positions that are due; one that was stopped may still be at it.
        self._lock = threading.Lock()
        self.restarts = 0

    def run(self) -> None:
        """Run the stream, again where it failed and may heal.

        Raises:
            ConnectorError: The tables cannot follow the log.
            StreamingQueryException: The source failed, again and again.

        """
        with contextlib.ExitStack() as stack:
            if self._hold is not None:
                stack.callback(self._hold.close)
            self._run()

    def _run(self) -> None:
        failures = 0
        while True:
            done = self._batches
            first = self._tables.open()
            if self._hold is not None:
                self._hold.begin(first)
            try:
                self._stream(first)
                break
            except StreamingQueryException as error:
                failures = 1 if self._batches > done else failures + 1
                with contextlib.suppress(Exception), self._lock:  # what failed first is what counts
                    self._tables.flush()
                self._judge(error, failures)
                self.restarts += 1
                time.sleep(min(0.2 * 2**failures, 10))
        with self._lock:  # Spark may have left its thread in the middle of a commit
            self._tables.flush()
        if self._hold is not None:
            self._hold.write()

    def _stream(self, first: Mapping[str, int]) -> None:
        """Run the stream once, with a checkpoint of its own."""
        checkpoint = self._checkpoint()
        query = self._start(first, checkpoint)
        try:
            while not query.awaitTermination(_POLL_S):
                if self._should_stop():
                    return
                with self._lock:
                    self._tables.flush(only_due=True)
                self._move(query)
        finally:
            if self._hold is not None:
                self._hold.reached(query)
            query.stop()
            self._remove(checkpoint)

    def _move(self, query: StreamingQuery) -> None:
        """Let go of what the tables have written down, now and then."""
        if self._hold is not None and self._hold.reached(query):
            with self._lock:
                self._tables.flush()
            self._hold.write()

    def _checkpoint(self) -> str:
        folder = self._settings.checkpoint.rstrip("/")
        if not folder:  # Local, wherever Spark's own files are.
            return f"file://{tempfile.mkdtemp(prefix='rsm-stream-')}"
        _remove_old_checkpoints(folder)
        return f"{folder}/{os.urandom(16).hex()}"

    def _start(self, first: Mapping[str, int], checkpoint: str) -> StreamingQuery:
        settings, columns = self._settings, self._tables.columns
        begin = {log: {"revision": revision} for log, revision in first.items()}
        frame = (
            self._spark.readStream.format("ledger")
            .options(**_source_options(settings), rows="records", columns=",".join(columns))
            .options(startingOffsets=msgspec.json.encode(begin).decode())
            .load()
            .select(*columns)
        )
        self._failure = None
        writer = frame.writeStream.foreachBatch(self._apply).option("checkpointLocation", checkpoint)
        writer = writer.queryName(f"{self._name} {settings.log} {checkpoint[-8:]}")
        if settings.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=settings.trigger).start()

    def _apply(self, frame: DataFrame, batch_id: int) -> None:
        name, log = TracedBatch(query_id_of(frame), batch_id), self._settings.log
        with traced_batch(self._trace, name, time.time_ns(), log=log):
            self._apply_batch(frame, name)

    def _apply_batch(self, frame: DataFrame, name: TracedBatch) -> None:
        began_s = time.monotonic()
        try:
            records = self._tables.read(frame)
            if records.num_rows:
                with self._lock, traced_step(self._trace, name, "apply", count=records.num_rows):
                    self._batches += self._tables.apply(records, began_s)
        except Exception as error:
            # Spark turns it into text, and prints that; `_judge` wants to know what it was.
            self._failure = error
            self._batches += isinstance(error, FreshStart)  # That is no failure, however often.
            complaint = store_complaint(error)
            if complaint is not None:
                raise ObjectStoreError(complaint) from None
            raise

    def _judge(self, error: StreamingQueryException, failures: int) -> None:
        """Raise what cannot be healed by starting again from the tables."""
        # A gap: another writer has moved a table, or made it anew.
        is_gap = isinstance(self._failure, SinkGapError) and failures == 1
        if isinstance(self._failure, ConnectorError) and not is_gap:
            raise self._failure from error
        text = str(error)
        if failures > _RESTARTS_MAX or any(name in text for name in _PERMANENT):
            raise error
        if isinstance(self._failure, FreshStart):
            _LOGGER.info("%s: the stream starts again there", self._failure)
        else:
            _LOGGER.warning("the stream failed and starts again: %s", spoken_error(error)[:500])

    def _remove(self, checkpoint: str) -> None:
        """Remove a checkpoint that nobody needs any more; what is left over does no harm."""
        path = local_folder(checkpoint)
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
            return
        try:
            jvm = self._spark.sparkContext._jvm
            assert jvm is not None, "a classic session has a JVM"
            place = jvm.org.apache.hadoop.fs.Path(checkpoint)
            place.getFileSystem(self._spark.sparkContext._jsc.hadoopConfiguration()).delete(place, True)  # noqa: FBT003 - a Java signature
        except Exception as error:  # noqa: BLE001 - whatever the file system raises
            _LOGGER.warning("the checkpoint at %s was not removed: %s", checkpoint, error)


def check_stream(settings: StreamSettings) -> None:
    """Refuse what the stream would refuse, before Spark is started; see `preflight.check_source`."""
    check_source({**_source_options(settings), **settings.hold}, is_stream=True)


def _source_options(settings: StreamSettings) -> dict[str, str]:
    limits = {"maxOffsetsPerTrigger": str(settings.records_per_batch_max)}
    if settings.bytes_per_batch_max:
        limits["maxBytesPerTrigger"] = settings.bytes_per_batch_max
    return {**settings.source, **limits, "log": settings.log}


class _TablesHold:
    """Hold of tables on their log.

    Args:
        settings: Of the stream.

    """

    def __init__(self, settings: StreamSettings) -> None:
        options = parse_options({**settings.source, **settings.hold, "log": settings.log}, is_stream=True)
        self._access = DriverAccess(options)
        self._hold = QueryHold(
            options.consumer, self._access, hold_ms=options.hold_ms, hold_bytes=options.hold_bytes, move_s=0.0
        )
        self._reached: dict[str, LogPosition] = {}
        self._written_s = time.monotonic()

    def begin(self, first: Mapping[str, int]) -> None:
        """Hold each log from the first record on that the tables lack, unless that is done."""
        self._reached = {}  # What a stream that failed had reached may not be written down.
        self._hold.begin({log: LogOffset(-1, 0, revision) for log, revision in first.items()})

    def reached(self, query: StreamingQuery) -> bool:
        """Note how far the micro-batches are that are done; return whether it is time to write it down."""
        progress = query.lastProgress
        if progress is not None and progress.sources and progress.sources[0].endOffset:
            self._reached = decode_log_offsets(msgspec.json.decode(progress.sources[0].endOffset))
        return bool(self._reached) and time.monotonic() - self._written_s > _HOLD_MOVE_S

    def write(self) -> None:
        """Let go of what is before that; the tables have all of it written down."""
        self._written_s = time.monotonic()
        if self._reached:
            self._hold.move(self._reached)

    def close(self) -> None:
        """End the connection; the log stays held."""
        self._access.close()


def _remove_old_checkpoints(folder: str) -> None:
    """Remove what killed runs have left over on a local disk; a living one that idles starts again."""
    path = local_folder(folder)
    if path is None or not path.is_dir():
        return
    for old in sorted(path.iterdir()):
        if _CHECKPOINT_NAME.fullmatch(old.name) and _age_s(old) > _CHECKPOINT_KEPT_S:
            shutil.rmtree(old, ignore_errors=True)


def _age_s(path: Path) -> float:
    try:
        return time.time() - max(one.stat().st_mtime for one in (path, *path.iterdir()))
    except OSError:
        return 0.0

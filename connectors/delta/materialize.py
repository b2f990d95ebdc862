"""Tables of a log's machine, kept as Delta tables by one Spark stream: the work behind `jobs/materialize.py`.

1. The Delta tables are the truth: their positions say where to go on. Spark's checkpoint is for one start of the stream
   and lies in a folder of its own: no old one can be wrong, and two runs do not meet in it.
2. A micro-batch that is run again changes nothing (`FollowerTable.apply`).
3. Before it goes on, the job checks that the log still has the tables' history: same prefix hash at their positions.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.streaming.query import StreamingQuery

from connectors.delta.fold import RECORD_COLUMNS
from connectors.delta.followers import AppliedRange, FollowerSet
from connectors.delta.position import TablePosition
from connectors.delta.settings import MaterializeSettings, Progress, Summary
from connectors.delta.start import open_followers
from connectors.delta.upkeep import TableUpkeep
from connectors.errors import ConnectorError, SinkGapError
from rsm_spark.core.records import KernelRecord
from rsm_spark.snapshots.delta_sync import local_folder

__all__ = ["MaterializeSettings", "Materializer", "Progress", "Summary"]

_LOGGER = logging.getLogger(__name__)
_RESTARTS_MAX = 5
_POLL_S = 1
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


class Materializer:
    """Runs the stream until it is asked to stop, or has applied all there is.

    Args:
        spark: Session.
        settings: What to materialize.
        report: Called after each micro-batch that was new.
        on_read: Called with the last revision of each micro-batch, before it is applied.
        should_stop: Asked about once a second.

    """

    def __init__(
        self,
        spark: SparkSession,
        settings: MaterializeSettings,
        *,
        report: Callable[[Progress], None],
        on_read: Callable[[int], None] = lambda _revision: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._report = report
        self._on_read = on_read
        self._should_stop = should_stop
        self._upkeep = TableUpkeep(
            optimize_every=settings.optimize_every, vacuum_retain_hours=settings.vacuum_retain_hours
        )
        self._progress: list[Progress] = []
        self._files_merged = self._files_removed = 0
        self._failure: Exception | None = None
        self._restarts = 0
        # Spark's thread applies, ours commits positions that are due.
        self._lock = threading.Lock()

    def run(self) -> Summary:
        """Materialize.

        Raises:
            ConnectorError: A table cannot follow the log; nothing of the failing micro-batch is in it.
            StreamingQueryException: The source failed, again and again.

        """
        began = time.monotonic()
        failures = 0
        while True:
            done = len(self._progress)
            tables = open_followers(self._settings, self._should_stop)
            try:
                self._stream(tables)
                break
            except StreamingQueryException as error:
                failures = 1 if len(self._progress) > done else failures + 1
                with contextlib.suppress(Exception), self._lock:  # what failed first is what counts
                    tables.flush()
                self._judge(error, failures)
                self._restarts += 1
                time.sleep(min(0.2 * 2**failures, 10))
        with self._lock:  # Spark may have left its thread in the middle of a commit
            positions = tables.flush()
        return self._summary(positions, time.monotonic() - began)

    def _summary(self, positions: tuple[TablePosition, ...], seconds: float) -> Summary:
        return Summary(
            position=min(positions, key=lambda position: position.revision),
            positions=positions,
            batches=len(self._progress),
            records=sum(one.records for one in self._progress),
            upserted=sum(one.upserted for one in self._progress),
            deleted=sum(one.deleted for one in self._progress),
            restarts=self._restarts,
            files_merged=self._files_merged,
            files_removed=self._files_removed,
            seconds=round(seconds, 3),
        )

    def _stream(self, tables: FollowerSet) -> None:
        """Run the stream once, with a checkpoint of its own."""
        folder = self._settings.checkpoint.rstrip("/")
        _remove_old_checkpoints(folder)
        checkpoint = f"{folder}/{os.urandom(16).hex()}"
        query = self._start(tables, checkpoint)
        try:
            while not query.awaitTermination(_POLL_S):
                if self._should_stop():
                    return
                with self._lock:
                    tables.flush(only_due=True)
        finally:
            query.stop()
            self._remove(checkpoint)

    def _start(self, tables: FollowerSet, checkpoint: str) -> StreamingQuery:
        settings = self._settings
        start = {settings.log: {"revision": tables.next_revision}}
        limits = {"maxOffsetsPerTrigger": str(settings.records_per_batch_max)}
        if settings.bytes_per_batch_max:
            limits["maxBytesPerTrigger"] = settings.bytes_per_batch_max
        described = F.when(F.col("type") == int(KernelRecord.MACHINE_DESCRIBED), F.col("fields")).alias("fields")
        frame = (
            self._spark.readStream.format("ledger")
            .options(**settings.source)
            .options(log=settings.log, rows="records", startingOffsets=msgspec.json.encode(start).decode(), **limits)
            .load()
            .select(*(described if name == "fields" else F.col(name) for name in RECORD_COLUMNS))
        )
        self._failure = None
        writer = frame.writeStream.foreachBatch(self._applier(tables)).option("checkpointLocation", checkpoint)
        writer = writer.queryName(f"materialize {settings.log} {checkpoint[-8:]}")
        if settings.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=settings.trigger).start()

    def _applier(self, tables: FollowerSet) -> Callable[[DataFrame, int], None]:
        def apply(frame: DataFrame, _batch_id: int) -> None:
            began = time.monotonic()
            try:
                records: pa.Table = frame.toArrow()
                if not records.num_rows:
                    return
                self._on_read(pc.max(records["revision"]).as_py())
                with self._lock:
                    done = tables.apply(records)
                    self._look_after(tables)
            except Exception as error:
                # Spark turns it into text; `_judge` wants to know what it was.
                self._failure = error
                raise
            self._tell(done, time.monotonic() - began)

        return apply

    def _look_after(self, tables: FollowerSet) -> None:
        for follower in tables:
            done = self._upkeep.after(follower)
            if done is not None:
                self._files_merged += done.files_merged
                self._files_removed += done.files_removed

    def _tell(self, done: AppliedRange, seconds: float) -> None:
        applied = done.applied.values()
        if not any(one.is_new for one in applied):
            return
        progress = Progress(
            done.end.revision,
            done.records,
            sum(one.upserted for one in applied),
            sum(one.deleted for one in applied),
            sum(one.is_committed for one in applied),
            round(seconds, 3),
        )
        self._progress.append(progress)
        self._report(progress)

    def _judge(self, error: StreamingQueryException, failures: int) -> None:
        """Raise what cannot be healed by starting again from the tables."""
        # A gap: another writer has moved a table, or made it anew.
        is_gap = isinstance(self._failure, SinkGapError) and failures == 1
        if isinstance(self._failure, ConnectorError) and not is_gap:
            raise self._failure from error
        text = str(error)
        if failures > _RESTARTS_MAX or any(name in text for name in _PERMANENT):
            raise error
        _LOGGER.warning("the stream failed and starts again: %s", text.splitlines()[0][:500])

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

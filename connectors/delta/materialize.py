"""A table of a log's machine, kept as a Delta table by a Spark stream: the work behind `jobs/materialize.py`.

1. The Delta table is the truth: its position says where to go on. Spark's checkpoint is a cache; it lies in a folder
   named after the table's id and is thrown away when it does not fit.
2. A micro-batch that is run again changes nothing (`FollowerTable.apply`).
3. Before it goes on, the job checks that the log still has the table's history: same prefix hash at its position.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from connectors.delta.fold import RECORD_COLUMNS
from connectors.delta.follower import FollowerTable
from connectors.delta.position import TablePosition
from connectors.errors import ConnectorError, DeltaSinkError, ForeignTableError, SinkGapError
from connectors.spark.access import DriverAccess
from connectors.spark.look import LogLook
from connectors.spark.options import parse_options
from rsm_spark.core.machine import MachineDescription, TableDescription

__all__ = ["MaterializeSettings", "Materializer", "Progress", "Summary"]

_LOGGER = logging.getLogger(__name__)
_DESCRIPTION_WAIT_S_MAX = 60.0
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


class MaterializeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What to materialize, and how.

    Attributes:
        log: Name of the log.
        place: Path or URI of the Delta table.
        checkpoint: Folder or URI for Spark's checkpoints.
        source: Further options of the source (`metadataUri`, `passwordFile`, …).
        machine_table: Table of the machine; "" = its only one, or the one that bears its name.
        trigger: Spark's interval between micro-batches.
        available_now: Apply what there is and end.
        records_per_batch_max: Records of one micro-batch: what the driver holds at a time.
        storage_options: For `deltalake`.

    """

    log: str
    place: str
    checkpoint: str
    source: dict[str, str] = {}
    machine_table: str = ""
    trigger: str = "1 second"
    available_now: bool = False
    records_per_batch_max: int = 100_000
    storage_options: dict[str, str] = {}


class Progress(msgspec.Struct, frozen=True):
    """One micro-batch.

    Attributes:
        revision: Last record in the table.
        records: Records of the micro-batch.
        upserted: Rows inserted or changed.
        deleted: Rows that went.
        seconds: Time that applying it took, reading included.

    """

    revision: int
    records: int
    upserted: int
    deleted: int
    seconds: float


class Summary(msgspec.Struct, frozen=True):
    """What a run did; position is where the table stands."""

    position: TablePosition
    batches: int
    records: int
    upserted: int
    deleted: int
    restarts: int
    seconds: float


class Materializer:
    """Runs the stream until it is told to stop, or until there is nothing more (`available_now`).

    Args:
        spark: Session.
        settings: What to do.
        report: Told of each micro-batch that changed the table.
        on_read: Told the last revision of each micro-batch that Spark has read and that is about to be applied.
        should_stop: Asked a few times a second.

    """

    def __init__(
        self,
        spark: SparkSession,
        settings: MaterializeSettings,
        *,
        report: Callable[[Progress], None],
        on_read: Callable[[int], None] = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._report = report
        self._on_read = on_read
        self._should_stop = should_stop
        self._progress: list[Progress] = []
        self._failure: Exception | None = None
        self._restarts = 0

    def run(self) -> Summary:
        """Materialize.

        Raises:
            ConnectorError: The table cannot follow the log; nothing was changed by the failing micro-batch.
            StreamingQueryException: The source failed, again and again.

        """
        began = time.monotonic()
        follower = self._follower()
        failures = 0
        while not self._should_stop():
            done = len(self._progress)
            checkpoint = f"{self._settings.checkpoint.rstrip('/')}/{follower.table_id}"
            query = self._start(follower, checkpoint)
            try:
                self._wait(query)
                break
            except StreamingQueryException as error:
                failures = 1 if len(self._progress) > done else failures + 1
                self._judge(error, failures, checkpoint)
                self._restarts += 1
                time.sleep(min(0.2 * 2**failures, 10))
            finally:
                query.stop()
        position = follower.position()
        assert position is not None, "the table was created before the first micro-batch"
        return Summary(
            position,
            len(self._progress),
            sum(one.records for one in self._progress),
            sum(one.upserted for one in self._progress),
            sum(one.deleted for one in self._progress),
            self._restarts,
            round(time.monotonic() - began, 3),
        )

    def _follower(self) -> FollowerTable:
        """Return the table, created if need be, after checking that the log goes on where it stands."""
        settings = self._settings
        access = DriverAccess(parse_options({**settings.source, "log": settings.log}, is_stream=True))
        try:
            look = LogLook(settings.log, access)
            description = self._described(look)
            follower = FollowerTable(
                settings.place,
                log=settings.log,
                log_id=look.log_id.hex(),
                table=_table_of(description, settings.machine_table),
                storage_options=settings.storage_options or None,
            )
            self._check_history(look, follower.open())
        finally:
            access.close()
        return follower

    def _described(self, look: LogLook) -> MachineDescription:
        deadline = time.monotonic() + _DESCRIPTION_WAIT_S_MAX
        while True:
            view = look.look()
            described = look.description_at(view, view.end.ledger_id)
            if described is not None:
                return described
            if view.first_revision > 1:
                raise DeltaSinkError(
                    f"log {self._settings.log}: the machine's description was trimmed with the records before "
                    f"{view.first_revision}: load a snapshot from the lake"
                )
            if self._should_stop() or time.monotonic() > deadline:
                raise DeltaSinkError(
                    f"log {self._settings.log} holds no record yet: start the service that writes it, then this job"
                )
            time.sleep(_POLL_S)

    def _check_history(self, look: LogLook, position: TablePosition) -> None:
        view = look.look()
        if position.entry < 0 or view.index_of(position.ledger) < 0:
            return  # Nothing applied yet, or that entry was trimmed: the source says whether records are missing.
        found = hashlib.sha256(look.payload_at(position.ledger, position.entry)).hexdigest()
        if found != position.prefix_hash:
            raise ForeignTableError(
                f"{self._settings.place} followed another history of log {self._settings.log}: at revision "
                f"{position.revision} its prefix hash is {position.prefix_hash}, the log's is {found}"
            )

    def _start(self, follower: FollowerTable, checkpoint: str) -> StreamingQuery:
        settings = self._settings
        position = follower.open()
        start = {settings.log: {"revision": position.revision + 1}}
        frame = (
            self._spark.readStream.format("ledger")
            .options(**settings.source)
            .options(
                log=settings.log,
                rows="records",
                startingOffsets=msgspec.json.encode(start).decode(),
                maxOffsetsPerTrigger=str(settings.records_per_batch_max),
            )
            .load()
            .select(*RECORD_COLUMNS)
        )
        self._failure = None
        writer = frame.writeStream.foreachBatch(self._applier(follower)).option("checkpointLocation", checkpoint)
        writer = writer.queryName(f"materialize {settings.log}")
        if settings.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=settings.trigger).start()

    def _applier(self, follower: FollowerTable) -> Callable[[DataFrame, int], None]:
        def apply(frame: DataFrame, _batch_id: int) -> None:
            began = time.monotonic()
            try:
                records: pa.Table = frame.toArrow()
                if records.num_rows:
                    self._on_read(pc.max(records["revision"]).as_py())
                applied = follower.apply(records)
            except Exception as error:
                # Spark turns it into text; `_judge` wants to know what it was.
                self._failure = error
                raise
            if applied.is_new:
                seconds = round(time.monotonic() - began, 3)
                progress = Progress(
                    applied.position.revision, records.num_rows, applied.upserted, applied.deleted, seconds
                )
                self._progress.append(progress)
                self._report(progress)

        return apply

    def _wait(self, query: StreamingQuery) -> None:
        while not query.awaitTermination(_POLL_S):
            if self._should_stop():
                return

    def _judge(self, error: StreamingQueryException, failures: int, checkpoint: str) -> None:
        """Raise what cannot be healed by starting again; throw a checkpoint away that does not fit the table."""
        if isinstance(self._failure, SinkGapError) and failures == 1 and self._forget(checkpoint):
            _LOGGER.warning("the checkpoint is not of this table's position, starting from the table: %s", checkpoint)
            return
        if isinstance(self._failure, ConnectorError):
            raise self._failure from error
        text = str(error)
        if failures > _RESTARTS_MAX or any(name in text for name in _PERMANENT):
            raise error
        _LOGGER.warning("the stream failed and starts again: %s", text.splitlines()[0][:500])

    def _forget(self, checkpoint: str) -> bool:
        """Remove a checkpoint of ours on a local disk."""
        path = Path(checkpoint.removeprefix("file://"))
        if "://" in str(path) or not path.is_dir():
            return False
        shutil.rmtree(path)
        return True


def _table_of(description: MachineDescription, name: str) -> TableDescription:
    known: dict[str, Any] = {table.name: table for table in description.tables}
    if name and name not in known:
        raise DeltaSinkError(f"machine {description.name} has no table {name}: it has {', '.join(known) or 'none'}")
    if not name and description.name in known:
        name = description.name
    if not name and len(known) != 1:
        raise DeltaSinkError(
            f"machine {description.name} has the tables {', '.join(known) or '(none)'}: say which by --machine-table"
        )
    found = known[name] if name else next(iter(known.values()))
    assert isinstance(found, TableDescription)
    return found

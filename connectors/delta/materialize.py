"""Tables of a log's machine, kept as Delta tables by one Spark stream: the work behind `jobs/materialize.py`.

Before it goes on, the job checks that the log still has the tables' history: same prefix hash at their positions. A
micro-batch that is run again changes nothing (`FollowerTable.apply`).

A partitioned log is one stream too, and each of its partitions, a log of its own, has its tables. The stream starts
again when the log has grown, with tables for the new partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from connectors.delta.begin import partitions_of
from connectors.delta.fold import RECORD_COLUMNS
from connectors.delta.followers import AppliedRange, FollowerSet, each
from connectors.delta.position import TablePosition
from connectors.delta.settings import MaterializeSettings, Progress, Summary
from connectors.delta.start import open_followers, open_partitions
from connectors.delta.stream import FreshStart, RecordStream
from connectors.delta.upkeep import TableUpkeep
from rsm_spark.core.records import KernelRecord

_LOG = "log"
"""Column with the name of a record's log."""


class Materializer:
    """Keeps the tables until it is asked to stop, or has applied all there is.

    Args:
        spark: Session.
        settings: What to materialize.
        report: Called after each micro-batch that was new.
        on_read: Called with the last revision of each micro-batch of a plain log, before it is applied.
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
        self._settings = settings
        self._report = report
        self._on_read = on_read
        self._should_stop = should_stop
        self._stream = RecordStream(spark, settings, self, name="materialize", should_stop=should_stop)
        self._upkeep = TableUpkeep(
            optimize_every=settings.optimize_every, vacuum_retain_hours=settings.vacuum_retain_hours
        )
        # By log: those of a partitioned log are its partitions.
        self._tables: dict[str, FollowerSet] = {}
        self._is_partitioned = False
        self._batches = 0
        self._positions: tuple[TablePosition, ...] = ()
        self._progress: list[Progress] = []
        self._files_merged = self._files_removed = 0

    def run(self) -> Summary:
        """Materialize.

        Raises:
            ConnectorError: A table cannot follow the log; nothing of the failing micro-batch is in it.
            StreamingQueryException: The source failed, again and again.

        """
        began = time.monotonic()
        self._stream.run()
        return Summary(
            position=min(self._positions, key=lambda position: position.revision),
            positions=self._positions,
            batches=self._batches,
            records=sum(one.records for one in self._progress),
            upserted=sum(one.upserted for one in self._progress),
            deleted=sum(one.deleted for one in self._progress),
            restarts=self._stream.restarts,
            files_merged=self._files_merged,
            files_removed=self._files_removed,
            seconds=round(time.monotonic() - began, 3),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """See `StreamedTables`."""
        return (*RECORD_COLUMNS, _LOG) if self._is_partitioned else RECORD_COLUMNS

    def open(self) -> Mapping[str, int]:
        """See `StreamedTables`."""
        settings = self._settings
        partitions = partitions_of(settings)
        self._is_partitioned = bool(partitions)
        if partitions:
            self._tables = open_partitions(settings, partitions, self._should_stop)
        else:
            self._tables = {settings.log: open_followers(settings, self._should_stop)}
        return {log: tables.next_revision for log, tables in self._tables.items()}

    def read(self, frame: DataFrame) -> pa.Table:
        """See `StreamedTables`; of the records that tables do not need only the descriptions have their fields."""
        described = F.when(F.col("type") == int(KernelRecord.MACHINE_DESCRIBED), F.col("fields")).alias("fields")
        records = frame.select(*(described if name == "fields" else F.col(name) for name in self.columns)).toArrow()
        if records.num_rows and not self._is_partitioned:
            self._on_read(pc.max(records["revision"]).as_py())
        return records

    def apply(self, records: pa.Table, began_s: float) -> bool:
        """See `StreamedTables`."""
        parts = self._by_log(records)
        done = each(list(parts.items()), lambda part: self._tables[part[0]].apply(part[1]))
        for log in parts:
            for follower in self._tables[log]:
                upkept = self._upkeep.after(follower)
                if upkept is not None:
                    self._files_merged += upkept.files_merged
                    self._files_removed += upkept.files_removed
        seconds = time.monotonic() - began_s
        told = [self._tell(log, one, seconds) for log, one in zip(parts, done, strict=True)]
        self._batches += any(told)
        return any(told)

    def _by_log(self, records: pa.Table) -> Mapping[str, pa.Table]:
        if not self._is_partitioned:
            return {self._settings.log: records}
        found: list[Any] = pc.unique(records[_LOG]).to_pylist()
        logs: list[str] = sorted(found)
        new = [log for log in logs if log not in self._tables]
        if new:
            raise FreshStart(f"log {self._settings.log} has grown by {', '.join(new)}")
        return {log: records.filter(pc.equal(records[_LOG], pa.scalar(log))).drop_columns([_LOG]) for log in logs}

    def flush(self, *, only_due: bool = False) -> None:
        """See `StreamedTables`."""
        flushed = each(list(self._tables.values()), lambda tables: tables.flush(only_due=only_due))
        self._positions = tuple(position for positions in flushed for position in positions)

    def _tell(self, log: str, done: AppliedRange, seconds: float) -> bool:
        applied = done.applied.values()
        if not any(one.is_new for one in applied):
            return False
        progress = Progress(
            log,
            done.end.revision,
            done.records,
            sum(one.upserted for one in applied),
            sum(one.deleted for one in applied),
            sum(one.is_committed for one in applied),
            round(seconds, 3),
        )
        self._progress.append(progress)
        self._report(progress)
        return True

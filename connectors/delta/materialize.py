"""Tables of a log's machine, kept as Delta tables by one Spark stream: the work behind `jobs/materialize.py`.

Before it goes on, the job checks that the log still has the tables' history: same prefix hash at their positions. A
micro-batch that is run again changes nothing (`FollowerTable.apply`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from connectors.delta.fold import RECORD_COLUMNS
from connectors.delta.followers import AppliedRange, FollowerSet
from connectors.delta.position import TablePosition
from connectors.delta.settings import MaterializeSettings, Progress, Summary
from connectors.delta.start import open_followers
from connectors.delta.stream import RecordStream
from connectors.delta.upkeep import TableUpkeep
from rsm_spark.core.records import KernelRecord


class Materializer:
    """Keeps the tables until it is asked to stop, or has applied all there is.

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
        self._settings = settings
        self._report = report
        self._on_read = on_read
        self._should_stop = should_stop
        self._stream = RecordStream(
            spark, settings, self, name="materialize", columns=RECORD_COLUMNS, should_stop=should_stop
        )
        self._upkeep = TableUpkeep(
            optimize_every=settings.optimize_every, vacuum_retain_hours=settings.vacuum_retain_hours
        )
        self._tables: FollowerSet | None = None
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
            batches=len(self._progress),
            records=sum(one.records for one in self._progress),
            upserted=sum(one.upserted for one in self._progress),
            deleted=sum(one.deleted for one in self._progress),
            restarts=self._stream.restarts,
            files_merged=self._files_merged,
            files_removed=self._files_removed,
            seconds=round(time.monotonic() - began, 3),
        )

    def open(self) -> int:
        """See `StreamedTables`."""
        self._tables = open_followers(self._settings, self._should_stop)
        return self._tables.next_revision

    @property
    def _followers(self) -> FollowerSet:
        assert self._tables is not None, "the stream opens the tables first"
        return self._tables

    def read(self, frame: DataFrame) -> pa.Table:
        """See `StreamedTables`; of the records that tables do not need only the descriptions have their fields."""
        described = F.when(F.col("type") == int(KernelRecord.MACHINE_DESCRIBED), F.col("fields")).alias("fields")
        records = frame.select(*(described if name == "fields" else F.col(name) for name in RECORD_COLUMNS)).toArrow()
        if records.num_rows:
            self._on_read(pc.max(records["revision"]).as_py())
        return records

    def apply(self, records: pa.Table, began_s: float) -> bool:
        """See `StreamedTables`."""
        tables = self._followers
        done = tables.apply(records)
        for follower in tables:
            upkept = self._upkeep.after(follower)
            if upkept is not None:
                self._files_merged += upkept.files_merged
                self._files_removed += upkept.files_removed
        return self._tell(done, time.monotonic() - began_s)

    def flush(self, *, only_due: bool = False) -> None:
        """See `StreamedTables`."""
        self._positions = self._followers.flush(only_due=only_due)

    def _tell(self, done: AppliedRange, seconds: float) -> bool:
        applied = done.applied.values()
        if not any(one.is_new for one in applied):
            return False
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
        return True

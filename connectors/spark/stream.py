"""`spark.readStream.format("ledger")`: the driver's side of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from connectors.spark.access import DriverAccess
from connectors.spark.options import SourceOptions
from connectors.spark.plan import Limits
from connectors.spark.subjects import Subject, subject_of
from connectors.spark.tasks import LedgerPartition, read_partition

__all__ = ["LedgerStreamReader"]


class LedgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver; tasks read them from the bookies.

    Spark builds one in a long-lived driver process and others that it pickles to tasks: no state travels along.

    Args:
        options: Of the query.

    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._access: DriverAccess | None = None
        self._subject: Subject | None = None
        self._target: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave connections behind."""
        return {"_options": self._options, "_access": None, "_subject": None, "_target": None}

    def _opened(self) -> Subject:
        if self._subject is None:
            self._access = DriverAccess(self._options)
            self._subject = subject_of(self._options, self._access)
        return self._subject

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query starts."""
        return self._opened().bound(is_start=True)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that `maxOffsetsPerTrigger` sets."""
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of a query with Trigger.AvailableNow."""
        self._target = self._opened().end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch; `start` if there is nothing new."""
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._opened().following(start, Limits(offsets_max=count), self._target)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the end of what may be read, for the query's progress."""
        return self._opened().end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what the tasks of a micro-batch read."""
        return self._opened().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read an input partition (in a task)."""
        # Where there are no partitions, Spark runs one task all the same, for a partition of its own.
        return read_partition(partition) if isinstance(partition, LedgerPartition) else iter(())

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: a reader never keeps ledgers alive."""

    def stop(self) -> None:
        """End all connections of the driver."""
        access, self._access, self._subject = self._access, None, None
        if access is not None:
            access.close()

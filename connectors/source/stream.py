"""`spark.readStream.format("ledger")`: the driver's side of a stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from connectors.plain_errors import tells_plainly
from connectors.source.access import DriverAccess
from connectors.source.admission import EVERYTHING, BatchAdmission, limits_of, tighten
from connectors.source.holding import QueryHold
from connectors.source.inputs import read_input
from connectors.source.offsets import decode_log_offsets
from connectors.source.options import SourceOptions
from connectors.source.plan import MicroBatchLimits
from connectors.source.progress import report
from connectors.source.query_source import QuerySource, source_of
from connectors.source.traced_batches import read_traced, trace_of, traced_plan


@tells_plainly(
    "initialOffset",
    "prepareForTriggerAvailableNow",
    "latestOffset",
    "reportLatestOffset",
    "partitions",
    "commit",
    "read",
)
class LedgerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver; tasks read them from the bookies.

    Spark builds one in a long-lived driver process and others that it pickles to tasks: no state travels along.

    Args:
        options: Of the query.

    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._access: DriverAccess | None = None
        self._source: QuerySource | None = None
        self._hold: QueryHold | None = None
        self._target: dict[str, Any] | None = None
        self._admission = BatchAdmission()
        # End of the micro-batch that was planned last: what is behind it is the query's backlog.
        self._planned: dict[str, Any] | None = None

    def __reduce__(self) -> tuple[type[LedgerStreamReader], tuple[SourceOptions]]:
        """Leave connections and the driver's state behind."""
        return type(self), (self._options,)

    def _opened(self) -> QuerySource:
        if self._source is None:
            self._access = DriverAccess(self._options)
            self._source = source_of(self._options, self._access)
            options = self._options
            if options.consumer:
                self._hold = QueryHold(
                    options.consumer, self._access, hold_ms=options.hold_ms, hold_bytes=options.hold_bytes
                )
        return self._source

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new query starts."""
        return self._opened().bound(is_start=True)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return a limit that the options set: one of several, as Spark has no form for more; `latestOffset` adds them.

        What matters is that it is not `ReadAllAvailable`, by which `latestOffset` recognises Trigger.Once.
        """
        limits = limits_of(self._options)
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.bytes_max is not None:
            return ReadMaxBytes(limits.bytes_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of a query with Trigger.AvailableNow."""
        self._target = self._opened().end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the end of the next micro-batch; `start` if there is nothing new, or not enough to go yet."""
        source, limits = self._opened(), self._limits(limit)
        if self._hold is not None:
            self._hold.begin(decode_log_offsets(start))
        end = source.following(start, limits, self._target)
        if end != start and limits.offsets_min is not None:
            waiting = source.backlog(start).records
            if not self._admission.admits(waiting, limits, time.monotonic()):
                end = start
        self._planned = end
        return end

    def _limits(self, limit: ReadLimit) -> MicroBatchLimits:
        """Return what is asked for: by Spark, and by the options unless Spark wants everything."""
        match limit:
            case ReadAllAvailable():
                return EVERYTHING
            case ReadMaxRows(max_rows=count):
                limits = tighten(limits_of(self._options), offsets_max=count)
            case ReadMaxBytes(max_bytes=count):
                limits = tighten(limits_of(self._options), bytes_max=count)
            case _:
                limits = limits_of(self._options)
        if self._target is None:
            return limits
        # Trigger.AvailableNow would wait for ever for what comes after its end.
        return msgspec.structs.replace(limits, offsets_min=None)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the end of what may be read, with how far the query is behind it; see `connectors.source.progress`."""
        source = self._opened()
        backlog = None if self._planned is None else source.backlog(self._planned)
        return report(source.end(), backlog, source.losses())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return what the tasks of a micro-batch read."""
        return traced_plan(trace_of(self._options), lambda: self._opened().partitions(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read an input partition (in a task)."""
        return read_traced(partition, read_input)

    def commit(self, end: dict[str, Any]) -> None:
        """Let go of what is before `end`, if the query holds its logs; else a reader keeps nothing alive."""
        self._opened()
        if self._hold is not None:
            self._hold.move(decode_log_offsets(end))

    def stop(self) -> None:
        """End all connections of the driver."""
        access, self._access, self._source = self._access, None, None
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.flush()
        if access is not None:
            access.close()

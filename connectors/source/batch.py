"""`spark.read.format("ledger")`: the driver's side of a batch read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from connectors.errors import OptionError
from connectors.plain_errors import tells_plainly
from connectors.source.access import DriverAccess
from connectors.source.inputs import read_input
from connectors.source.options import SourceOptions
from connectors.source.query_source import source_of
from connectors.source.traced_batches import TracedBatch, read_traced, trace_of, traced_plan

if TYPE_CHECKING:
    # Spark 4.0 has no such class.
    from pyspark.sql.datasource import Filter


@tells_plainly("partitions", "read")
class LedgerBatchReader(DataSourceReader):
    """Plans one read on the driver; tasks read from the bookies.

    Args:
        options: Of the query.

    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return what the tasks read; the ends are fixed here."""
        access = DriverAccess(self._options)
        try:
            return traced_plan(
                trace_of(self._options), lambda: self._plan(access), TracedBatch(os.urandom(16).hex(), 0)
            )
        finally:
            access.close()

    def _plan(self, access: DriverAccess) -> Sequence[InputPartition]:
        source = source_of(self._options, access)
        start, end = source.bound(is_start=True), source.bound(is_start=False)
        return source.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read an input partition (in a task)."""
        return read_traced(partition, read_input)


@tells_plainly("pushFilters")
class LedgerPushdownReader(LedgerBatchReader):
    """Leaves out what the query's filters do. A class of its own: by default Spark refuses one with `pushFilters`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take the filters that bound entries; return those that are left to Spark."""
        from connectors.source.pushdown import push_filters  # noqa: PLC0415 - Spark 4.0 has no filters

        bounds, left = push_filters(filters, self._options)
        self._options = msgspec.structs.replace(self._options, entry_bounds=bounds)
        return left


def batch_reader(options: SourceOptions) -> LedgerBatchReader:
    """Return the reader of a batch query.

    Raises:
        OptionError: `pushdown` is set, and this Spark tells sources no filters.

    """
    if options.pushdown and not hasattr(DataSourceReader, "pushFilters"):
        raise OptionError("option pushdown needs Spark 4.1: older ones tell a source no filters")
    return LedgerPushdownReader(options) if options.pushdown else LedgerBatchReader(options)

"""Input partitions that Spark hands to a task, by kind (in a task)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from connectors.source.snapshot_rows import SnapshotPartition, read_snapshot
from connectors.source.tasks import LedgerPartition, read_partition


def read_input(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an input partition; see `tasks.read_partition` and `snapshot_rows.read_snapshot`."""
    if isinstance(partition, SnapshotPartition):
        return read_snapshot(partition)
    # Where there are no partitions, Spark runs one task all the same, for a partition of its own.
    return read_partition(partition) if isinstance(partition, LedgerPartition) else iter(())

"""What Spark hands to a task, by its kind (in a task)."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from connectors.spark.snapshot_rows import SnapshotPartition, read_snapshot
from connectors.spark.tasks import LedgerPartition, read_partition

__all__ = ["read_input"]


def read_input(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an input partition; see `tasks.read_partition` and `snapshot_rows.read_snapshot`."""
    if isinstance(partition, SnapshotPartition):
        return read_snapshot(partition)
    # Where there are no partitions, Spark runs one task all the same, for a partition of its own.
    return read_partition(partition) if isinstance(partition, LedgerPartition) else iter(())

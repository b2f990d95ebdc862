"""Rows of a snapshot as rows of the source (in a task): what the last record of each key left, without that record.

They have the columns that the records of the tail have. A row says its table, its key, its columns and the revision of
the record that last wrote it; `fold` is `upsert`. Its record is not there any more: ledger, entry, leader epoch, type
and name are null, by which such a row is recognised; so is the head of a client's command. The logged time is that of
the snapshot's last entry: no later was the row written.

`rows=records` has all tables, the kernel's too (their names begin with `_`); `rows=kafka` those of the machine, as it
has only records of the machine; `rows=table` the one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from connectors.errors import StartGoneError
from connectors.source.arrow import arrow_schema, repeated
from connectors.source.entry_bounds import EntryBounds
from connectors.source.kafka_rows import kafka_batch, kafka_needs
from connectors.source.options import Rows
from connectors.source.row_plan import RowPlan
from connectors.source.schema import RowColumn
from connectors.source.table_rows import table_batch, table_needs
from rsm_spark.core.machine import Fold, MachineDescription, decode_description
from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.snapshots.columns import ROW_SCHEMA


@dataclass(frozen=True)
class SnapshotPartition(InputPartition):
    """Some row groups of a snapshot and all that a task needs to read them.

    Attributes:
        place: Path or URI of the table that holds the snapshot.
        file: Name of the file in it.
        groups: Row groups of the file.
        log: Name of the log.
        revision: Of the snapshot.
        logged_ms: Logged time of its last entry.
        description: The machine's self-description (JSON).
        row_plan: Kind and columns of the rows.
        bounds: Rows outside are left out; None = nothing is.
        storage_options: For `deltalake`; they may hold secrets.

    """

    place: str
    file: str
    groups: tuple[int, ...]
    log: str
    revision: int
    logged_ms: int
    description: bytes
    row_plan: RowPlan
    bounds: EntryBounds | None = None
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)


def read_snapshot(partition: SnapshotPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an input partition.

    Raises:
        StartGoneError: The file is gone, or cannot be read.

    """
    from rsm_spark.snapshots.lake_files import LakeFile, read_lake_file  # noqa: PLC0415 - most queries need no lake

    file = LakeFile(partition.file, 0, -1)
    description = decode_description(partition.description)
    try:
        for batch in read_lake_file(
            partition.place, file, ROW_SCHEMA.names, partition.storage_options, groups=partition.groups
        ):
            made = snapshot_batch(batch, partition, description)
            if made.num_rows:
                yield made
    except CorruptSnapshotError as error:
        raise StartGoneError(
            f"log {partition.log}: the snapshot at revision {partition.revision}, which this query began with, cannot "
            f"be read any more: {error}. Start a new query (new checkpoint location) with startingOffsets=snapshot, "
            "and keep more snapshots, or keep their files for longer"
        ) from error


def snapshot_batch(
    rows: pa.RecordBatch, partition: SnapshotPartition, description: MachineDescription
) -> pa.RecordBatch:
    """Return rows of the source made of rows of a snapshot.

    Args:
        rows: In `rsm_spark.snapshots.columns.ROW_SCHEMA`.
        partition: They are of this one.
        description: Of the machine.

    """
    plan = partition.row_plan
    columns = [RowColumn(*column) for column in plan.columns]
    kept = _bounded(rows, partition)
    match plan.rows:
        case Rows.KAFKA:
            tables = pa.array([table.name for table in description.tables], pa.string())
            kept = kept.filter(pc.is_in(kept.column("table_name"), value_set=tables))
            return kafka_batch(_records(kept, kafka_needs(columns), partition), columns, description)
        case Rows.TABLE:
            records = _records(kept, table_needs(columns), partition)
            place = f"log {partition.log}: snapshot at revision {partition.revision}"
            return table_batch(records, columns, plan.table, description, place)
        case _:
            return _records(kept, columns, partition)


def _bounded(rows: pa.RecordBatch, partition: SnapshotPartition) -> pa.RecordBatch:
    """Leave out what the query's filters do; what is null here is never what they ask for."""
    bounds = partition.bounds
    if bounds is None or bounds.is_everything:
        return rows
    nulls = (bounds.ledger_id, bounds.entry_id, bounds.leader_epoch)
    times = bounds.logged_ms
    if not all(one.is_everything for one in nulls) or not times.low <= partition.logged_ms <= times.high:
        return rows.slice(0, 0)
    revision = rows.column("revision")
    low, high = (pa.scalar(value, pa.int64()) for value in (bounds.revision.low, bounds.revision.high))
    return rows.filter(pc.and_(pc.greater_equal(revision, low), pc.less_equal(revision, high)))


def _records(rows: pa.RecordBatch, columns: Sequence[RowColumn], partition: SnapshotPartition) -> pa.RecordBatch:
    """Return columns of `rows=records`."""
    count, schema = rows.num_rows, arrow_schema(columns)
    there = set(rows.schema.names)
    arrays: list[pa.Array[Any]] = []
    for made in schema:
        match made.name:
            case "log":
                arrays.append(repeated(partition.log, count))
            case "fold":
                arrays.append(repeated(str(Fold.UPSERT), count))
            case "logged_at":
                arrays.append(pa.repeat(pa.scalar(partition.logged_ms * 1000, pa.int64()), count).cast(made.type))
            case name if name in there:
                arrays.append(rows.column(name).cast(made.type))
            case _:
                arrays.append(pa.nulls(count, made.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

"""The state of a log at a revision as a DataFrame, of any size: files of a snapshot, entries of the log, one fold.

Each task reads entries and folds them; what comes out, one change a key and task, is brought together by key, and the
last one counts. Entries and changes go through Spark's JVM neither one by one nor twice: a row there costs more than
the fold of a record. Nothing but planning is done on the driver.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it
from pyspark.sql.datasource import InputPartition

from connectors.delta.proof import FollowerShape, shape_of_before
from connectors.plain_errors import told_plainly
from connectors.source.access import DriverAccess
from connectors.source.batch import LedgerBatchReader
from connectors.source.look import LogLook
from connectors.source.options import Rows, parse_options
from connectors.source.tasks import LedgerPartition, read_hashed
from connectors.source.traced_batches import read_traced
from connectors.state.as_of import AsOf, AsOfKind, LogRange, find_range
from connectors.state.blocks import PartRule, part_count_of
from connectors.state.lake import lake_of
from connectors.state.rows import ROWS_ARROW, ROWS_DDL, read_rows, typed_table
from connectors.state.steps import BLOCK, STEP_DDL, StepPlan, change_rows, read_steps, row_steps
from connectors.state.sums import SUM_DDL, RowSum, StateSums, read_sums, read_total, row_sum
from rsm_spark.core.machine import encode_description
from rsm_spark.snapshots.columns import ROW_SCHEMA
from rsm_spark.snapshots.lake import LakeSnapshots
from rsm_spark.snapshots.lake_files import LakeFile, files_of_version, read_lake_file
from rsm_spark.snapshots.manifest import SnapshotManifest

_ROW_BYTES: Final = 256
"""Of a row of a snapshot, about."""


class RangeFrames:
    """DataFrames of what has to be read for a state.

    Args:
        spark: Session.
        log_range: What has to be read.
        source: Options of the source `ledger`, with the log's name.
        lake: The lake's snapshots of the log; needed if the range begins with one.
        storage_options: For `deltalake`.

    """

    def __init__(
        self,
        spark: SparkSession,
        log_range: LogRange,
        source: Mapping[str, str],
        lake: LakeSnapshots | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self.log_range = log_range
        self._source = dict(source)
        self._lake = lake
        self._place = "" if lake is None else lake.place
        self._storage_options = dict(storage_options) if storage_options else None
        rows = 0 if log_range.base is None else log_range.base.row_count
        size = log_range.payload_bytes + rows * _ROW_BYTES
        self._parts = PartRule(part_count_of(size), secrets.randbits(64))

    def steps(
        self,
        *,
        cuts: Sequence[int] = (),
        places: frozenset[tuple[int, int]] = frozenset(),
        is_summed: bool,
        histories: frozenset[str] = frozenset(),
    ) -> DataFrame:
        """Return the steps of base and entries; see `connectors.state.steps`."""
        log_range = self.log_range
        plan = StepPlan(
            log_range.ancestry,
            {ledger_id: encode_description(one) for ledger_id, one in log_range.descriptions.items()},
            log_range.first_revision,
            log_range.revision,
            tuple(sorted(set(cuts))),
            places,
            is_summed,
            self._parts,
            histories,
        )
        found: list[DataFrame] = []
        if log_range.base is not None:
            read = partial(row_steps, parts=self._parts, is_summed=is_summed)
            found.append(self.rows_of(log_range.base).mapInArrow(read, STEP_DDL))
        inputs = self._inputs()
        if inputs:
            read = partial(_read_inputs, inputs=inputs, plan=plan)
            found.append(self._spark.range(0, len(inputs), 1, len(inputs)).mapInArrow(read, STEP_DDL))
        if not found:
            return self._spark.createDataFrame([], STEP_DDL)
        return reduce(lambda one, other: one.unionByName(other), found)

    def _inputs(self) -> Sequence[InputPartition]:
        """Return what the tasks read."""
        log_range = self.log_range
        if not log_range.is_read:
            return ()
        (first, begin), (last, end) = log_range.first, log_range.last
        bounds = {
            "startingOffsets": json.dumps({log_range.log: {"ledger": first, "entry": begin}}),
            "endingOffsets": json.dumps({log_range.log: {"ledger": last, "entry": end + 1}}),
        }
        options = parse_options({**self._source, **bounds, "rows": str(Rows.RAW)}, is_stream=False)
        return LedgerBatchReader(options).partitions()

    def rows_of(self, manifest: SnapshotManifest) -> DataFrame:
        """Return the rows of a snapshot in the lake, a task a file."""
        assert self._lake is not None, "a manifest came from somewhere"
        files = self._lake.files(manifest)
        if not files:
            return self._spark.createDataFrame([], ROWS_DDL)
        read = partial(_read_files, place=self._place, files=files, storage_options=self._storage_options)
        return self._spark.range(0, len(files), 1, len(files)).mapInArrow(read, ROWS_DDL)

    def rows_of_table(self, place: str, version: int, shape: FollowerShape) -> DataFrame:
        """Return the rows of a version of a follower table as the log has them, a task a file.

        Args:
            place: Of the table.
            version: Of the table.
            shape: Of its newest version; columns may have had other names before.

        Raises:
            SnapshotError: Its files cannot be listed.
            ForeignTableError: Its columns cannot be.

        """
        files = files_of_version(place, version, self._storage_options)
        if not files:
            return self._spark.createDataFrame([], ROWS_DDL)
        shape = shape_of_before(place, version, shape, self._storage_options)
        read = partial(_read_table_files, place=place, files=files, shape=shape, storage_options=self._storage_options)
        return self._spark.range(0, len(files), 1, len(files)).mapInArrow(read, ROWS_DDL)

    def with_log_range(self, log_range: LogRange) -> RangeFrames:
        """Return the same of another range of the log."""
        return RangeFrames(self._spark, log_range, self._source, self._lake, self._storage_options)

    def state(self, *, with_gone: bool = False) -> DataFrame:
        """Return the rows of the state: table_name, key, row, revision."""
        return self.rows_of_steps(self.steps(is_summed=False), with_gone=with_gone)

    def rows_of_steps(self, steps: DataFrame, *, with_gone: bool = False) -> DataFrame:
        """Return the rows that steps of these frames come to; they must carry rows."""
        return self._by_part(steps).mapInArrow(partial(read_rows, with_gone=with_gone), ROWS_DDL)

    def sums_of_steps(self, steps: DataFrame, points: Sequence[int], *, is_summed: bool) -> StateSums:
        """Return digests and counts at revisions, computed in parallel.

        Args:
            steps: Of these frames; cut at these revisions.
            points: Ascending.
            is_summed: Whether changes carry what they add to a digest.

        """
        sums = StateSums(points)
        reading = partial(read_sums, points=tuple(points), is_summed=is_summed)
        for part in self._by_part(steps).mapInArrow(reading, SUM_DDL).collect():
            sums.add(part.table_name, part.point, bytes(part.term), part.row_count)
        return sums

    def _by_part(self, steps: DataFrame) -> DataFrame:
        """Return the blocks among steps, all of a part of a table one after the other."""
        blocks = steps.where(F.col("kind") == BLOCK).select("table_name", "part", "row")
        return blocks.repartition(self._parts.count, "part").sortWithinPartitions("part", "table_name")


@told_plainly
def _read_inputs(
    batches: Iterable[pa.RecordBatch], inputs: Sequence[InputPartition], plan: StepPlan
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from read_traced(inputs[number or 0], partial(_read_input, plan=plan))


def _read_input(one: InputPartition, plan: StepPlan) -> Iterator[pa.RecordBatch]:
    assert isinstance(one, LedgerPartition), "a range of a log has no other"
    return read_steps(read_hashed(one), plan)


def _read_files(
    batches: Iterable[pa.RecordBatch], place: str, files: Sequence[LakeFile], storage_options: dict[str, str] | None
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for rows in read_lake_file(place, files[number or 0], ROW_SCHEMA.names, storage_options):
                yield rows.cast(ROWS_ARROW)


def _read_table_files(
    batches: Iterable[pa.RecordBatch],
    place: str,
    files: Sequence[LakeFile],
    shape: FollowerShape,
    storage_options: dict[str, str] | None,
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from table_rows(place, files[number or 0], shape, storage_options)


def table_rows(
    place: str, file: LakeFile, shape: FollowerShape, storage_options: Mapping[str, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file of a follower table as the log has them.

    Raises:
        CorruptSnapshotError: The file is gone, is none, or lacks a column that rows have from the beginning.
        SnapshotError: The store cannot be asked.

    """
    return shape.packed(read_lake_file(place, file, shape.columns, storage_options, later=shape.later))


def changes_of(steps: DataFrame) -> DataFrame:
    """Return the changes among steps, a row each: table_name, key, row, revision."""
    blocks = steps.where(F.col("kind") == BLOCK).select("table_name", "part", "row")
    return blocks.mapInArrow(change_rows, ROWS_DDL)


def sum_rows(rows: DataFrame) -> RowSum:
    """Return what rows come to, summed in parallel.

    Args:
        rows: table_name, key, row, revision, in any order.

    """
    return sum_rows_between(rows, ())[0]


def sum_rows_between(rows: DataFrame, points: Sequence[int]) -> list[RowSum]:
    """Return what rows come to that were written up to the first revision, behind it up to the second one, and so on.

    Args:
        rows: table_name, key, row, revision, in any order.
        points: Revisions, ascending; what is behind the last comes last.

    """
    totals, counts = [0] * (len(points) + 1), [0] * (len(points) + 1)
    for part in rows.mapInArrow(partial(read_total, points=tuple(points)), SUM_DDL).collect():
        totals[part.point] += int.from_bytes(part.term, "big")
        counts[part.point] += part.row_count
    return [row_sum(total, count) for total, count in zip(totals, counts, strict=True)]


def look_at(source: Mapping[str, str]) -> tuple[DriverAccess, LogLook]:
    """Return the driver's way to a log, to be closed, and a look at it.

    Args:
        source: Options of the source `ledger`, with the log's name.

    Raises:
        OptionError: An option is wrong.

    """
    options = parse_options(source, is_stream=False)
    access = DriverAccess(options)
    return access, LogLook(options.log, access)


def state_as_of(
    spark: SparkSession,
    log: str,
    revision: int | AsOf | None = None,
    *,
    lake: str | None = None,
    table: str | None = None,
    source: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the state of a log right after a record, however large it is.

    Args:
        spark: Session.
        log: Name of the log.
        revision: Of the record; 0 = the empty state, None = the newest. Other points: `AsOf`.
        lake: Folder or URI of snapshots: the nearest one at or before the record saves reading the log before it.
        table: Rows of this table of the machine, with its columns and `_revision`. None = of all tables, the kernel's
            own too: table_name, key, row (canonical msgpack bytes), revision.
        source: Further options of the source `ledger`: metadataUri, rsmRoot, passwordFile, …
        storage_options: For `deltalake`, for object stores.

    Raises:
        MissingLogError: The log does not reach back so far, and no snapshot fills the gap.
        LogError: The log does not reach so far.

    """
    as_of = revision if isinstance(revision, AsOf) else AsOf()
    if isinstance(revision, int):
        as_of = AsOf(AsOfKind.REVISION, revision=revision)
    options = {**(source or {}), "log": log}
    access, look = look_at(options)
    try:
        snapshots = lake_of(lake, log, storage_options, access)
        log_range = find_range(look, log, as_of, snapshots.manifests() if snapshots else [])
    finally:
        access.close()
    state = RangeFrames(spark, log_range, options, snapshots, storage_options).state()
    if table is None:
        return state
    typed = typed_table(log_range.machine, table)
    return state.where(F.col("table_name") == table).mapInArrow(typed.read, typed.ddl)

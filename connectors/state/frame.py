"""The state of a log at a revision as a DataFrame, of any size: files of a snapshot, entries of the log, one fold.

Each task folds the entries that it reads; what comes out, one change a key and task, is brought together by key, sorted
by revision, and the last one counts. Nothing but planning is done on the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from connectors.delta.proof import FollowerShape, shape_of_before
from connectors.source.access import DriverAccess
from connectors.source.look import LogLook
from connectors.source.options import parse_options
from connectors.state.as_of import AsOf, AsOfKind, LogRange, find_range
from connectors.state.lake import lake_of
from connectors.state.rows import ROWS_ARROW, ROWS_DDL, read_rows, typed_table
from connectors.state.steps import CHANGE, STEP_DDL, StepPlan, read_steps, row_steps
from connectors.state.sums import SUM_DDL, RowSum, StateSums, read_sums, read_total, row_sum
from rsm_spark.core.machine import encode_description
from rsm_spark.snapshots.columns import ROW_SCHEMA
from rsm_spark.snapshots.lake import LakeSnapshots
from rsm_spark.snapshots.lake_files import LakeFile, files_of_version, read_lake_file
from rsm_spark.snapshots.manifest import SnapshotManifest


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

    def steps(
        self,
        *,
        cuts: Sequence[int] = (),
        places: frozenset[tuple[int, int]] = frozenset(),
        is_summed: bool,
        histories: frozenset[str] = frozenset(),
    ) -> DataFrame:
        """Return the steps of base and entries; see `connectors.state.steps`."""
        plan = StepPlan(
            self.log_range.ancestry,
            {ledger_id: encode_description(one) for ledger_id, one in self.log_range.descriptions.items()},
            self.log_range.first_revision,
            self.log_range.revision,
            tuple(sorted(set(cuts))),
            places,
            is_summed,
            histories,
        )
        entries = self.entries().mapInArrow(partial(read_steps, plan=plan), STEP_DDL)
        if self.log_range.base is None:
            return entries
        base = self.rows_of(self.log_range.base).mapInArrow(partial(row_steps, is_summed=is_summed), STEP_DDL)
        return base.unionByName(entries)

    def entries(self) -> DataFrame:
        """Return the entries to read: ledger_id, entry_id, payload."""
        log_range = self.log_range
        if not log_range.is_read:
            return self._spark.createDataFrame([], "ledger_id bigint, entry_id bigint, payload binary")
        (first, begin), (last, end) = log_range.first, log_range.last
        bounds = {
            "startingOffsets": json.dumps({log_range.log: {"ledger": first, "entry": begin}}),
            "endingOffsets": json.dumps({log_range.log: {"ledger": last, "entry": end + 1}}),
        }
        read = self._spark.read.format("ledger").options(**{**self._source, **bounds, "rows": "raw"}).load()
        return read.select("ledger_id", "entry_id", "payload")

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
        return rows_frame(self.steps(is_summed=False), with_gone=with_gone)


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


def sorted_changes(steps: DataFrame) -> DataFrame:
    """Return the changes among steps, all of a key in one partition, in the order of the log."""
    changes = steps.where(F.col("kind") == CHANGE).select(*ROWS_ARROW.names)
    return changes.repartition("table_name", "key").sortWithinPartitions("table_name", "key", "revision")


def rows_frame(steps: DataFrame, *, with_gone: bool = False) -> DataFrame:
    """Return the rows that steps come to; `steps` must carry rows."""
    return sorted_changes(steps).mapInArrow(partial(read_rows, with_gone=with_gone), ROWS_DDL)


def sum_frame(steps: DataFrame, points: Sequence[int], *, is_summed: bool) -> StateSums:
    """Return digests and counts at revisions, computed in parallel.

    Args:
        steps: Of the range; cut at these revisions.
        points: Ascending.
        is_summed: Whether changes carry what they add to a digest.

    """
    sums = StateSums(points)
    reading = partial(read_sums, points=tuple(points), is_summed=is_summed)
    for part in sorted_changes(steps).mapInArrow(reading, SUM_DDL).collect():
        sums.add(part.table_name, part.point, bytes(part.term), part.row_count)
    return sums


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

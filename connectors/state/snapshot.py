"""A snapshot in the lake, made from the log alone: the work behind `jobs/snapshot.py`.

The rows are written by the tasks that fold them, each its own files; the driver adds the files to the table in one
commit, once their digest is what the fold came to and every checkpoint of the leaders agrees. So a state may be larger
than any one machine of the Spark cluster; the lake must be a place that all of them reach.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from connectors.source.look import LogLook
from connectors.state.as_of import AsOf, AsOfKind, LogRange, find_range
from connectors.state.checkpoints import newest_checkpoint
from connectors.state.frame import RangeFrames, look_at
from connectors.state.lake import lake_of
from connectors.state.links import LinkEnd, Run, link_runs
from connectors.state.steps import BLOCK, CHECKPOINT, RUN
from connectors.state.sums import RowSum, StateSums
from ledger.decoding import msgpack_decoder
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.envelope import decode_envelope
from rsm_spark.errors import LogError, MissingLogError, SnapshotError
from rsm_spark.snapshots.columns import ROW_SCHEMA
from rsm_spark.snapshots.lake import LakeSnapshots
from rsm_spark.snapshots.lake_files import LakeFile, write_lake_file
from rsm_spark.snapshots.manifest import SnapshotManifest

WRITER = "jobs/snapshot.py"
"""Name of the writer of the snapshot, in its manifest: somebody else has to verify it."""

_FILE_ROWS_MAX = 500_000
_WRITTEN_DDL = "file_name string, file_bytes bigint, row_count bigint, term binary"
_WRITTEN_FIELDS: list[pa.Field[Any]] = [
    pa.field("file_name", pa.string()),
    pa.field("file_bytes", pa.int64()),
    pa.field("row_count", pa.int64()),
    pa.field("term", pa.binary()),
]


class SnapshotSummary(msgspec.Struct, frozen=True):
    """Summary of a snapshot: what was made and proved.

    Attributes:
        place: The Delta table.
        manifest: Of the snapshot.
        base_revision: Of the lake's snapshot that the fold began with; 0 = with the log's first record.
        entries_verified: Entries that were linked.
        checkpoint_revision: Revision of the leaders' newest checkpoint that was compared; None if there was none.
        checkpoints_compared: How many there were.
        seconds: All in all.

    """

    place: str
    manifest: SnapshotManifest
    base_revision: int
    entries_verified: int
    checkpoint_revision: int | None
    checkpoints_compared: int
    seconds: float


def snapshot_log(
    spark: SparkSession,
    log: str,
    lake: str,
    *,
    revision: int | None = None,
    at_checkpoint: bool = False,
    source: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> SnapshotSummary:
    """Fold the log, check it, and write the state to the lake.

    Args:
        spark: Session.
        log: Name of the log.
        lake: Folder or URI of the lake, see `rsm_spark.snapshots.lake.lake_place`.
        revision: Take the state right after this record, or after the last entry that ends before it; None = the
            newest.
        at_checkpoint: Take the state of the newest checkpoint up to there: it can be verified against that.
        source: Further options of the source.
        storage_options: For `deltalake`.

    Raises:
        MissingLogError: The beginning of the log has been trimmed, and no snapshot of the lake takes its place.
        LogError: The log does not reach so far, or has no checkpoint.
        CorruptLogError, ForkedLogError: The log is not one unbroken history.
        SnapshotError: The fold contradicts a checkpoint, or the lake cannot be written.

    """
    began = time.monotonic()
    options = {**(source or {}), "log": log}
    access, look = look_at(options)
    try:
        snapshots = lake_of(lake, log, storage_options, access)
        assert snapshots is not None, "a lake is named"
        if at_checkpoint:
            found = newest_checkpoint(look.look(), access, revision)
            if found is None:
                raise LogError(f"log {log}: no leader has logged a checkpoint yet, or it was trimmed")
            revision = found
        log_range = _log_range_at(look, log, revision, snapshots.manifests())
        place_of = _place(look, log_range)
    finally:
        access.close()
    frames = RangeFrames(spark, log_range, options, snapshots, storage_options)
    made = _make(frames, place_of, snapshots, dict(storage_options or {}))
    return msgspec.structs.replace(made, seconds=round(time.monotonic() - began, 3))


def _log_range_at(look: LogLook, log: str, revision: int | None, manifests: Sequence[SnapshotManifest]) -> LogRange:
    """Return what is to be read; states exist only at the end of entries."""
    point = AsOf() if revision is None else AsOf(AsOfKind.REVISION, revision=revision)
    log_range = _whole_or_based(look, log, point, manifests)
    if log_range.is_read and look.head_at(*log_range.last).last_revision > log_range.revision:
        before = decode_envelope(look.payload_at(*log_range.last)).first_revision - 1
        log_range = _whole_or_based(look, log, AsOf(AsOfKind.REVISION, revision=before), manifests)
    if log_range.revision < 1:
        raise LogError(f"log {log}: there is no record {revision} to take a snapshot at")
    return log_range


def _whole_or_based(look: LogLook, log: str, point: AsOf, manifests: Sequence[SnapshotManifest]) -> LogRange:
    try:
        return find_range(look, log, point, [])
    except MissingLogError:
        return find_range(look, log, point, manifests)


class _Place(msgspec.Struct, frozen=True):
    """Entry after which the snapshot is taken."""

    ledger_id: int
    entry_id: int
    leader_epoch: int
    logged_ms: int


def _place(look: LogLook, log_range: LogRange) -> _Place:
    if not log_range.is_read:
        base = log_range.base
        assert base is not None, "a state of some revision comes from somewhere"
        return _Place(base.ledger_id, base.entry_id, base.leader_epoch, base.logged_ms)
    envelope = decode_envelope(look.payload_at(*log_range.last))
    return _Place(*log_range.last, envelope.leader_epoch, envelope.logged_ms)


def _make(
    frames: RangeFrames, at: _Place, snapshots: LakeSnapshots, storage_options: dict[str, str]
) -> SnapshotSummary:
    log_range, place = frames.log_range, snapshots.place
    steps = frames.steps(is_summed=False).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        linked, checkpoints = _linked(steps, log_range)
        points = sorted({*(revision for revision, _ in checkpoints), log_range.revision})
        sums = frames.sums_of_steps(steps, points, is_summed=False)
        _compare(checkpoints, sums, log_range)
        manifest = _manifest(log_range, at, linked, sums.at(log_range.revision))
        rows = frames.rows_of_steps(steps)
        kept = snapshots.write_files(manifest, lambda: _write_files(rows, manifest, place, storage_options))
    finally:
        steps.unpersist()
    newest = checkpoints[-1][0] if checkpoints else None
    base = 0 if log_range.base is None else log_range.base.revision
    return SnapshotSummary(place, kept, base, linked.entry_count, newest, len(checkpoints), 0.0)


def _linked(steps: DataFrame, log_range: LogRange) -> tuple[LinkEnd, list[tuple[int, RowSum]]]:
    others = steps.where(F.col("kind") != BLOCK).collect()
    runs = [msgpack_decoder(Run).decode(bytes(row.row)) for row in others if row.kind == RUN]
    end = link_runs(runs, log_range.ledger_ids, log_range.before, log_range.first_revision, log_range.last)
    checkpoints = [
        (row.revision, RowSum(bytes(row.key).hex(), row.row_count))
        for row in others
        if row.kind == CHECKPOINT and row.revision >= max(1, log_range.first_revision - 1)
    ]
    return end, sorted(checkpoints)


def _compare(checkpoints: list[tuple[int, RowSum]], sums: StateSums, log_range: LogRange) -> None:
    for revision, said in checkpoints:
        found = sums.at(revision)
        if found != said:
            raise SnapshotError(
                f"log {log_range.log}: at revision {revision} its leader logged digest {said.digest}, {said.row_count} "
                f"rows; folding the log gives {found.digest}, {found.row_count} rows: one of the two is wrong, no "
                f"snapshot was written. jobs/verify.py --log {log_range.log} finds the record"
            )
    base = log_range.base
    if base is not None and not log_range.is_read and sums.at(base.revision) != (base.digest, base.row_count):
        raise SnapshotError(f"log {log_range.log}: the lake's snapshot of revision {base.revision} is damaged")


def _manifest(log_range: LogRange, at: _Place, linked: LinkEnd, total: RowSum) -> SnapshotManifest:
    return SnapshotManifest(
        log_name=log_range.log,
        log_id=log_range.log_id.hex(),
        revision=log_range.revision,
        ledger_id=at.ledger_id,
        entry_id=at.entry_id,
        prefix_hash=linked.prefix_hash.hex(),
        digest=total.digest,
        row_count=total.row_count,
        leader_epoch=at.leader_epoch,
        logged_ms=at.logged_ms,
        created_ms=time.time_ns() // 1_000_000,
        machine=log_range.machine,
        written_by=WRITER,
    )


def _write_files(
    rows: DataFrame, manifest: SnapshotManifest, place: str, storage_options: dict[str, str]
) -> list[LakeFile]:
    write = partial(_write_part, place=place, storage_options=storage_options)
    written = rows.mapInArrow(write, _WRITTEN_DDL).collect()
    digest = digest_bytes(sum(int.from_bytes(row.term, "big") for row in written) % DIGEST_MODULUS).hex()
    count = sum(row.row_count for row in written)
    if (digest, count) != (manifest.digest, manifest.row_count):
        raise SnapshotError(
            f"{place}: the files that were written come to digest {digest}, {count} rows; the state has "
            f"{manifest.digest}, {manifest.row_count} rows: nothing was added to the table"
        )
    files = [LakeFile(row.file_name, row.file_bytes, row.row_count) for row in written]
    return sorted(files, key=lambda file: file.name)


def _write_part(
    batches: Iterable[pa.RecordBatch], place: str, storage_options: dict[str, str]
) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task to files of the table (in a task)."""
    summing = _Summing(batches)
    while not summing.is_over:
        file = write_lake_file(place, summing.of_file(), storage_options)
        if file is not None:
            row = {"file_name": file.name, "file_bytes": file.bytes, "row_count": file.rows, "term": summing.term()}
            yield pa.RecordBatch.from_pylist([row], schema=pa.schema(_WRITTEN_FIELDS))


class _Summing:
    """Rows on their way into files, and what they add to the digest."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._prefixes: dict[str, bytes] = {}
        self._term = 0
        self.is_over = False

    def of_file(self) -> Iterator[pa.RecordBatch]:
        count = 0
        while count < _FILE_ROWS_MAX:
            batch = next(self._batches, None)
            if batch is None:
                self.is_over = True
                return
            rows = batch.select(ROW_SCHEMA.names)
            columns = (rows.column(name).to_pylist() for name in ("table_name", "key", "row"))
            for table, key, row in zip(*columns, strict=True):
                prefix = self._prefixes.get(table) or self._prefixes.setdefault(table, table_prefix(table))
                self._term += row_term(prefix, key, row)
            count += rows.num_rows
            if rows.num_rows:
                yield rows

    def term(self) -> bytes:
        """Return what the rows since the last call add."""
        term, self._term = self._term, 0
        return digest_bytes(term % DIGEST_MODULUS)

"""Follower tables that begin with a snapshot in the lake, where the log's own beginning was trimmed.

The snapshot is read once and checked against its manifest before any table is made; its rows wait in files of their
own, table by table. The first commit of a table then holds its rows, their digest and the snapshot's position.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from connectors.delta.columns import Column, FollowedTable
from connectors.delta.follower import FollowerTable
from connectors.delta.packing import PackedRows
from connectors.delta.position import TablePosition
from connectors.errors import DeltaSinkError
from connectors.source.lake_reader import lake_table
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, table_prefix
from rsm_spark.core.machine import Row, TableDescription
from rsm_spark.errors import CorruptSnapshotError
from rsm_spark.snapshots.columns import ROW_SCHEMA
from rsm_spark.snapshots.lake import LakeSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest

_LOGGER = logging.getLogger(__name__)
_BATCH_ROWS = 16_384
_WIDTH_16 = 0xDC  # msgpack: an array with two bytes of length


class _TableRows:
    """Rows of one table, on their way through a file."""

    def __init__(self, path: Path, follower: FollowerTable) -> None:
        self.path = path
        self.follower = follower
        self._prefix = table_prefix(follower.name)
        self._file: BinaryIO = path.open("wb")
        self._writer = pa.ipc.new_stream(self._file, ROW_SCHEMA)
        self._held: list[Row] = []
        self.total = 0
        self.count = 0
        # First and last revision of rows with so many columns besides the key.
        self.revisions: dict[int, tuple[int, int]] = {}

    def add(self, row: Row) -> None:
        self._held.append(row)
        self.total += self.follower.mode.initial_term(self._prefix, row)
        self.count += 1
        width = _width(row.row)
        low, high = self.revisions.get(width, (row.revision, row.revision))
        self.revisions[width] = (min(low, row.revision), max(high, row.revision))
        if len(self._held) >= _BATCH_ROWS:
            self._write()

    def _write(self) -> None:
        columns = zip(*self._held, strict=True)
        arrays = [pa.array(column, type=field.type) for column, field in zip(columns, ROW_SCHEMA, strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA))
        self._held = []

    def finish(self) -> None:
        if self._held:
            self._write()
        self._writer.close()
        self._file.close()

    def batches(self, followed: FollowedTable, logged_us: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows as the Delta table begins with them."""
        with pa.OSFile(str(self.path), mode="rb") as file:
            for batch in pa.ipc.open_stream(file):
                columns: list[list[Any]] = [column.to_pylist() for column in batch.columns]
                _, keys, rows, revisions = columns
                yield self.follower.mode.initial(followed, PackedRows(keys, rows, revisions), logged_us)


def _width(row: bytes) -> int:
    """Return how many columns a packed row has."""
    return int.from_bytes(row[1:3], "big") if row[0] == _WIDTH_16 else row[0] & 0x0F


def _make_tables(store: LakeSnapshots, manifest: SnapshotManifest, followers: Sequence[FollowerTable]) -> None:
    """Make the tables of these followers, each in one commit; none if the rows are not what the manifest says."""
    with tempfile.TemporaryDirectory(prefix="rsm-snapshot-") as folder:
        found = {one.name: _TableRows(Path(folder) / str(number), one) for number, one in enumerate(followers)}
        try:
            for row in store.read(manifest):
                rows = found.get(row.table)
                if rows is not None:
                    rows.add(row)
        finally:
            for rows in found.values():
                rows.finish()
        for rows in found.values():
            _make_one(rows, manifest)


def _make_one(rows: _TableRows, manifest: SnapshotManifest) -> None:
    follower = rows.follower
    described = next((one for one in manifest.machine.tables if one.name == follower.name), follower.table)
    followed = _followed(described, rows.revisions, manifest.revision)
    position: TablePosition = msgspec.structs.replace(
        follower.empty_position(),
        revision=manifest.revision,
        ledger=manifest.ledger_id,
        entry=manifest.entry_id,
        prefix_hash=manifest.prefix_hash,
        digest=digest_bytes(rows.total % DIGEST_MODULUS).hex(),
        row_count=rows.count,
    )
    failure: list[DeltaSinkError] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from rows.batches(followed, manifest.logged_ms * 1000)
        except DeltaSinkError as error:  # The engine makes an error of its own of it.
            failure.append(error)
            raise

    reader = pa.RecordBatchReader.from_batches(follower.mode.schema(followed), batches())
    try:
        follower.begin(position, reader)
    except Exception as error:
        if failure:
            raise failure[0] from error
        raise
    said = "table %s begins with %d rows of the snapshot at %d"
    extra = {"table": follower.name, "revision": manifest.revision}
    _LOGGER.info(said, follower.name, rows.count, manifest.revision, extra=extra)


def _followed(table: TableDescription, revisions: Mapping[int, tuple[int, int]], revision: int) -> FollowedTable:
    """Return the columns of a table, and since when rows have them, as the rows of a snapshot tell it.

    Args:
        table: As described at the snapshot.
        revisions: First and last revision of rows, by how many columns they have.
        revision: Of the snapshot.

    """
    columns: list[Column] = []
    for number, field in enumerate(table.row):
        lacking = [high for width, (_, high) in revisions.items() if width <= number]
        having = [low for width, (low, _) in revisions.items() if width > number]
        since = min(having, default=revision + 1) if lacking else 0
        if max(lacking, default=0) >= since > 0:
            raise DeltaSinkError(
                f"table {table.name}: in the snapshot at revision {revision} rows of record {max(lacking)} lack column "
                f"{field.name}, which rows of record {since} have: it was not added, and a follower cannot begin here"
            )
        columns.append(Column(field, since))
    followed = FollowedTable(table.name, table.key, tuple(columns))
    followed.check()
    return followed


def begin_with_snapshot(
    followers: Sequence[FollowerTable],
    lake: str,
    *,
    first_revision: int,
    end_revision: int,
    continues: Callable[[SnapshotManifest], bool],
    former_names: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
) -> SnapshotManifest:
    """Make tables from the newest sound snapshot that the log goes on from; return its manifest.

    Args:
        followers: At least one, all of one log; their tables are not there, or are written over.
        lake: Where the snapshots of all logs lie.
        first_revision: First record that the log still has.
        end_revision: The record after its last one.
        continues: Whether the log has the history that a manifest names.
        former_names: Of the log: its snapshots may lie below one of them.
        storage_options: For `deltalake`.

    Raises:
        DeltaSinkError: There is no such snapshot, or its rows do not fit their description.

    """
    log, log_id = followers[0].at.log, followers[0].at.log_id
    store = LakeSnapshots(lake_table(lake, log), storage_options=storage_options)
    if former_names:
        store.follow(log_id, former_names)
    place = store.place
    known = [one for one in store.manifests() if one.log_id == log_id and not one.contradiction]
    for manifest in known:
        if not first_revision - 1 <= manifest.revision < end_revision:
            continue
        if not continues(manifest):
            extra = {"revision": manifest.revision}
            _LOGGER.warning(
                "the snapshot at revision %d is of another history: not used", manifest.revision, extra=extra
            )
            continue
        try:
            _make_tables(store, manifest, followers)
        except CorruptSnapshotError as error:
            said = "the snapshot at revision %d is damaged, not used: %s"
            _LOGGER.warning(said, manifest.revision, error, extra={"revision": manifest.revision})
            continue
        return manifest
    found = ", ".join(str(one.revision) for one in known) or "none"
    raise DeltaSinkError(
        f"log {log} begins with record {first_revision} now, those before were trimmed, and {place} has no sound "
        f"snapshot of this log at revision {first_revision - 1} to {end_revision - 1} (found: {found}): take one with "
        "jobs/snapshot.py or a replica's --lake, or name the lake that has it"
    )

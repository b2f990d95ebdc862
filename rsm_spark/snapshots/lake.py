"""Snapshots in the lake: one Delta table per log, one version of it per snapshot, written and read without a JVM.

A snapshot replaces the table's rows in one commit, whose metadata hold the manifest under `rsm_snapshot`: rows and
manifest appear together or not at all. Older snapshots are older versions of the table, read by time travel as long
as nobody has vacuumed their files; those are then found missing, reported as damaged and not used. Spark reads the
newest one as an ordinary table.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from rsm_spark.core.machine import Row
from rsm_spark.errors import CorruptSnapshotError, SnapshotError
from rsm_spark.snapshots.checks import RowCheck
from rsm_spark.snapshots.columns import ROW_GROUP_ROWS, ROW_SCHEMA, rows_of_batch
from rsm_spark.snapshots.delta_sync import sync_commit
from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotManifest, decode_manifest, encode_manifest

__all__ = ["MANIFEST_KEY", "LakeSnapshots", "lake_place"]

MANIFEST_KEY = "rsm_snapshot"
"""Key of the manifest in the commit metadata."""

_BATCH_BYTES = 16 * 1024 * 1024
_LOGGER = logging.getLogger(__name__)


def lake_place(lake: str, log_name: str) -> str:
    """Return where the snapshots of a log lie in a lake.

    Args:
        lake: Folder or URI that holds the snapshot tables of many logs.
        log_name: Of the log.

    """
    return f"{lake.rstrip('/')}/{log_name}"


class LakeSnapshots:
    """Snapshots of one log in one Delta table; implements `SnapshotStore`.

    Args:
        place: Path or URI of the Delta table, see `lake_place`.
        storage_options: For `deltalake`, for object stores.

    """

    def __init__(self, place: str, *, storage_options: Mapping[str, str] | None = None) -> None:
        self._place = place
        self._storage_options = dict(storage_options) if storage_options else None
        # Table versions that turned out wrong, by version.
        self._damaged: dict[int, SnapshotDamage] = {}
        self._protected: frozenset[int] = frozenset()

    def write(self, manifest: SnapshotManifest, rows: Iterable[Row]) -> SnapshotManifest:
        """Write a snapshot; see `SnapshotStore`. One that is there already is left as it is."""
        return self.write_batches(manifest, _batches_of(rows))

    def write_batches(self, manifest: SnapshotManifest, batches: Iterable[pa.RecordBatch]) -> SnapshotManifest:
        """Write a snapshot from Arrow batches in `columns.ROW_SCHEMA`.

        Raises:
            SnapshotError: It could not be written, the rows are not what the manifest says, or the table holds
                snapshots of another log.

        """
        whole = msgspec.structs.replace(manifest, files=())
        for _, known in self._versions():
            if known.log_id != manifest.log_id:
                raise SnapshotError(
                    f"{self._place}: this table holds snapshots of log {known.log_name} with id {known.log_id}, not of "
                    f"{manifest.log_name} with id {manifest.log_id}: choose another place"
                )
            if (known.revision, known.prefix_hash) == (manifest.revision, manifest.prefix_hash):
                return known
        # The check ends the stream with an error before Delta commits anything.
        failure: list[SnapshotError] = []
        reader = pa.RecordBatchReader.from_batches(ROW_SCHEMA, self._checked(whole, batches, failure))
        try:
            write_deltalake(
                self._place,
                reader,
                mode="overwrite",
                storage_options=self._storage_options,
                commit_properties=CommitProperties(
                    custom_metadata={
                        MANIFEST_KEY: encode_manifest(whole).decode(),
                        "userMetadata": f"log {whole.log_name} at revision {whole.revision}",
                    }
                ),
            )
            # Others may have committed on top: the newest version that holds this snapshot is the one just made.
            sync_commit(self._place, next(version for version, known in self._versions() if known == whole))
        except SnapshotError:
            raise
        except Exception as error:  # The engine wraps what a stream raises into errors of its own.
            if failure:
                raise failure[0] from error
            raise SnapshotError(
                f"{self._place}: snapshot at revision {whole.revision} cannot be written: {error}"
            ) from error
        return whole

    def _checked(
        self, manifest: SnapshotManifest, batches: Iterable[pa.RecordBatch], failure: list[SnapshotError]
    ) -> Iterator[pa.RecordBatch]:
        check = RowCheck()
        for batch in batches:
            for _ in check.passing(rows_of_batch(batch)):
                pass
            yield batch
        difference = check.difference(manifest)
        if difference is not None:
            failure.append(SnapshotError(f"{self._place}: the state to be written has {difference}"))
            raise failure[0]

    def manifests(self) -> list[SnapshotManifest]:
        """Return the snapshots, newest revision first; see `SnapshotStore`. Their rows are checked when read."""
        found = [manifest for version, manifest in self._versions() if version not in self._damaged]
        return sorted(found, key=lambda manifest: manifest.revision, reverse=True)

    def damaged(self) -> list[SnapshotDamage]:
        """Return what was found damaged so far."""
        return [self._damaged[version] for version in sorted(self._damaged, reverse=True)]

    def protect(self, revisions: frozenset[int]) -> None:
        """Keep the snapshots of these revisions when `prune` removes old ones."""
        self._protected = revisions

    def read(self, manifest: SnapshotManifest) -> Iterator[Row]:
        """Iterate over a snapshot's rows; see `SnapshotStore`. Holds a few batches at a time."""
        version = next((version for version, known in self._versions() if known == manifest), None)
        if version is None:
            raise CorruptSnapshotError(f"{self._place}: no version holds the snapshot at revision {manifest.revision}")
        check = RowCheck()
        try:
            yield from check.passing(self._rows(version))
            difference = check.difference(manifest)
        except (DeltaError, OSError, pa.ArrowException, ValueError) as error:
            difference = f"files that cannot be read: {error}"
        if difference is not None:
            damage = SnapshotDamage(f"{self._place} version {version}", f"has {difference}")
            self._damaged[version] = damage
            raise CorruptSnapshotError(f"{damage.place}: snapshot {damage.reason}")

    def _rows(self, version: int) -> Iterator[Row]:
        handle = DeltaTable(self._place, version=version, storage_options=self._storage_options)
        reader = pa.RecordBatchReader.from_stream(handle.scan(columns=ROW_SCHEMA.names))
        schema = pa.schema([field.with_nullable(nullable=True) for field in ROW_SCHEMA])
        for found in reader:
            for batch in pa.Table.from_batches([found]).select(ROW_SCHEMA.names).cast(schema).to_batches():
                yield from rows_of_batch(batch)

    def _versions(self) -> list[tuple[int, SnapshotManifest]]:
        """Return all snapshots with the table versions that hold them, newest version first.

        Raises:
            SnapshotError: The lake cannot be read.

        """
        try:
            history = DeltaTable(self._place, storage_options=self._storage_options).history()
        except TableNotFoundError:
            return []
        except (DeltaError, OSError) as error:
            raise SnapshotError(f"{self._place}: the snapshots in the lake cannot be listed: {error}") from error
        found: list[tuple[int, SnapshotManifest]] = []
        for commit in history:
            text = commit.get(MANIFEST_KEY)
            version = commit["version"]
            if text is None:
                continue  # Maintenance by others: the rows are those of the version before.
            place = f"{self._place} version {version}"
            try:
                found.append((version, decode_manifest(text.encode(), place=place)))
            except CorruptSnapshotError as error:
                if version not in self._damaged:
                    _LOGGER.warning("a snapshot in the lake will not be used: %s", error, extra={"place": place})
                self._damaged[version] = SnapshotDamage(place, str(error))
        return found


def _batches_of(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Turn rows into batches that are bounded by count and by bytes."""
    held: list[Row] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row.key) + len(row.row)
        if len(held) >= ROW_GROUP_ROWS or size >= _BATCH_BYTES:
            yield _batch_of(held)
            held, size = [], 0
    if held:
        yield _batch_of(held)


def _batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, ROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)

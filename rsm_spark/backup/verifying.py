"""Reads a backup from the first byte to the last, and says what it proves."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rsm_spark.backup.content_files import content_chunks
from rsm_spark.backup.history import BackupHistory
from rsm_spark.backup.manifest import BackupManifest, CorruptBackupError, snapshot_path
from rsm_spark.backup.place import BackupPlace
from rsm_spark.core.contents import CONTENTS_TABLE, content_of_row
from rsm_spark.core.machine import Row
from rsm_spark.core.seal import KeyRing
from rsm_spark.errors import SnapshotError
from rsm_spark.log.authorship import Authorship
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.snapshots.pace import no_pace

_GROUP_BYTES_MAX = 1 << 30
"""Of one row group, not compressed: what is written here has some tens of megabytes."""


def verify_backup(
    place: BackupPlace,
    manifest: BackupManifest,
    *,
    keys: KeyRing | None = None,
    public_keys: Mapping[str, bytes] | None = None,
) -> tuple[Authorship, list[int]]:
    """Check every file of a backup. Blocks; holds one entry and one row group at a time.

    Args:
        place: Where it lies.
        manifest: Of the backup.
        keys: Of the log: seals are checked.
        public_keys: Signed checkpoints are checked, by key id.

    Returns:
        What was proven; and the revisions of snapshots whose digest no checkpoint of the backup names.

    Raises:
        CorruptBackupError: It is not what it must be; nothing of it should be restored.
        BackupError: The place cannot be read.

    """
    history = BackupHistory(place, manifest, keys=keys, public_keys=public_keys)
    unnamed: list[int] = []
    for _ in history.entries(manifest.segments):
        pass
    for snapshot in manifest.snapshots:
        if history.check_snapshot(snapshot).checkpoint is None:
            unnamed.append(snapshot.revision)
        with copied_snapshot(place, manifest, snapshot) as (store, whole):
            if manifest.contents:
                _check_rows(manifest, store.read(whole))
    history.check_contents()
    for content in manifest.contents:
        if content.is_kept:
            for _ in content_chunks(place, manifest, content):
                pass
    if keys is not None and not history.is_sealed:
        raise CorruptBackupError(
            f"backup {manifest.folder}/backups/{manifest.name}: a key was given, but no entry has a seal: somebody has "
            "changed the backup, or the log had no key yet; then leave --log-key out"
        )
    return history.found, unnamed


def _check_rows(manifest: BackupManifest, rows: Iterator[Row]) -> None:
    """Check that the manifest has the contents that the rows of a snapshot name."""
    said = {one.number: one.content for one in manifest.contents}
    for row in rows:
        if row.table == CONTENTS_TABLE:
            number, content = content_of_row(row)
            if said.get(number) != content:
                raise CorruptBackupError(
                    f"backup {manifest.folder}/backups/{manifest.name}: a snapshot names content {number}, the "
                    "manifest does not, or another one: it was changed"
                )


@contextmanager
def copied_snapshot(
    place: BackupPlace, manifest: BackupManifest, snapshot: SnapshotManifest
) -> Iterator[tuple[LocalSnapshots, SnapshotManifest]]:
    """Copy a snapshot of a backup to a temporary folder, read it back, and remove it at the end.

    Raises:
        CorruptBackupError: Its files or its rows are not what its manifest says.

    """
    with tempfile.TemporaryDirectory(prefix="rsm-backup-") as folder:
        store = LocalSnapshots(Path(folder) / "snapshots", pace=lambda: no_pace)
        yield store, install_snapshot(place, manifest, snapshot, store, snapshot)


def install_snapshot(
    place: BackupPlace,
    manifest: BackupManifest,
    snapshot: SnapshotManifest,
    store: LocalSnapshots,
    wanted: SnapshotManifest,
) -> SnapshotManifest:
    """Copy a snapshot of a backup into a replica's folder, under the manifest that it is to have there.

    Args:
        place: Of the backup.
        manifest: Of the backup.
        snapshot: As the backup has it.
        store: The replica's snapshots.
        wanted: The same state, as the log calls it that is made of the backup.

    Raises:
        CorruptBackupError: Its files or its rows are not what its manifest says.
        SnapshotError: The disk fails.

    """
    shown = f"{place.shown}/{manifest.folder}: snapshot of revision {snapshot.revision}"
    incoming = store.receive(wanted)
    try:
        for file in snapshot.files:
            path = f"{manifest.folder}/{snapshot_path(snapshot, file.name)}"
            incoming.restart(file)
            for chunk in place.chunks(path, file.bytes, file.sha256):
                incoming.append(file, chunk)
            _check_groups(incoming.folder / file.name, shown)
        incoming.seal()
        store.check_arrived(incoming)
        return store.install(incoming)
    except (CorruptBackupError, OSError, pa.ArrowException, SnapshotError) as error:
        incoming.discard()
        if isinstance(error, CorruptBackupError):
            raise
        raise CorruptBackupError(f"{shown}: {error}") from error


def _check_groups(path: Path, shown: str) -> None:
    """Refuse a file that claims to unpack into more than a reader should hold."""
    with pq.ParquetFile(path) as parquet:
        for number in range(parquet.num_row_groups):
            size = parquet.metadata.row_group(number).total_byte_size
            if size > _GROUP_BYTES_MAX:
                raise CorruptBackupError(
                    f"{shown}: {path.name} claims a row group of {size:,} bytes: nobody wrote that"
                )


def lacking_keys(manifest: BackupManifest, keys: KeyRing | None) -> tuple[str, ...]:
    """Return the ids of the keys that a log of this backup needs, and that are not here."""
    return tuple(key_id for key_id in manifest.key_ids if keys is None or keys.get(key_id) is None)

"""A snapshot on its way from a peer to this replica's disk.

    <folder>/.incoming-00000000000000012345-1f3a9c02/map.parquet    as many bytes as have arrived

It becomes a snapshot as one that was written here does: every file whole, checked and on the disk, then the manifest,
then one rename. A crash before the rename leaves the arrived bytes, from which the next attempt goes on; nobody takes
them for a snapshot.
"""

from __future__ import annotations

from pathlib import Path

from rsm_spark.errors import CorruptSnapshotError, SnapshotError
from rsm_spark.snapshots.checks import MANIFEST_NAME, check_file, snapshot_name
from rsm_spark.snapshots.disk import SnapshotDisk
from rsm_spark.snapshots.manifest import SnapshotFile, SnapshotManifest, encode_manifest

INCOMING = ".incoming-"
"""Begin of the folder names."""


class IncomingSnapshot:
    """Files of one snapshot as they arrive. All calls block.

    Args:
        folder: Of all snapshots.
        manifest: As the peer listed it.
        disk: The file system.

    Attributes:
        folder: Of this one.
        manifest: What is to arrive.

    Raises:
        SnapshotError: The folder cannot be made.
        CorruptSnapshotError: The manifest names a file outside its folder.

    """

    def __init__(self, folder: Path, manifest: SnapshotManifest, disk: SnapshotDisk) -> None:
        self.manifest = manifest
        self.folder = folder / f"{INCOMING}{snapshot_name(manifest)}"
        self._disk = disk
        for described in manifest.files:
            if Path(described.name).name != described.name or described.name in {MANIFEST_NAME, "..", "."}:
                raise CorruptSnapshotError(f"{self.folder}: its manifest names the file {described.name!r}")
        try:
            if not self.folder.is_dir():
                disk.make_folder(self.folder)
        except OSError as error:
            raise SnapshotError(f"{self.folder}: cannot be made: {error}") from error

    def arrived(self, file: SnapshotFile) -> int:
        """Return how many bytes of a file are here."""
        path = self.folder / file.name
        size = path.stat().st_size if path.exists() else 0
        if size > file.bytes:  # Never appended by us beyond its size: of another snapshot.
            self.restart(file)
            return 0
        return size

    def append(self, file: SnapshotFile, chunk: bytes) -> None:
        """Add the next bytes of a file.

        Raises:
            CorruptSnapshotError: They are more than its manifest says.
            SnapshotError: The disk refuses them.

        """
        path = self.folder / file.name
        try:
            with self._disk.append(path) as opened:
                if opened.tell() + len(chunk) > file.bytes:
                    raise CorruptSnapshotError(f"{path}: more arrives than the {file.bytes} bytes of its manifest")
                opened.write(chunk)
        except OSError as error:
            raise SnapshotError(f"{path}: cannot be written: {error}") from error

    def restart(self, file: SnapshotFile) -> None:
        """Forget what has arrived of a file."""
        (self.folder / file.name).unlink(missing_ok=True)

    def seal(self) -> None:
        """Check every file, bring all to the disk, add the manifest.

        Raises:
            CorruptSnapshotError: A file is not what the manifest says; it is forgotten.
            SnapshotError: The disk fails.

        """
        try:
            for file in self.manifest.files:
                try:
                    check_file(self.folder, file)
                except CorruptSnapshotError:
                    self.restart(file)
                    raise
                with self._disk.append(self.folder / file.name) as opened:
                    self._disk.sync_file(opened)
            path = self.folder / MANIFEST_NAME
            path.unlink(missing_ok=True)
            with self._disk.create(path) as opened:
                opened.write(encode_manifest(self.manifest))
                self._disk.sync_file(opened)
            self._disk.sync_folder(self.folder)
        except OSError as error:
            raise SnapshotError(f"{self.folder}: the snapshot that arrived cannot be kept: {error}") from error

    def discard(self) -> None:
        """Forget all of it."""
        if self.folder.is_dir():
            self._disk.remove_folder(self.folder)

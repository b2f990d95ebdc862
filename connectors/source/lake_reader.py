"""The snapshots of one log in the lake, as a query reads them (`snapshot_phase.LakePort`). Driver only."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.source.snapshot_phase import SnapshotPart
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.lake_files import files_of_version, groups_of_file
from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotManifest


class LakeReader:
    """Reads what others write; it protects and removes nothing.

    Args:
        lake: Folder or URI that holds the snapshot tables of many logs.
        log: Name of the log.
        storage_options: For `deltalake`.

    """

    def __init__(self, lake: str, log: str, storage_options: Mapping[str, str]) -> None:
        self.place = lake_place(lake, log)
        self._storage_options = dict(storage_options)
        self._store = LakeSnapshots(self.place, storage_options=storage_options)

    def snapshots(self) -> list[tuple[int, SnapshotManifest]]:
        """Return those that are whole, with the table versions that hold them, newest revision first."""
        return self._store.whole_versions()

    def damaged(self) -> list[SnapshotDamage]:
        """Return what was found damaged."""
        return self._store.damaged()

    def scrub(self, manifest: SnapshotManifest) -> SnapshotDamage | None:
        """Read every row and compare what they come to with the manifest; return the damage, if there is any."""
        return self._store.scrub(manifest)

    def parts(self, version: int) -> list[SnapshotPart]:
        """Return the row groups of a version, in the order of files and groups."""
        return [
            SnapshotPart(file.name, place, group.rows, group.bytes)
            for file in files_of_version(self.place, version, self._storage_options)
            for place, group in enumerate(groups_of_file(self.place, file, self._storage_options))
        ]

"""The snapshots of one log in the lake, as a query reads them (`snapshot_phase.LakePort`). Driver only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectors.errors import OptionError
from connectors.source.snapshot_phase import SnapshotPart
from ledger.errors import UsageError
from rsm_spark.object_stores.storage_options import checked_uri
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.lake_files import files_of_version, groups_of_file
from rsm_spark.snapshots.manifest import SnapshotDamage, SnapshotManifest


def lake_table(lake: str, log: str) -> str:
    """Return where the snapshots of a log lie in a lake, by its name.

    Raises:
        OptionError: The lake's address holds a secret.

    """
    try:
        return lake_place(checked_uri(lake), log)
    except UsageError as error:
        raise OptionError(f"option lake: {error}") from None


class LakeReader:
    """Reads what others write; it protects and removes nothing.

    Args:
        lake: Folder or URI that holds the snapshot tables of many logs.
        log: Name of the log.
        storage_options: For `deltalake`.
        log_id: Of the log, 32 hex digits; only for its former names.
        former_names: Below which its snapshots may lie, too.

    """

    def __init__(
        self,
        lake: str,
        log: str,
        storage_options: Mapping[str, str],
        log_id: str = "",
        former_names: Sequence[str] = (),
    ) -> None:
        self._storage_options = dict(storage_options)
        self._store = LakeSnapshots(lake_table(lake, log), storage_options=storage_options)
        if former_names:
            self._store.follow(log_id, former_names)

    @property
    def place(self) -> str:
        """Path or URI of the table."""
        return self._store.place

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

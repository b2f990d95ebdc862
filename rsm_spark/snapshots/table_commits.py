"""The commits of a Delta table wherever it lies: on this machine, in S3, in another object store."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from rsm_spark.errors import SnapshotError
from rsm_spark.object_stores.complaints import complaint_of
from rsm_spark.object_stores.storage_options import is_s3, shown_uri
from rsm_spark.snapshots.delta_log import Commit, CommitLog, set_torn_commit_aside
from rsm_spark.snapshots.delta_sync import local_folder
from rsm_spark.snapshots.lake_files import remove_lake_files

if TYPE_CHECKING:
    # Loaded when a table in S3 is looked at: boto3 only where it is used.
    from rsm_spark.snapshots.store_commits import StoreCommitLog

_LOGGER = logging.getLogger(__name__)


class TableCommits:
    """Commits of one table, and what can be done to all that lies there.

    Args:
        place: Path or URI of the table.
        storage_options: For `deltalake`.

    Attributes:
        place: The same.
        shown: The same without a secret.
        folder: The table's on this machine; None = it lies in a store.

    """

    def __init__(self, place: str, storage_options: Mapping[str, str] | None) -> None:
        self.place = place
        self.shown = shown_uri(place)
        self.folder: Path | None = local_folder(place)
        self._storage_options = dict(storage_options) if storage_options else None
        self._commit_log = None if self.folder is None else CommitLog(self.folder)
        self._store_log: StoreCommitLog | None = None
        # Of a store other than S3: newest version, limit, and the commits found then; each would be a request.
        self._listed: tuple[int, int | None, list[Commit]] | None = None

    def newest(self, limit: int | None) -> list[Commit]:
        """Return the newest commits, newest first; none if there is no table.

        Raises:
            SnapshotError: They cannot be listed.

        """
        try:
            if self._commit_log is not None:
                return self._commit_log.commits(limit)
            if (store_log := self._in_s3()) is not None:
                return store_log.commits(limit)
            table = DeltaTable(self.place, storage_options=self._storage_options)
            if self._listed is None or self._listed[:2] != (table.version(), limit):
                found = [Commit(commit["version"], commit) for commit in table.history(limit)]
                self._listed = (table.version(), limit, found)
            return self._listed[2]
        except TableNotFoundError:
            return []
        except (DeltaError, OSError) as error:
            raise SnapshotError(
                f"{self.shown}: the snapshots in the lake cannot be listed: {self.said(error)}"
            ) from None

    def set_torn_aside(self) -> None:
        """Have the table written again although its newest commit was torn by a power failure.

        Raises:
            OSError: The folder cannot be changed.

        """
        if self.folder is not None and (aside := set_torn_commit_aside(self.folder)) is not None:
            _LOGGER.warning("the newest commit was torn; it is now %s", aside, extra={"place": self.shown})

    def sweep(self, age_s: float) -> None:
        """End uploads of writers that were killed so long ago; a failure only leaves them."""
        try:
            if (store_log := self._in_s3()) is not None and (count := store_log.sweep(age_s)):
                _LOGGER.info("%d uploads of killed writers were ended", count, extra={"place": self.shown})
        except OSError as error:
            _LOGGER.warning(
                "uploads of killed writers cannot be ended: %s; or have the store end them by itself after some days",
                self.said(error),
                extra={"place": self.shown},
            )

    def remove(self) -> None:
        """Remove the table, and all that lies there.

        Raises:
            SnapshotError: It cannot be removed.

        """
        try:
            if self.folder is not None:
                shutil.rmtree(self.folder)
            elif (store_log := self._in_s3()) is not None:
                store_log.remove()
            else:
                remove_lake_files(self.place, self._storage_options)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise SnapshotError(f"{self.shown}: it cannot be removed: {self.said(error)}") from None

    def said(self, error: BaseException) -> str:
        """Return what is said of an error: of a store in one line without secrets, of a disk as it is."""
        return str(error) if self.folder is not None else complaint_of(error, self._storage_options)

    def _in_s3(self) -> StoreCommitLog | None:
        if self._store_log is None and is_s3(self.place):
            from rsm_spark.snapshots.store_commits import StoreCommitLog  # noqa: PLC0415 - boto3 only where it is used

            self._store_log = StoreCommitLog(self.place, self._storage_options)
        return self._store_log

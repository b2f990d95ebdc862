"""Upkeep of follower tables by the process that writes them, between two ranges of records.

Its commits carry the table's position but not the transaction: rows and position stay what they were, and clearing old
commits away never takes the last one that names the position. A conflict only puts it off.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from deltalake.exceptions import DeltaError

from connectors.delta.follower import FollowerTable
from rsm_spark.snapshots.delta_sync import sync_commit

__all__ = ["TableUpkeep", "UpkeepDone"]

_LOGGER = logging.getLogger(__name__)
_FULL_VACUUM_HOURS_MIN = 1


class UpkeepDone(NamedTuple):
    """What was done to one table.

    Attributes:
        files_merged: Small files that became fewer large ones.
        files_removed: Files that no version younger than the retention needs.

    """

    files_merged: int
    files_removed: int


class TableUpkeep:
    """Merges small files every so many commits, and removes old ones.

    Args:
        optimize_every: Commits of a table after which its files are merged; 0 = never.
        vacuum_retain_hours: Afterwards files are removed that no version of the last so many hours needs; None = never.

    """

    def __init__(self, *, optimize_every: int, vacuum_retain_hours: int | None) -> None:
        self._every = optimize_every
        self._retain_hours = vacuum_retain_hours
        # By table: its commits when it was last looked after.
        self._seen: dict[str, int] = {}

    def after(self, follower: FollowerTable) -> UpkeepDone | None:
        """Look after a table if it is time; None if it is not, or somebody else committed in between."""
        if not self._every or follower.commit_count - self._seen.get(follower.name, 0) < self._every:
            return None
        try:
            done = self._look_after(follower)
        except (DeltaError, OSError) as error:
            _LOGGER.warning("upkeep of %s is put off: %s", follower.place, error)
            return None
        self._seen[follower.name] = follower.commit_count
        return done

    def _look_after(self, follower: FollowerTable) -> UpkeepDone | None:
        loaded = follower.at.load()
        if loaded is None or loaded.position is None:
            return None
        handle, properties = loaded.handle, follower.at.properties(loaded.position, moves=False)
        before = handle.version()
        merged = int(handle.optimize.compact(commit_properties=properties)["numFilesRemoved"])
        if handle.version() > before:
            sync_commit(follower.place, handle.version())
        removed = 0
        if self._retain_hours is not None:
            files = handle.vacuum(
                self._retain_hours,
                dry_run=False,
                enforce_retention_duration=False,
                commit_properties=properties,
                # Files that no commit names may be those of a writer that is about to commit: only old ones go.
                full=self._retain_hours >= _FULL_VACUUM_HOURS_MIN,
            )
            removed = len(files)
        return UpkeepDone(merged, removed)

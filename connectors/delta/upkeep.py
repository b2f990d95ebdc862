"""Upkeep of tables that follow a log by the process that writes them, between two ranges of records.

Its commits carry the table's position but not the transaction: rows and position stay what they were, and clearing old
commits away never takes the last one that names the position. A conflict only puts it off.
"""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol

from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError

from connectors.error_text import spoken_error
from rsm_spark.snapshots.delta_sync import sync_commit

_LOGGER = logging.getLogger(__name__)
_FULL_VACUUM_HOURS_MIN = 1


class UpkeepDone(NamedTuple):
    """Upkeep that was done on one table.

    Attributes:
        files_merged: Small files that became fewer large ones.
        files_removed: Files that no version younger than the retention needs.

    """

    files_merged: int
    files_removed: int


class UpkeptTable(Protocol):
    """A table that follows a log.

    Attributes:
        commit_count: Commits of its present writer.

    """

    commit_count: int

    @property
    def place(self) -> str:
        """Path or URI."""
        ...

    def upkept(self) -> tuple[DeltaTable, CommitProperties] | None:
        """Return the table and what a commit of its maintenance carries; None if nobody knows where it stands."""
        ...


class TableUpkeep:
    """Merges small files every so many commits, and removes old ones.

    Args:
        optimize_every: Commits of a table after which its files are merged; 0 = never.
        vacuum_retain_hours: Afterwards files are removed that no version of the last so many hours needs; None = never.

    """

    def __init__(self, *, optimize_every: int, vacuum_retain_hours: int | None) -> None:
        self._every = optimize_every
        self._retain_hours = vacuum_retain_hours
        # By place of the table: its commits when it was last looked after.
        self._seen: dict[str, int] = {}

    def after(self, table: UpkeptTable) -> UpkeepDone | None:
        """Look after a table if it is time; None if it is not, or somebody else committed in between."""
        if not self._every or table.commit_count - self._seen.get(table.place, 0) < self._every:
            return None
        try:
            done = self._look_after(table)
        except (DeltaError, OSError) as error:
            said = spoken_error(error)
            _LOGGER.warning("upkeep of %s is put off: %s", table.place, said, extra={"place": table.place})
            return None
        self._seen[table.place] = table.commit_count
        return done

    def _look_after(self, table: UpkeptTable) -> UpkeepDone | None:
        found = table.upkept()
        if found is None:
            return None
        handle, properties = found
        before = handle.version()
        merged = int(handle.optimize.compact(commit_properties=properties)["numFilesRemoved"])
        if handle.version() > before:
            sync_commit(table.place, handle.version())
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

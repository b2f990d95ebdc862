"""Rows as they were before the last changes of a table, by the revision of the change; bounded by their bytes."""

from __future__ import annotations

from bisect import bisect_left

from rsm_spark.errors import MissingLogError
from rsm_spark.map.rows import MapEntry

RING_BYTES = 32 * 1024 * 1024
_ROW_BYTES = 100
"""Memory of a row beside its bytes, about."""


class RowRing:
    """See the module. Half of it is forgotten at once, so that to remember costs little.

    Args:
        bytes_max: Rows of about so many bytes are kept.

    """

    def __init__(self, bytes_max: int = RING_BYTES) -> None:
        self._half_max = bytes_max // 2
        self.clear(first=1)

    def clear(self, *, first: int = 0) -> None:
        """Begin anew.

        Args:
            first: All changes from this revision on will be noted; 0 = from the next one noted on.

        """
        self._first = first
        self._last = 0
        # Revisions, ascending, and what they replaced or removed: appended to, and looked through by bisection.
        self._early: tuple[list[int], list[MapEntry]] = ([], [])
        self._late: tuple[list[int], list[MapEntry]] = ([], [])
        self._late_first = first
        self._room = self._half_max

    def note(self, revision: int, before: MapEntry | None) -> None:
        """Note what the next change has replaced or removed; None = there was no such row."""
        self._last = revision
        if not self._first:
            self._first = self._late_first = revision
        if before is not None:
            revisions, rows = self._late
            revisions.append(revision)
            rows.append(before)
            self._room -= len(before.row) + _ROW_BYTES
            if self._room < 0:
                self._first, self._early = self._late_first, self._late
                self._late, self._late_first, self._room = ([], []), revision + 1, self._half_max

    def before(self, revision: int) -> MapEntry | None:
        """Return the row that a change has replaced or removed; None = there was none.

        Raises:
            MissingLogError: That change is forgotten, or was never noted; the error names the first one that is known.

        """
        if self._first and self._first <= revision <= self._last:
            revisions, rows = self._late if revision >= self._late_first else self._early
            at = bisect_left(revisions, revision)
            return rows[at] if at < len(revisions) and revisions[at] == revision else None
        is_early = self._first > revision
        known = f"from revision {self._first} on" if is_early else f"of no revision behind {revision} yet"
        raise MissingLogError(
            f"the old value of revision {revision} cannot be told: this replica remembers old values {known}",
            first_revision=revision,
            last_revision=self._first - 1 if is_early else revision,
        )

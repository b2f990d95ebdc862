"""Old rows for one watch: from the machine's memory where it goes back far enough, else from the past before it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Sequence

from rsm_spark.core.machine import Row
from rsm_spark.errors import MissingLogError
from rsm_spark.runtime.change_feed import FeedEntry
from rsm_spark.runtime.change_filter import ChangeFilter, TableChange
from rsm_spark.runtime.past_rows import PastRows
from rsm_spark.runtime.range_rows import RangeRows

RowBefore = Callable[[str, int], Row | None]
"""Returns the row of a table that the change of a revision has replaced, or None; raises `MissingLogError`."""


class OldRows:
    """See the module.

    Args:
        table: That is watched.
        row_before: Of the machine.
        past: Of the replica; None = what is not remembered is missing.
        every: Changes of all kinds in the range of the watch.
        owner: Whose watch it is.

    """

    def __init__(
        self, table: str, row_before: RowBefore, past: PastRows | None, every: ChangeFilter, owner: str = ""
    ) -> None:
        self._table = table
        self._row_before = row_before
        self._past = past
        self._every = every
        self._owner = owner
        self._rows: RangeRows | None = None

    async def told(self, entries: Sequence[FeedEntry], changes: list[TableChange]) -> AsyncIterator[list[TableChange]]:
        """Yield changes with what they have replaced, in parts whose old rows are some MiB.

        Args:
            entries: That follow those of before, whole.
            changes: Of them, those that are told.

        Raises:
            MissingLogError: Of one it is not known any more; its `last_revision` + 1 is the first of which it is.
            InvalidCommandError, ConnectionLostError, LogError: See `PastRows.open`.

        """
        remembered = self._all_remembered(changes)
        if remembered is not None:
            if remembered:
                self.close()
                yield remembered
            elif self._rows is None:
                return
        if remembered or self._past is None or not entries:
            return
        if self._rows is None:
            self._rows = await self._past.open(self._every, revision=entries[0].first_revision - 1, owner=self._owner)
        every = [change for entry in entries for change in self._every.take(entry, 0)]
        place = begin = 0
        while place < len(every):
            olds, place = await self._past.move(self._rows, every, place)
            end = len(changes)
            if place < len(every):
                end = bisect_left(changes, every[place].revision, lo=begin, key=lambda change: change.revision)
            part: list[TableChange] = []
            for change in changes[begin:end]:
                row, revision = olds.get(change.revision, (None, 0))
                part.append(change._replace(old_row=row, old_revision=revision))
            begin = end
            if part:
                yield part

    def _all_remembered(self, changes: list[TableChange]) -> list[TableChange] | None:
        """Return the changes with what the machine remembers; None = it does not remember all."""
        try:
            return [self._remembered(change) for change in changes]
        except MissingLogError:
            if self._past is None:
                raise
            return None

    def close(self) -> None:
        """End: the watch has ended, or goes on by the machine's memory."""
        if self._rows is not None and self._past is not None:
            self._past.close(self._rows, self._owner)
        self._rows = None

    def _remembered(self, change: TableChange) -> TableChange:
        old = self._row_before(self._table, change.revision)
        return change if old is None else change._replace(old_row=old.row, old_revision=old.revision)

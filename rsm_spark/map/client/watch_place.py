"""Place of a watch: what it has given, and from where another stream, or another process, goes on. Pure.

Changes count by the mod revision of their key: all of one command have the same, that of the command's last record. A
message may end within a command, and a stream may break there.

    given       record of the last change that was given         a stream that is taken up again repeats no change
    revision    last revision of which all changes were given    from behind it another process goes on: the command in
                                                                 hand comes again as a whole, never its rest alone
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from rsm_spark.map.records import PUT
from rsm_spark.map.rows import row_of
from rsm_spark.runtime.change_filter import TableChange
from rsm_spark.transport.watch_codec import ReceivedChanges


class WatchPlace:
    """See the module.

    Args:
        from_revision: First one wanted; 0 = what comes after the present of the replica that is asked first.
        types: Record types wanted, as replicas of version 0.1 send all; () = all.

    Attributes:
        revision: All changes that count by revisions up to here have been given, the one in hand included.
        begins_now: No replica has said yet where the watch begins.

    """

    def __init__(self, from_revision: int, types: Collection[int] = ()) -> None:
        self.revision = max(0, from_revision - 1)
        self.begins_now = from_revision == 0
        self._types = types
        self._given = 0
        self._open = 0

    def begin_behind(self, revision: int) -> None:
        """Say that all up to a revision need not be given."""
        self.begins_now, self.revision = False, revision

    @property
    def next_revision(self) -> int:
        """First revision to ask a replica for; 0 = its present."""
        return 0 if self.begins_now else self.revision + 1

    def take(self, received: ReceivedChanges) -> Iterator[tuple[TableChange, bool]]:
        """Give the changes of a message that are new, each with whether it is the last of its command.

        The place moves with each; it is to be iterated over to its end before the next message.
        """
        changes = [
            _counted(change)
            for change in received.changes
            if change.revision > self._given and (not self._types or change.type in self._types)
        ]
        for place, change in enumerate(changes, 1):
            counts_by = change.mod_revision
            is_last = received.up_to >= counts_by if place == len(changes) else changes[place].mod_revision > counts_by
            self._given = change.revision
            if is_last:
                self._open, self.revision = 0, max(self.revision, counts_by)
            else:
                self._open = counts_by
            yield change, is_last
        self.begins_now, self.revision = False, max(self.revision, received.up_to)
        if self.revision >= self._open:
            self._open = 0

    def settled(self, revision: int) -> int:
        """Return up to where all is processed if all that was given up to a revision is.

        Of a command in hand there may be more to come: it is not processed then.
        """
        return min(revision, self.revision) if revision <= self._open else revision


def _counted(change: TableChange) -> TableChange:
    """Return a change with its mod revision; a replica that does not tell it tells the row, which says it."""
    if change.mod_revision:
        return change
    said = row_of(change.row).mod_revision if change.type == PUT and change.row is not None else None
    return change._replace(mod_revision=said or change.revision)

"""Events of one watch with what their keys held before, also from before what the history of the map remembers.

    remembered    by the history of the map, in memory
    past          from the nearest snapshot and the log (`rsm_spark.runtime.past_rows`), as long as the watch is there
    gone          nothing that is left leads there: nothing is told of what was before, as etcd has it

A command is told with the lease and the row that its keys had before its first record.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple

import msgspec

from rsm_spark.core.records import Record
from rsm_spark.errors import MissingLogError
from rsm_spark.map.etcd.events import EventCache, KeyEvent, commands_of, events_of_command, shown_before
from rsm_spark.map.etcd.requests import Span, holds
from rsm_spark.map.etcd.view import KeyShown
from rsm_spark.map.key_history import OldKey
from rsm_spark.map.records import EXPIRIES_TABLE, MAP_DESCRIPTION, MAP_TABLE, said_revision
from rsm_spark.map.rows import entry_of, value_of
from rsm_spark.runtime.change_feed import FeedEntry
from rsm_spark.runtime.change_filter import ChangeFilter, TableChange
from rsm_spark.runtime.past_rows import PastRows
from rsm_spark.runtime.range_rows import OLDS_BYTES, RangeRows

_ROWS, _LEASES = 0, 1


class OldEvent(NamedTuple):
    """An event, and the key as it was before; None = it did not exist, or that is not known."""

    event: KeyEvent
    before: KeyShown | None


class PastKeys:
    """See the module.

    Args:
        cache: Of the replica.
        past: Of the replica; None = there is nothing but the history.
        span: Keys of the watch.
        owner: Whose watch it is.

    """

    def __init__(self, cache: EventCache, past: PastRows | None, span: Span, owner: str) -> None:
        self._cache = cache
        self._past = past
        self._span = span
        self._owner = owner
        self._filters = [
            ChangeFilter(MAP_DESCRIPTION, table, *span, (), said_revision) for table in (MAP_TABLE, EXPIRIES_TABLE)
        ]
        self._rows: RangeRows | None = None
        self._gone_up_to = 0

    async def told(self, entries: Sequence[FeedEntry]) -> AsyncIterator[list[OldEvent]]:
        """Yield the events of the watch's keys, whole commands at a time: some MiB of old rows, and one command more.

        Args:
            entries: That follow those of before.

        Raises:
            InvalidCommandError, ConnectionLostError, LogError: See `PastRows.open`; it waits for its turn.

        """
        events = [event for entry in entries for event in self._cache.of(entry) if holds(self._span, event.key)]
        if all(self._cache.remembers(event) for event in events):
            if events:
                self.close()
        elif self._rows is None:
            await self._open(entries[0].first_revision - 1)
        if self._rows is None or self._past is None:
            yield [OldEvent(event, self._cache.before(event)) for event in events]
            return
        rows, commands, place = self._rows, [one for entry in entries for one in self._commands(entry)], 0
        while place < len(commands):
            begin = place
            part, place = await self._past.run(lambda: self._part(rows, commands, begin))  # noqa: B023 - awaited
            yield part

    async def _open(self, revision: int) -> None:
        """Open the past, if there is one."""
        if self._past is None or revision < self._gone_up_to:
            return
        try:
            self._rows = await self._past.open(*self._filters, revision=revision, owner=self._owner, waits=True)
        except MissingLogError as error:
            self._gone_up_to = error.last_revision or revision + 1

    def _commands(self, entry: FeedEntry) -> Iterator[_Command]:
        rows, leases = (_Changes(one.take(entry, 0)) for one in self._filters)
        for records in commands_of(entry):
            last = records[-1][0]
            yield _Command(records, rows.up_to(last), leases.up_to(last))

    def _part(self, rows: RangeRows, commands: Sequence[_Command], place: int) -> tuple[list[OldEvent], int]:
        """Fold commands from a place on; return their events, and the next place."""
        part: list[OldEvent] = []
        room = OLDS_BYTES
        while place < len(commands) and room > 0:
            command = commands[place]
            place += 1
            olds: dict[tuple[int, bytes], OldKey] = {}
            for change in command.rows:
                lease = rows.row(_LEASES, change.key)
                old = rows.replace(_ROWS, change)
                number = 0 if lease is None else msgspec.msgpack.decode(lease[0])[0]
                # Of what a command writes twice the first counts.
                olds.setdefault(
                    (change.mod_revision, value_of(change.key)),
                    OldKey(None if old is None else entry_of(*old), number),
                )
                room -= 0 if old is None else len(old[0])
            for change in command.leases:
                rows.replace(_LEASES, change)
            part += [
                OldEvent(event, shown_before(event, lambda *key: olds.get(key)))  # noqa: B023 - called at once
                for event in events_of_command(command.records, lambda *key: olds.get(key))  # noqa: B023 - likewise
                if holds(self._span, event.key)
            ]
        return part, place

    def close(self) -> None:
        """End: the watch has ended, or goes on by the history."""
        if self._rows is not None and self._past is not None:
            self._past.close(self._rows, self._owner)
        self._rows = None


class _Command(NamedTuple):
    records: list[tuple[int, Record]]
    rows: list[TableChange]
    leases: list[TableChange]


class _Changes:
    """Changes of an entry, taken in order."""

    def __init__(self, changes: list[TableChange]) -> None:
        self._changes = changes
        self._next = 0

    def up_to(self, revision: int) -> list[TableChange]:
        """Return the next ones, those of records up to a revision."""
        begin = self._next
        while self._next < len(self._changes) and self._changes[self._next].revision <= revision:
            self._next += 1
        return self._changes[begin : self._next]

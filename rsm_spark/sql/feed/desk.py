"""Feeds of changes of one replica: from where they begin, what the tables were then, how many there are.

    begun      a slice without changes says where the feed begins
    told       as fast as its reader takes it: recent entries are shared by all feeds, older ones are read from the log
    ended      the log is held no more, the replica stops, or the reader has gone

A feed that waits for its reader holds some entries and one slice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any

import msgspec

from rsm_spark.errors import AccessDeniedError, ConnectionLostError, MissingLogError
from rsm_spark.runtime.change_feed import ChangeFeed, FeedEntry
from rsm_spark.runtime.change_filter import ChangeFilter
from rsm_spark.runtime.past_rows import PastRows
from rsm_spark.sql.feed.events import BEGINNING, NOW, SqlChange, SqlFeedRequest, SqlFeedSlice, check_feed_request
from rsm_spark.sql.feed.telling import ToldTables
from rsm_spark.sql.machine import SqlMachine
from rsm_spark.sql.records import CATALOG, DESCRIPTION, CatalogRow
from rsm_spark.sql.table_rights import TableRights

PROGRESS_S = 2.0
_PROGRESS_MS_MIN = 100
SLICE_BYTES = 256 * 1024
_CHANGE_BYTES = 100
_decode: Any = msgspec.msgpack.Decoder(tuple[Any, ...]).decode


class FeedDesk:
    """See the module. For one event loop.

    Args:
        feed: Of the replica's log.
        machine: Of the replica.
        past: Opens the catalog as it was before what the replica's file knows; None = that is missing.
        feeds_max: Feeds that are open; one owner has a quarter of them.

    Attributes:
        open_count: Feeds that are open.
        told_count: Changes that were told since the process began.

    """

    def __init__(self, feed: ChangeFeed, machine: SqlMachine, past: PastRows | None, feeds_max: int) -> None:
        self._feed = feed
        self._machine = machine
        self._past = past
        self._feeds_max = feeds_max
        self._of: Counter[str] = Counter()
        self.open_count = 0
        self.told_count = 0

    @contextlib.contextmanager
    def seat(self, owner: str) -> Iterator[None]:
        """Have a feed count for its owner while the block runs.

        Raises:
            ConnectionLostError: There are too many: another replica may have room.

        """
        own = self._of[owner]
        if own >= max(1, self._feeds_max // 4) or self.open_count >= self._feeds_max:
            raise ConnectionLostError(
                f"{self.open_count} feeds of changes are open on this replica, {own} of them of this caller: use "
                "another one, or come again later"
            )
        self._of[owner] += 1
        self.open_count += 1
        try:
            yield
        finally:
            self.open_count -= 1
            self._of[owner] -= 1
            if not self._of[owner]:
                del self._of[owner]

    async def slices(
        self, request: SqlFeedRequest, owner: str, rights: TableRights | None = None
    ) -> AsyncGenerator[SqlFeedSlice, None]:
        """Iterate over the slices of a feed; ends only with an error.

        Args:
            request: What is asked for.
            owner: Whose feed it is.
            rights: Tables that the owner has; None = all. Of others nothing is told.

        Raises:
            InvalidCommandError: The request is beyond its bounds.
            AccessDeniedError: It names a table that the owner may not read.
            ConnectionLostError: There are too many here, or this replica tells no more: another one does.
            MissingLogError: The log, or what the tables were, is not known any more; its `last_revision` + 1 is the
                first revision from which a feed can begin.
            LedgerError, MetadataError, LogError: The log cannot be read, or is damaged.

        """
        check_feed_request(request)
        denied = [name for name in request.tables if rights is not None and not rights.may_read(name)]
        if denied:
            raise AccessDeniedError(f"the caller has no right to read {denied[0]}: it is not told of its changes")
        with self.seat(owner):
            begin = await self._begin(request.begin)
            async with contextlib.aclosing(self._told(begin, request, owner, rights)) as slices:
                async for one in slices:
                    yield one

    async def _begin(self, begin: int) -> int:
        if begin == NOW:
            return self._feed.revision + 1
        if begin != BEGINNING:
            return begin
        chain, _ = await self._feed.context.chains.read()
        return chain.ledgers[0].first_revision if chain.ledgers else 1

    async def _told(
        self, begin: int, request: SqlFeedRequest, owner: str, rights: TableRights | None
    ) -> AsyncGenerator[SqlFeedSlice, None]:
        clock, feed = asyncio.get_running_loop().time, self._feed
        progress_s = max(request.progress_ms, _PROGRESS_MS_MIN) / 1000 if request.progress_ms else PROGRESS_S
        cursor, teller = feed.cursor(begin), None
        try:
            up_to = begin - 1
            entries = await cursor.read(0.0)  # Who begins at what was trimmed hears nothing else first.
            yield SqlFeedSlice((), up_to, is_partial=rights is not None and not request.tables)
            told_s = clock()
            while True:
                if feed.is_closed:
                    raise ConnectionLostError("this replica stops")
                for entry in entries:
                    if teller is None:
                        objects = await self._catalog_at(entry.first_revision - 1, owner)
                        teller = ToldTables(objects, request.tables, rights)
                    for one in _slices(teller, entry, begin):
                        self.told_count += len(one.changes)
                        yield one
                        up_to, told_s = one.up_to, clock()
                    await asyncio.sleep(0)  # Entries that are in memory are read without a pause.
                # A replica that hears nothing new keeps silent, so that its readers look for another one.
                if clock() >= told_s + progress_s:
                    now = max(up_to, cursor.next_revision - 1)
                    if now > up_to or feed.is_fresh:
                        up_to = now
                        yield SqlFeedSlice((), up_to)
                    told_s = clock()
                entries = await cursor.read(max(0.0, told_s + progress_s - clock()))
        finally:
            await cursor.close()

    async def _catalog_at(self, revision: int, owner: str) -> Mapping[str, CatalogRow]:
        if revision > self._machine.revision:
            raise ConnectionLostError("this replica is being built anew")
        known = self._machine.catalog_at(revision)
        if known is not None:
            return known
        if self._past is None:
            raise MissingLogError(
                f"what the tables were at revision {revision} is not known here",
                first_revision=revision + 1,
                last_revision=self._machine.revision,
            )
        rows = await self._past.open(ChangeFilter(DESCRIPTION, CATALOG), revision=revision, owner=owner)
        try:
            found = await self._past.run(rows.items)
        finally:
            self._past.close(rows, owner)
        return {_decode(key)[0]: CatalogRow(*_decode(row)) for key, row in found}


def _slices(teller: ToldTables, entry: FeedEntry, begin: int) -> Iterator[SqlFeedSlice]:
    """Iterate over slices of an entry."""
    held: list[SqlChange] = []
    size = 0
    for change in teller.tell(entry.records(), entry.first_revision, entry.logged_ms, begin):
        held.append(change)
        size += _size(change)
        if size >= SLICE_BYTES:
            yield SqlFeedSlice(tuple(held), change.revision)
            held, size = [], 0
    if held:
        yield SqlFeedSlice(tuple(held), entry.last_revision)


def _size(change: SqlChange) -> int:
    size = _CHANGE_BYTES + len(change.sql)
    for row in (change.key, change.new, change.old):
        for name, value in (row or {}).items():
            size += len(name) + (len(value) if isinstance(value, str | bytes) else 9)
    return size

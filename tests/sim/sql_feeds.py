"""Readers of the change feed of SQL tables, beside all that fails: each is told what the log says, once and in order.

* `fed-right`   a reader is told a change that the log has not at its place, or misses one
* `fed-copy`    a copy that is fed by all that was told does not hold what the replicas do

The desk, its feed, the past of the catalog and the client's stream are the real ones; a message may be late, and a
stream is cut at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from ledger.errors import LedgerError
from rsm_spark.core.envelope import Envelope
from rsm_spark.core.records import Record
from rsm_spark.errors import ConnectionLostError, MissingLogError, RsmError
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.runtime.past_rows import PastRows
from rsm_spark.runtime.replica import Replica
from rsm_spark.sql.client.changes import SqlChangeStream
from rsm_spark.sql.feed.desk import FeedDesk
from rsm_spark.sql.feed.events import SqlChange, SqlFeedRequest, SqlFeedSlice
from rsm_spark.sql.feed.telling import ToldTables
from rsm_spark.sql.machine import SqlMachine
from rsm_spark.testing.cluster import LOG, ReplicaCluster
from tests.unit.rsm_spark.sql.fed_copy import FedCopy

_WANTED = ((), ("done",), ("word", "other"))
_SILENT_S = 3.0
_WAITING_MAX = 3
_DIES = 0.03
"""Chance that a reader ends behind a change: another process goes on at the next revision."""


class SimFeeds:
    """The desk of each running replica, and readers.

    Args:
        cluster: The replicas; not started yet.
        rng: Chance.
        folder: For pasts of catalogs.
        stream: Class of the readers' streams; a test may plant a bug in it.

    """

    def __init__(
        self, cluster: ReplicaCluster, rng: random.Random, folder: Path, stream: type[SimChangeStream]
    ) -> None:
        self.cluster = cluster
        self.rng = rng
        self.desks: dict[str, FeedDesk] = {}
        self.pasts: list[PastRows] = []
        self.feeds: list[ChangeFeed] = []
        self._folder = folder
        self._ring_bytes = rng.choice((500, 5_000, 1 << 20))
        folder.mkdir()
        self.copy = FedCopy()
        self._copied = ToldTables({})
        self.readers = [FeedReader(self, wanted, stream, number) for number, wanted in enumerate(_WANTED)]
        cluster.listeners.append(self._on_made)
        cluster.ghosts.on_commit.append(self._on_commit)

    def _on_made(self, name: str, who: str, what: Any) -> None:
        if name == "made":
            assert isinstance(what, Replica)
            machine = what._context.machine
            assert isinstance(machine, SqlMachine)
            feed = ChangeFeed(what._context, ring_bytes=self._ring_bytes)
            past = PastRows.of(feed, self._folder / who)
            self.pasts.append(past)
            self.feeds.append(feed)
            self.desks[who] = FeedDesk(feed, machine, past, 16)
        elif name == "exit":
            self.desks.pop(who, None)

    def _on_commit(self, envelope: Envelope, records: list[Record]) -> None:
        for change in self._copied.tell(records, envelope.first_revision, envelope.logged_ms, 1):
            self.copy.take(change)
        for reader in self.readers:
            reader.commit(envelope, records)

    # What a stream asks its replicas for.
    security: Any = None
    trouble = ""

    async def pick(self, attempt: int) -> str | None:
        """Return one that may be up."""
        del attempt
        return self.rng.choice(self.cluster.hosts).name

    async def find_framed(self, address: str) -> str:
        return address


class SimChangeStream(SqlChangeStream):
    """The client's stream, over messages that are late, and connections that are cut."""

    feeds: SimFeeds

    async def _told(self, address: str, framed: str) -> AsyncGenerator[SqlFeedSlice, None]:
        assert framed == address
        cluster, rng = self.feeds.cluster, self.feeds.rng
        desk, host = self.feeds.desks.get(address), cluster.simulation.hosts[address]
        if desk is None or not host.is_up or address not in cluster.replicas:
            raise ConnectionLostError(address)
        wire = _Wire(rng)
        host.spawn(wire.serve(desk, self.asked()))
        try:
            for _ in range(int(rng.expovariate(0.1)) + 1):
                yield await wire.next()
        finally:
            wire.is_cut = True
        raise ConnectionLostError("the connection was cut")

    def asked(self) -> SqlFeedRequest:
        return msgspec.structs.replace(self._request, begin=self._begin)


class _Wire:
    """One connection: what the replica has sent, and who reads does not have yet."""

    def __init__(self, rng: random.Random) -> None:
        self.is_cut = False
        self._rng = rng
        self._sent: asyncio.Queue[SqlFeedSlice | Exception] = asyncio.Queue()

    async def serve(self, desk: FeedDesk, request: SqlFeedRequest) -> None:
        try:
            async with contextlib.aclosing(desk.slices(request, "reader")) as slices:
                await self._send(slices)
        except (RsmError, LedgerError) as error:
            self._sent.put_nowait(error)

    async def _send(self, slices: AsyncIterator[SqlFeedSlice]) -> None:
        async for one in slices:
            await asyncio.sleep(self._rng.uniform(0.0002, 0.02))
            self._sent.put_nowait(one)
            while self._sent.qsize() > _WAITING_MAX and not self.is_cut:
                await asyncio.sleep(0.05)
            if self.is_cut:
                return

    async def next(self) -> SqlFeedSlice:
        try:
            async with asyncio.timeout(_SILENT_S):
                found = await self._sent.get()
        except TimeoutError:
            raise ConnectionLostError("nothing comes") from None
        if isinstance(found, MissingLogError):
            raise found
        if isinstance(found, Exception):
            raise ConnectionLostError(str(found)) from None
        return found


class FeedReader:
    """Reads a feed, now and then as another process, and compares it with the log.

    Attributes:
        seen_count: Changes that it was told, and that the log has.
        skipped_count: Times that it heard that a revision has left the log.
        pause_s: How long it is away at most, in virtual seconds.

    """

    def __init__(self, feeds: SimFeeds, tables: tuple[str, ...], stream: type[SimChangeStream], number: int) -> None:
        self.seen_count = 0
        self.skipped_count = 0
        self._feeds = feeds
        self._tables = tables
        self._stream = stream
        self._name = f"reader {number}"
        self.pause_s = feeds.rng.choice((0.2, 0.2, 20.0))  # In the long one what it has not read may leave the log.
        self._teller = ToldTables({}, tables)
        self._true: list[SqlChange] = []
        self._at = 0  # Of these it was told so many.
        self._ahead: list[SqlChange] = []  # Who reads the log may be ahead of every replica.
        self._begin = 1

    @property
    def is_at_end(self) -> bool:
        """Whether it was told all that there is, and nothing else."""
        return not self._ahead and self._at == len(self._true)

    def commit(self, envelope: Envelope, records: list[Record]) -> None:
        """Take note of a confirmed entry."""
        self._true += self._teller.tell(records, envelope.first_revision, envelope.logged_ms, 1)
        while self._ahead and (self._at < len(self._true) or self._ahead[0].revision <= envelope.last_revision):
            self._compare(self._ahead.pop(0))

    async def run(self) -> None:
        """Read, until cancelled."""
        rng = self._feeds.rng
        while True:
            request = SqlFeedRequest(LOG, self._begin, self._tables)
            stream = self._stream(self._feeds, request, None)  # type: ignore[arg-type]
            stream.feeds = self._feeds
            try:
                async for change in stream:
                    if self._ahead or change.revision > self._feeds.cluster.ghosts.revision:
                        self._ahead.append(change)
                    else:
                        self._compare(change)
                    self._begin = change.revision + 1
                    if rng.random() < _DIES:
                        break
            except MissingLogError as error:
                self._skip((error.last_revision or 0) + 1)
            finally:
                await stream.aclose()
            await asyncio.sleep(rng.uniform(0.01, self.pause_s))

    def _compare(self, told: SqlChange) -> None:
        true = self._true[self._at] if self._at < len(self._true) else None
        if told != true:
            self._feeds.cluster.ghosts.fail("fed-right", f"{self._name} is told {told}, the log has {true}")
        self._at += 1
        self.seen_count += 1

    def _skip(self, first: int) -> None:
        if first <= self._begin:
            self._feeds.cluster.ghosts.fail("fed-right", f"{self._name} at {self._begin} is sent back to {first}")
        self._begin = first
        self.skipped_count += 1
        while self._at < len(self._true) and self._true[self._at].revision < first:
            self._at += 1

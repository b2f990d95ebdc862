"""The records of a log from any retained revision on, for any number of readers of one replica.

    recent   in a ring of entries, bounded by bytes: what this replica has applied and knows to be confirmed
    older    read from the ledgers, by the reader that needs it

1. Only confirmed entries are given, each once to each reader, in order, without a gap.
2. A slow reader holds no memory: what has left the ring it reads from the log. At most `LOG_READERS_MAX` do so at once,
   the others wait for their turn.
3. A replica that is built anew sees entries again: the feed does not. One that jumps ahead, by a snapshot, leaves a gap
   in the ring, and readers read it from the log.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left

from rsm_spark.core.envelope import Envelope, body_of, decode_envelope
from rsm_spark.core.records import Record, decode_records
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.log_places import reader_at
from rsm_spark.runtime.replica import Replica

RING_BYTES = 32 * 1024 * 1024
LOG_READERS_MAX = 8
FRESH_S = 5.0
"""A leader writes an entry at least every half second: a replica that hears none for so long is cut off."""
_DECODED_ENTRIES = 32
_COMPACT_AT = 1024
_LEFT_PART = 8
"""Entries that have left the ring hold this part of its bytes at most."""
_READ_ENTRIES = 8
_READ_BYTES = 4 * 1024 * 1024


class FeedEntry:
    """One confirmed entry that has records.

    Attributes:
        first_revision: Of its first record.
        last_revision: Of its last record.
        logged_ms: Logged time of all of them.
        payload: As in the log.

    """

    __slots__ = ("_records", "first_revision", "last_revision", "logged_ms", "payload")

    def __init__(self, payload: bytes, envelope: Envelope) -> None:
        self.first_revision = envelope.first_revision
        self.last_revision = envelope.last_revision
        self.logged_ms = envelope.logged_ms
        self.payload = payload
        self._records: list[Record] | None = None

    def records(self) -> list[Record]:
        """Return its records; while the entry is new, all readers share them."""
        if self._records is None:
            self._records = decode_records(body_of(self.payload))
        return self._records

    def forget(self) -> None:
        """Keep the payload only."""
        self._records = None


class ChangeFeed:
    """See the module. Made before its replica starts, or a little of what comes first is read from the log.

    Args:
        context: Of the replica.
        ring_bytes: Payload bytes kept.

    Attributes:
        context: The same.
        log_reads: Reads that went to the log.
        reader_count: Cursors open.
        is_closed: Readers are to leave.

    """

    def __init__(self, context: ReplicaContext, *, ring_bytes: int = RING_BYTES) -> None:
        self.context = context
        self._ring_bytes = ring_bytes
        # Consecutive revisions, from `_head` on; what is before it has left the ring.
        self._entries: list[FeedEntry] = []
        self._head = 0
        self._bytes = 0
        self._left_bytes = 0  # Of entries before `_head`: in memory until they are taken out, many at once.
        self._last_revision = 0
        self._heard_at: float | None = None
        self._moved: asyncio.Future[None] | None = None
        self._log_turns = asyncio.Semaphore(LOG_READERS_MAX)
        self.log_reads = 0
        self.reader_count = 0
        self.is_closed = False
        context.payload_listeners.append(self._keep)

    @classmethod
    def of(cls, replica: Replica) -> ChangeFeed:
        """Return a feed of what a replica applies."""
        return cls(replica._context)

    @property
    def revision(self) -> int:
        """Last revision that can be read."""
        return max(self._last_revision, self.context.tip.revision if self._last_revision == 0 else 0)

    @property
    def is_fresh(self) -> bool:
        """True if this replica heard from the log just now."""
        return self._heard_at is not None and asyncio.get_running_loop().time() - self._heard_at <= FRESH_S

    def cursor(self, from_revision: int) -> FeedCursor:
        """Return a reader whose first entry is the one that holds this revision."""
        return FeedCursor(self, from_revision)

    def _keep(self, payload: bytes) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        envelope = decode_envelope(payload)
        if not envelope.record_count or envelope.last_revision <= self._last_revision:
            return
        if envelope.first_revision != self._last_revision + 1:
            self._entries, self._head, self._bytes, self._left_bytes = [], 0, 0, 0
        self._last_revision = envelope.last_revision
        self._entries.append(FeedEntry(payload, envelope))
        self._bytes += len(payload)
        if len(self._entries) - self._head > _DECODED_ENTRIES:
            self._entries[-1 - _DECODED_ENTRIES].forget()
        while self._bytes > self._ring_bytes and self._head < len(self._entries) - 1:
            size = len(self._entries[self._head].payload)
            self._bytes -= size
            self._left_bytes += size
            self._head += 1
        has_many = self._head >= _COMPACT_AT and self._head * 2 >= len(self._entries)
        if has_many or self._left_bytes > self._ring_bytes // _LEFT_PART:
            del self._entries[: self._head]
            self._head = self._left_bytes = 0
        self._wake()

    def close(self) -> None:
        """Have all readers leave: the replica stops."""
        self.is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._moved is not None:
            self._moved.set_result(None)
            self._moved = None

    def recent(self, revision: int) -> list[FeedEntry] | None:
        """Return entries from the one that holds a revision on, as many as one reader takes at once.

        Returns:
            None if the revision has left the ring, or never was in it; empty if it has not come yet.

        """
        if revision > self.revision:
            return []
        entries = self._entries
        if self._head >= len(entries) or entries[self._head].first_revision > revision:
            return None
        at = bisect_left(entries, revision, lo=self._head, key=lambda entry: entry.last_revision)
        taken: list[FeedEntry] = []
        room = _READ_BYTES
        for index in range(at, len(entries)):
            room -= len(entries[index].payload)
            if taken and room < 0:
                break
            taken.append(entries[index])
        return taken

    async def wait(self, timeout_s: float) -> None:
        """Wait until there is more, or until the time has passed."""
        if self._moved is None:
            self._moved = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._moved], timeout=timeout_s)

    async def read_log(self, reader: LogReader | None, revision: int) -> tuple[LogReader, list[LogEntry]]:
        """Read on in the log, some entries; when it is this reader's turn.

        Args:
            reader: As returned before; None = begin with the entry that holds the revision.
            revision: Next one wanted.

        Raises:
            MissingLogError: That part of the log has been trimmed.
            LedgerError, MetadataError, CorruptLogError: The log cannot be read.

        """
        context = self.context
        async with self._log_turns:
            self.log_reads += 1
            if reader is None:
                reader = await reader_at(
                    context.client,
                    context.chains,
                    revision,
                    password=context.settings.ledger_password,
                    keys=context.settings.log_keys,
                    poll_s=context.settings.poll_s,
                    entries_max=_READ_ENTRIES,
                )
            return reader, await reader.read()


class FeedCursor:
    """One reader's place.

    Args:
        feed: Of the replica.
        next_revision: First revision wanted.

    Attributes:
        next_revision: First revision that was not given yet.

    """

    def __init__(self, feed: ChangeFeed, next_revision: int) -> None:
        self._feed = feed
        self.next_revision = max(1, next_revision)
        self._log: LogReader | None = None
        feed.reader_count += 1

    async def read(self, timeout_s: float) -> list[FeedEntry]:
        """Return the entries that follow, some MiB at most; the first one may begin before `next_revision`.

        Returns:
            Empty if nothing came in time.

        Raises:
            MissingLogError: The next revision has been trimmed.
            LedgerError, MetadataError, CorruptLogError: The log cannot be read.

        """
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            entries = self._feed.recent(self.next_revision)
            if entries is None:
                entries = await self._read_log(max(0.0, deadline - asyncio.get_running_loop().time()))
            else:
                await self._leave_log()
            if entries:
                self.next_revision = entries[-1].last_revision + 1
                return entries
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0 or self._feed.is_closed:
                return []
            if self._log is None:
                await self._feed.wait(left_s)

    async def _read_log(self, timeout_s: float) -> list[FeedEntry]:
        self._log, found = await self._feed.read_log(self._log, self.next_revision)
        if not found:
            # Confirmed, but the ledger does not tell yet: the leader names it with its next entry.
            await self._log.wait(timeout_s)
        return [
            FeedEntry(entry.payload, entry.envelope)
            for entry in found
            if entry.envelope.record_count and entry.envelope.last_revision >= self.next_revision
        ]

    async def _leave_log(self) -> None:
        if self._log is not None:
            log, self._log = self._log, None
            await log.close()

    async def close(self) -> None:
        self._feed.reader_count -= 1
        await self._leave_log()

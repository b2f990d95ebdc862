"""The reading end of a plain log: its confirmed records, in order, each once."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Literal, NamedTuple, Self

from ledger.errors import LedgerError
from rsm_spark.client.consumers import ClientConsumers
from rsm_spark.core.envelope import entry_hash
from rsm_spark.core.plain_log import LogRecord, decode_entry
from rsm_spark.errors import CorruptLogError, ForkedLogError
from rsm_spark.log.commit_log import LogEntry, LogReader, shown_place
from rsm_spark.log.consumers import ConsumerError
from rsm_spark.log.reader_lock import ReaderLock
from rsm_spark.logs.context import LogContext
from rsm_spark.logs.finished_reader import FinishedReader, ShownRecord
from rsm_spark.logs.seeking import StartPlace

_LOGGER = logging.getLogger(__name__)
_WAIT_S = 30.0


class ReaderStart:
    """Beginning of a reader.

    Args:
        place: At or before its first record.
        position: First position that is handed out.
        txid: First transaction id that is handed out.
        since_ms: First logged time that is handed out.

    """

    def __init__(self, place: StartPlace, *, position: int = 0, txid: int = 0, since_ms: int = 0) -> None:
        self.place = place
        self.position = position
        self.txid = txid
        self.since_ms = since_ms

    def takes(self, record: LogRecord) -> bool:
        """Return whether a record is not before the start."""
        return record.position >= self.position and record.txid >= self.txid and record.logged_ms >= self.since_ms


class ReaderOptions(NamedTuple):
    """Options of a reader, as `Logs.reader` explains them."""

    start: int | Literal["begin", "end"] = "begin"
    txid: int | None = None
    since: datetime | None = None
    subscription: str | None = None
    lock_wait_s: float | None = 0.0
    follow: bool = True
    finished_batches: bool = False


class ReaderSubscription:
    """Stored position of a reader: where it goes on when it is opened again, and what is held for it.

    Args:
        name: Of the subscription.
        consumers: Store the position.
        lock: Held by this reader; None = it was not asked for.

    """

    def __init__(self, name: str, consumers: ClientConsumers, lock: ReaderLock | None) -> None:
        self.name = name
        self.consumers = consumers
        self.lock = lock


class PlainLogReader:
    """A reader of a plain log: `Logs.reader` makes one. Iterate over it, or take what is there with `read`.

        async with await logs.reader("clicks", start="begin") as reader:
            async for record in reader:
                print(record.position, record.payload)

    The iteration waits for what is appended, unless the reader was opened with `follow=False`; at the end mark it ends.
    A failure that may pass (bookies or ZooKeeper away) is waited out.

    Args:
        context: Of the log.
        start: Where to begin.
        follow: Wait for what is appended later.
        subscription: Where its position is stored; None = nowhere.
        on_entry: Called with each entry that was read, one without records too.
        finished_batches: Rows of a batch are handed out when it has ended.

    """

    def __init__(
        self,
        context: LogContext,
        start: ReaderStart,
        *,
        follow: bool,
        subscription: ReaderSubscription | None,
        on_entry: Callable[[], None] | None = None,
        finished_batches: bool = False,
    ) -> None:
        self._finished: FinishedReader | None = None
        if finished_batches:
            self._finished = FinishedReader(context, start.position, start.txid, start.since_ms)
        self._shown: deque[ShownRecord] = deque()  # With finished batches: the same as those that are ready.
        self._position = max(start.position - 1, start.place.revision)
        self._context = context
        self._start = start
        self._follow = follow
        self._subscription = subscription
        settings = context.settings
        self._entries = LogReader(
            context.client,
            context.chains,
            password=settings.ledger_password,
            keys=settings.log_keys,
            position=start.place.position,
            revision=start.place.revision,
            poll_s=settings.poll_s,
            entries_max=settings.tail_entries_max,
        )
        self._revision = start.place.revision
        self._hash: bytes | None = None  # After the last entry read; None = not known yet.
        self._ready: deque[LogRecord] = deque()
        self._is_ended = False
        self._on_entry = on_entry
        self._epoch = 0

    @property
    def position(self) -> int:
        """Position of the last record handed out, or the last one before the start.

        With finished batches: up to there all was handed out that stands there; a batch stands where its end does.
        """
        return self._position

    @property
    def read_through(self) -> int:
        """Position up to which all was handed out that this reader hands out: the log's own records have some too."""
        if self._finished is not None and not (self._finished.is_idle and not self._ready):
            return self._position
        return self._ready[0].position - 1 if self._ready else max(self._revision, self._start.position - 1)

    @property
    def epoch(self) -> int:
        """Epoch of the last entry that was read, handed out or not; each opening of a writer has a higher one."""
        return self._epoch

    @property
    def is_ended(self) -> bool:
        """True once the end mark was read and all before it was handed out."""
        return self._is_ended and not self._ready and (self._finished is None or self._finished.is_idle)

    async def read(self, records_max: int = 1000, *, wait_s: float = 0.0) -> list[LogRecord]:
        """Return the next records.

        Args:
            records_max: At most so many.
            wait_s: How long to wait for the first one.

        Returns:
            At least one, unless none came in time or the log has ended.

        Raises:
            MissingLogError: The log was trimmed beyond this reader's place.
            CorruptLogError, ForkedLogError: What lies there is not the log's.
            ReaderLockError: The subscription's lock is lost.
            LedgerError, MetadataError: Bookies or metadata store cannot be asked; the same call may succeed later.

        """
        await self._fill(wait_s)
        return self._taken(records_max)[0]

    async def read_shown(self, records_max: int = 1000, *, wait_s: float = 0.0) -> list[ShownRecord]:
        """Return the next records, and where each is handed out; else as `read`."""
        await self._fill(wait_s)
        found, shown = self._taken(records_max)
        return [ShownRecord(one, one.position, one.position) for one in found] if self._finished is None else shown

    def _taken(self, records_max: int) -> tuple[list[LogRecord], list[ShownRecord]]:
        ready = self._ready
        found = [ready.popleft() for _ in range(min(records_max, len(ready)))]
        shown = [] if self._finished is None else [self._shown.popleft() for _ in found]
        if found:
            self._position = shown[-1].through if shown else found[-1].position
        return found, shown

    async def wait(self, timeout_s: float) -> None:
        """Wait until there may be more to read, or until the time has passed; what is read then, `read` says."""
        if not self._ready and not self._is_ended and (self._finished is None or self._finished.is_idle):
            await self._entries.wait(timeout_s)

    async def _fill(self, wait_s: float) -> None:
        """Have the next records ready, unless none come in time or the log has ended."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while not self._ready:
            if self._finished is not None and not self._finished.is_idle:
                shown = await self._finished.some()
                self._ready.extend(one.record for one in shown)
                self._shown.extend(shown)
                continue
            if self._is_ended:
                return
            if self._subscription is not None and self._subscription.lock is not None:
                self._subscription.lock.check()
            entries = await self._entries.read()
            for entry in entries:
                self._take(entry)
            if entries or self._entries.ledgers_ahead > 0:
                continue
            left = deadline - loop.time()
            if left <= 0:
                return
            await self._entries.wait(left)

    def _take(self, entry: LogEntry) -> None:
        """Take the records of an entry, which must follow the one before.

        Raises:
            CorruptLogError, ForkedLogError: It does not.

        """
        envelope = entry.envelope
        at = f"log {self._context.log}: {shown_place(entry.position)}"
        if envelope.first_revision != self._revision + 1:
            raise CorruptLogError(
                f"{at} begins with position {envelope.first_revision}, {self._revision + 1} must follow"
            )
        if self._hash is not None and envelope.prefix_hash != self._hash:
            raise ForkedLogError(f"{at} does not continue the entry before: they come from different histories")
        try:
            records, ended = decode_entry(entry.payload)
            if self._finished is not None:
                self._finished.take(entry)
        except CorruptLogError as error:
            raise CorruptLogError(f"{at}: {error}") from error
        self._hash = entry.prefix_hash or entry_hash(entry.payload)
        self._revision = envelope.last_revision
        self._is_ended = self._is_ended or ended
        self._epoch = envelope.leader_epoch
        if self._finished is None:
            self._ready.extend(record for record in records if self._start.takes(record))
        if self._on_entry is not None:
            self._on_entry()

    # ---- iteration

    def __aiter__(self) -> Self:
        """Return the reader itself."""
        return self

    async def __anext__(self) -> LogRecord:
        """Return the next record."""
        while not self._ready:
            if self.is_ended:
                raise StopAsyncIteration
            try:
                await self._fill(_WAIT_S if self._follow else 0.0)
            except LedgerError as error:
                settings = self._context.settings
                _LOGGER.warning("reading has to wait: %s", error, extra=self._context.log_extra)
                await asyncio.sleep(settings.retry_s * self._context.rng.uniform(0.5, 1.0))
                continue
            if not self._ready and not self._follow:
                raise StopAsyncIteration
        record = self._ready.popleft()
        self._position = record.position if self._finished is None else self._shown.popleft().through
        return record

    # ---- the subscription

    async def processed(self, position: int | None = None) -> None:
        """Store how far this reader's work is done: there it goes on when it is opened again.

        It is written at most once a second, and when the reader is closed: a reader that is killed sees some records
        again.

        Args:
            position: Up to which all is done; None = all that was handed out.

        Raises:
            ConsumerError: The reader has no subscription; or an operator has removed it.
            ConsumerTakenError: Another reader has taken the subscription over.
            MetadataError: The metadata store cannot be asked; the position may be stored.

        """
        subscription = self._subscription
        if subscription is None:
            raise ConsumerError(f"log {self._context.log}: this reader has no subscription: Logs.reader(subscription=)")
        await subscription.consumers.processed(subscription.name, self.position if position is None else position)

    @property
    def stored(self) -> int:
        """Position up to which the subscription's work is stored as done."""
        assert self._subscription is not None
        return self._subscription.consumers.written(self._subscription.name)

    async def store(self, position: int) -> None:
        """Store how far this reader's work is done, now; see `processed`."""
        await self.processed(position)
        assert self._subscription is not None
        await self._subscription.consumers.flush()

    async def close(self) -> None:
        """Let go of everything; what is processed is stored.

        Raises:
            ConsumerError, MetadataError: It cannot be stored.

        """
        await self._entries.close()
        subscription = self._subscription
        if subscription is not None:
            try:
                await subscription.consumers.flush()
            finally:
                if subscription.lock is not None:
                    await subscription.lock.release()

    async def __aenter__(self) -> Self:
        """Return the reader."""
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

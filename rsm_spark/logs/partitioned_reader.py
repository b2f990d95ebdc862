"""The reading end of a partitioned log: the records of its partitions, those of each key in the order of their appends.

Each partition has a reader of its own that reads ahead a little. What it has is handed out as far as the layout allows:
records of a later generation wait until those before them were read (`rsm_spark.core.partition_layout.KeyOrder`). The
layout is read again before records of another opening of a writer are handed out, and when its node has changed.
"""

# Longer than 400 lines: one reader, whose partitions, layout and subscription decide together what it hands out.

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from types import TracebackType
from typing import NamedTuple, Self

from ledger.errors import LedgerError
from rsm_spark.core.partition_layout import KeyOrder, PartitionLayout
from rsm_spark.errors import CorruptLogError, LogError, MissingLogError
from rsm_spark.log.layout_store import LayoutStore
from rsm_spark.logs.finished_reader import ShownRecord
from rsm_spark.logs.record_reader import PlainLogReader
from rsm_spark.logs.shared_subscription import SharedSubscription

_LOGGER = logging.getLogger(__name__)
_AHEAD_RECORDS = 1000
_WAIT_S = 30.0
_LOOK_S = 5.0

OpenPartitionReader = Callable[[int, PartitionLayout, Callable[[], None]], Awaitable[PlainLogReader]]
"""(partition, layout, to be called with each entry) -> a reader of that partition."""


class PartitionRecord(NamedTuple):
    """One record of a partitioned log.

    Attributes:
        partition: Where it is.
        position: Its revision there.
        txid: Its transaction id.
        key: As it was appended; None = without one.
        payload: As it was appended.
        logged_ms: Logged time, milliseconds since 1970; never falls along a partition.

    """

    partition: int
    position: int
    txid: int
    key: bytes | None
    payload: bytes
    logged_ms: int


class _Part:
    """One partition that is read, and what was read ahead.

    Attributes:
        reader: Of the partition.
        records: Read and not handed out.
        epoch: Not below that of any of them.
        known_epoch: The layout was read after records of this epoch were.
        room: Set while nothing waits to be handed out.
        is_drained: It was read to its end, which it does not follow.
        handed_out: Position up to which all is done with the last record that was; None = none was.
        processed: The same of those that are done; None = none is.
        error: Why it cannot be read any more.

    """

    def __init__(self, reader: PlainLogReader) -> None:
        self.reader = reader
        self.records: deque[ShownRecord] = deque()
        self.epoch = 0
        self.known_epoch = 0
        self.room = asyncio.Event()
        self.room.set()
        self.is_drained = False
        self.handed_out: int | None = None
        self.processed: int | None = None
        self.error: Exception | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def read_through(self) -> int:
        """Position up to which all was handed out."""
        return self.records[0].place - 1 if self.records else self.reader.read_through

    @property
    def done_through(self) -> int:
        """Position up to which all is done: what holds no records is, once all before it is."""
        if self.handed_out is None or (self.processed is not None and self.processed >= self.handed_out):
            return self.read_through
        return -1 if self.processed is None else self.processed

    @property
    def needs_layout(self) -> bool:
        """True if the layout that is known may be older than the records."""
        return bool(self.records) and self.epoch > self.known_epoch

    @property
    def is_at_end(self) -> bool:
        """True if it has nothing more."""
        return not self.records and (self.is_drained or self.reader.is_ended)


class PartitionedLogReader:
    """A reader of a partitioned log: `Logs.partitioned_reader` makes one. Iterate over it, or take records with `read`.

    A failure that may pass (bookies or ZooKeeper away) is waited out.

    Args:
        layouts: The layout of the log.
        open_reader: Opens the reader of a partition.
        chosen: Partitions that are read; None = all, those to come too.
        follow: Wait for what is appended later.
        shared: What the other readers of the subscription have processed; None = it is not shared.
        retry_s: Pause before what may succeed later is tried again.

    """

    def __init__(
        self,
        layouts: LayoutStore,
        open_reader: OpenPartitionReader,
        *,
        chosen: Collection[int] | None,
        follow: bool,
        shared: SharedSubscription | None = None,
        retry_s: float = 0.5,
    ) -> None:
        self._retry_s = retry_s
        self._shared = shared
        self._layouts = layouts
        self._open_reader = open_reader
        self._chosen = None if chosen is None else frozenset(chosen)
        self._follow = follow
        self._layout: PartitionLayout | None = None
        self._parts: dict[int, _Part] = {}
        self._turn = 0  # Partition that is handed out first.
        self._changed = asyncio.Event()
        self._is_stale = False  # The layout.
        self._look_at = 0.0
        self._buffer: deque[tuple[PartitionRecord, int]] = deque()  # Of the iteration: where each is handed out, too.
        if shared is not None:
            shared.on_move = self._changed.set

    async def open(self) -> Self:
        """Return the reader when it reads.

        Raises:
            RsmError, LedgerError: See `Logs.partitioned_reader`.

        """
        try:
            await self._look()
            self._check_chosen()
            if self._shared is not None:
                assert self._layout is not None
                await self._shared.begin(self._layout, self._parts)
        except BaseException:
            with contextlib.suppress(Exception):
                await self.close()
            raise
        return self

    def _check_chosen(self) -> None:
        assert self._layout is not None
        unknown = sorted((self._chosen or frozenset()) - frozenset(range(self._layout.partition_count)))
        if unknown:
            raise LogError(
                f"log {self.log}: it has {self._layout.partition_count} partitions, 0 first, and no {unknown[0]}"
            )

    @property
    def log(self) -> str:
        """Name of the log."""
        return self._layouts.log

    @property
    def positions(self) -> dict[int, int]:
        """By partition that is read, the position up to which all was handed out."""
        return {partition: self._parts[partition].read_through for partition in sorted(self._parts)}

    @property
    def is_ended(self) -> bool:
        """True once all was handed out and nothing is waited for: one that follows the log waits for its end mark."""
        return not self._buffer and not self._is_stale and all(part.is_at_end for part in self._parts.values())

    @property
    def has_ended(self) -> bool:
        """True once all partitions were read to their end marks and all before those was handed out."""
        return self.is_ended and all(part.reader.is_ended for part in self._parts.values())

    async def read(self, records_max: int = 1000, *, wait_s: float = 1.0) -> list[PartitionRecord]:
        """Return the next records.

        Args:
            records_max: At most so many.
            wait_s: How long to wait for the first one; partitions are read ahead in the meantime only.

        Returns:
            At least one, unless none came in time or all was read (`is_ended`).

        Raises:
            MissingLogError: A partition was trimmed beyond this reader's place.
            NoSuchLogError: The log was deleted.
            CorruptLogError, ForkedLogError: What lies there is not the log's.
            ReaderLockError: The lock of the subscription in a partition is lost.
            LedgerError: Bookies or ZooKeeper cannot be asked; the same call may succeed later.

        """
        return [record for record, _ in await self._read(records_max, wait_s)]

    async def _read(self, records_max: int, wait_s: float) -> list[tuple[PartitionRecord, int]]:
        """Return the next records, and where in their partition they are handed out."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        while True:
            self._changed.clear()
            await self._look_if_due()
            await self._share()
            found = self._take(records_max)
            if found or self.is_ended:
                if not found:
                    await self._tell()  # Something may have been read to its end just now.
                return found
            left = deadline - loop.time()
            if left <= 0:
                return []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, max(0.0, self._look_at - loop.time()))):
                    await self._changed.wait()

    async def wait(self, timeout_s: float) -> None:
        """Wait until there may be more to read, or until the time has passed; what is read then, `read` says."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()

    # ---- the layout

    async def _look_if_due(self) -> None:
        """Read the layout where what is known of it may not hold for the records at hand."""
        for part in self._parts.values():
            if part.error is not None:
                raise part.error
        if self._is_stale or self._look_at <= asyncio.get_running_loop().time() or self._is_needed():
            await self._look()

    def _is_needed(self) -> bool:
        return any(part.needs_layout for part in self._parts.values())

    async def _look(self) -> None:
        """Read the layout, and take the partitions that it names."""
        epochs = {partition: part.epoch for partition, part in self._parts.items()}
        self._is_stale = False
        try:
            layout, _ = await self._layouts.read(watch=self._on_layout_changed)
            await self._take_layout(layout)
        except BaseException:
            self._is_stale = True
            raise
        for partition, epoch in epochs.items():
            self._parts[partition].known_epoch = epoch
        self._look_at = asyncio.get_running_loop().time() + _LOOK_S
        if self._shared is not None:
            self._shared.forget()

    def _on_layout_changed(self) -> None:
        self._is_stale = True
        self._changed.set()

    async def _take_layout(self, layout: PartitionLayout) -> None:
        known = self._layout
        if known is not None and layout.layout_id != known.layout_id:
            raise CorruptLogError(f"log {self.log}: it was made anew while it was read: open another reader")
        for partition in range(layout.partition_count):
            if partition not in self._parts and (self._chosen is None or partition in self._chosen):
                try:
                    reader = await self._open_reader(partition, layout, self._changed.set)
                except MissingLogError as error:
                    error.partition = partition
                    raise
                part = self._parts[partition] = _Part(reader)
                part.task = asyncio.get_running_loop().create_task(self._pump(partition, part))
        if known is not None and layout.generations != known.generations:
            for part in self._parts.values():  # What ended the former generation may lie behind what was read.
                part.is_drained = False
                part.room.set()
        self._layout = layout

    # ---- other readers of the subscription

    async def _share(self) -> None:
        """Tell the other readers of the subscription how far this one is, and learn where they are.

        Raises:
            ConsumerError, MetadataError: See `processed`.

        """
        await self._tell()
        if self._shared is not None and self._layout is not None:
            await self._shared.look(self._layout, self._parts)

    async def _tell(self) -> None:
        """Store the positions that others may wait for."""
        if self._shared is None or self._layout is None:
            return
        order = KeyOrder(self._layout)
        for partition, part in list(self._parts.items()):
            done = part.done_through
            if order.passes_end(partition, part.reader.stored, done):
                await part.reader.store(done)

    # ---- reading ahead

    async def _pump(self, partition: int, part: _Part) -> None:
        """Read one partition ahead, one portion at a time."""
        while True:
            while part.records or part.is_drained:
                part.room.clear()
                await part.room.wait()
            waits = self._follow or self._is_behind(partition, part)
            try:
                found = await part.reader.read_shown(_AHEAD_RECORDS, wait_s=_WAIT_S if waits else 0.0)
            except LedgerError as error:
                _LOGGER.warning("reading a partition has to wait: %s", error, extra={"log": self.log})
                await asyncio.sleep(self._retry_s)
                continue
            except Exception as error:  # noqa: BLE001 - whoever reads hears of it
                if isinstance(error, MissingLogError):
                    error.partition = partition
                part.error = error
                self._changed.set()
                return
            part.records.extend(found)
            part.epoch = part.reader.epoch
            # What others wait for is in the log for sure, although it may not be shown yet.
            part.is_drained = not (found or self._follow or self._is_behind(partition, part))
            self._changed.set()
            if not found and part.reader.is_ended:
                return

    def _is_behind(self, partition: int, part: _Part) -> bool:
        return self._layout is not None and KeyOrder(self._layout).is_behind(partition, part.read_through)

    # ---- handing out

    def _take(self, records_max: int) -> list[tuple[PartitionRecord, int]]:
        """Hand out what may be; a partition that has waited comes first."""
        assert self._layout is not None
        order = KeyOrder(self._layout)
        read = {} if self._shared is None else dict(self._shared.positions)
        read.update((partition, part.read_through) for partition, part in self._parts.items())
        is_settled = order.is_settled(read)
        found: list[tuple[PartitionRecord, int]] = []
        turns = sorted(self._parts)
        first = self._turn % len(turns)
        for partition in turns[first:] + turns[:first]:
            part = self._parts[partition]
            if not part.records or part.needs_layout:
                continue
            limit = None if is_settled else order.limit(partition, read)
            while part.records and len(found) < records_max and (limit is None or part.records[0].place <= limit):
                record, place, part.handed_out = part.records.popleft()
                found.append((PartitionRecord(partition, *record), place))
            read[partition] = part.read_through
            if not part.records:
                part.room.set()
        self._turn += 1
        return found

    def __aiter__(self) -> Self:
        """Return the reader itself."""
        return self

    async def __anext__(self) -> PartitionRecord:
        """Return the next record."""
        while not self._buffer:
            try:
                self._buffer.extend(await self._read(_AHEAD_RECORDS, _WAIT_S))
            except LedgerError as error:
                _LOGGER.warning("reading has to wait: %s", error, extra={"log": self.log})
                await asyncio.sleep(self._retry_s)
                continue
            if not self._buffer and self.is_ended:
                raise StopAsyncIteration
        return self._buffer.popleft()[0]

    # ---- the subscription

    async def processed(self, record: PartitionRecord | None = None) -> None:
        """Store how far the work is done: there this reader goes on when it is opened again.

        It is written at most once a second a partition, and when the reader is closed.

        Args:
            record: It and all before it in its partition are done; None = all that was handed out is, in all of them.
                With finished batches it is None: a batch stands where its end does.

        Raises:
            ConsumerError: The reader has no subscription; or an operator has removed it.
            ConsumerTakenError: Another reader has taken the subscription over.
            MetadataError: The metadata store cannot be asked; the position may be stored.

        """
        if record is not None:
            await self._processed(self._parts[record.partition], record.position)
            await self._share()
            return
        waiting: dict[int, int] = {}  # By partition, where the first of those is that the iteration has not given yet.
        for one, place in self._buffer:
            waiting.setdefault(one.partition, place)
        for partition, part in self._parts.items():
            if part.handed_out is not None:
                await self._processed(part, waiting[partition] - 1 if partition in waiting else part.handed_out)
        await self._share()

    async def _processed(self, part: _Part, position: int) -> None:
        await part.reader.processed(position)
        part.processed = max(position, part.processed or 0)

    async def close(self) -> None:
        """Let go of everything; what is processed is stored.

        Raises:
            ConsumerError, MetadataError: It cannot be stored, in some partition at least.

        """
        tasks = [part.task for part in self._parts.values() if part.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        closing = (part.reader.close() for part in self._parts.values())
        for problem in await asyncio.gather(*closing, return_exceptions=True):
            if problem is not None:
                raise problem

    async def __aenter__(self) -> Self:
        """Return the reader."""
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

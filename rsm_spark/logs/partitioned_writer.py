"""The writing end of a partitioned log: one writer for all of its partitions.

It claims the layout, then opens every partition, which fences whoever wrote it before. To grow the log it sees to it
that all it has appended is confirmed, ends the present generation in the layout, and opens every partition anew: see
`rsm_spark.core.partition_layout`. What is appended meanwhile waits, and goes where the new layout says.
"""

# Longer than 400 lines: what is appended, in four ways, and the growth that it waits for, are one object.

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from itertools import starmap
from types import TracebackType
from typing import Any, NamedTuple, Self

from ledger.errors import LedgerError, MetadataDeniedError
from rsm_spark.core.partition_layout import (
    PARTITIONS_MAX,
    PartitionLayout,
    check_growth,
    partition_log,
    partition_of,
)
from rsm_spark.core.plain_log import LogEndedError, PlainLogError
from rsm_spark.core.producers import PartitionsChangedError, ProducerError, RecordSource
from rsm_spark.core.writer_marks import MarkedReply, WriterMark
from rsm_spark.errors import LogError, NoSuchLogError, NotLeaderError, OutcomeUnknownError, RsmError
from rsm_spark.log.admin_requests import (
    AdminAnswer,
    AdminRequests,
    ForgetWriterRequest,
    GrowRequest,
    HandOverWriterRequest,
    Order,
    WritersRequest,
)
from rsm_spark.log.discovery import MemberKeeper
from rsm_spark.log.layout_store import LayoutConflictError, LayoutStore
from rsm_spark.logs.partitioned_marking import OpenPartitions, PartitionedMarking
from rsm_spark.logs.record_writer import WAITING_BYTES_MAX, PlainLogWriter

_LOGGER = logging.getLogger(__name__)
_AT_ONCE = 16
"""Partitions that are opened at a time."""
_ORDERS_LOOK_S = 5.0

OpenPartition = Callable[[str, str], Awaitable[PlainLogWriter]]
"""(name, log id) -> the writer of that plain log."""


class PartitionPosition(NamedTuple):
    """Place of a record in a partitioned log.

    Attributes:
        partition: Where it is.
        position: There.

    """

    partition: int
    position: int


class _HeldAppend(NamedTuple):
    """Records that were appended while the log grew."""

    payloads: tuple[bytes, ...]
    key: bytes | None
    txid: int | None
    place: asyncio.Future[PartitionPosition]


class PartitionedLogWriter:
    """The writer of a partitioned log: `Logs.open_partitioned_writer` makes one. For one event loop.

    A writer that another one has fenced, in whichever partition, is over: what is appended then is refused.

    Args:
        layouts: The layout of the log.
        incarnation: Of this writer, 32 hex digits.
        open_partition: Opens the writer of a partition.
        keeper: Tells others that the log has a writer.
        desk: Where others order that the log grow.
        retry_s: Pause before what may succeed later is tried again.

    """

    def __init__(
        self,
        layouts: LayoutStore,
        incarnation: str,
        open_partition: OpenPartition,
        keeper: MemberKeeper,
        desk: AdminRequests,
        *,
        retry_s: float = 0.5,
    ) -> None:
        self._layouts = layouts
        self._incarnation = incarnation
        self._open_partition = open_partition
        self._keeper = keeper
        self._desk = desk
        self._retry_s = retry_s
        self._held: tuple[PartitionLayout, int] | None = None  # As this writer's claim, or its last growth, left it.
        self._parts: list[PlainLogWriter] = []  # By partition.
        self._waiting: deque[_HeldAppend] | None = None  # While the log grows, else None.
        self._waiting_bytes = 0
        self._changing = asyncio.Lock()  # Held while the log grows, and to close.
        self._refusal: RsmError | LedgerError | None = None
        self._turn = 0  # Partition of the next record without a key.
        self._tasks: list[asyncio.Task[None]] = []
        self._marking = PartitionedMarking(layouts.log, self._opened, self._look, self._end)

    # ---- life

    async def open(self) -> Self:
        """Return the writer when it takes appends.

        Raises:
            RsmError, LedgerError: It never will; see `Logs.open_partitioned_writer`.

        """
        self._held = await self._layouts.claim(self._incarnation)
        self._parts = await self._open_all(self._held)
        loop = asyncio.get_running_loop()
        try:
            await self._marking.tell_ends()
            await self._keeper.appear()
        except BaseException:
            await self.abort()
            raise
        self._tasks = [loop.create_task(self._keeper.run()), loop.create_task(self._said(self._serve_orders))]
        return self

    async def _open_all(self, held: tuple[PartitionLayout, int]) -> list[PlainLogWriter]:
        """Open the writers of all partitions; of none if one of them cannot be opened.

        The claim must stand when all are open: another writer may have claimed the layout, opened the partitions and
        grown the log before this one came to them. From then on, whoever claims it fences this writer.

        Raises:
            NotLeaderError: Another writer has claimed the layout.
            RsmError, LedgerError: A partition cannot be opened.

        """
        opened = await self._open_each(held[0])
        for part in opened:
            part.become_partition()
        try:
            await self._layouts.check_held(held)
        except BaseException:
            await asyncio.gather(*(writer.abort() for writer in opened))
            raise
        return opened

    async def _open_each(self, layout: PartitionLayout) -> list[PlainLogWriter]:
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(partition: int, log_id: str) -> PlainLogWriter:
            async with turns:
                return await self._open_partition(partition_log(self.log, partition), log_id)

        found = await asyncio.gather(*starmap(one, enumerate(layout.log_ids)), return_exceptions=True)
        opened = [writer for writer in found if isinstance(writer, PlainLogWriter)]
        problems = [error for error in found if isinstance(error, BaseException)]
        if problems and opened and all(isinstance(error, LogEndedError) for error in problems):
            problems += await self._complete_end(opened)
        if problems:
            await asyncio.gather(*(writer.abort() for writer in opened))
            raise problems[0]
        return opened

    async def _complete_end(self, opened: Sequence[PlainLogWriter]) -> list[BaseException]:
        """Mark the end of the partitions that have none, where another one has it; return what went wrong.

        Whoever marked it had opened all of them: who appended to these was deposed before. They are closed in good
        order, since readers see the mark of a ledger that is.
        """

        async def end(writer: PlainLogWriter) -> None:
            await writer.mark_end()
            await writer.close()

        marked = await asyncio.gather(*map(end, opened), return_exceptions=True)
        return [error for error in marked if isinstance(error, BaseException)]

    async def _said(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except Exception:
            _LOGGER.exception("a partitioned log's writer takes no orders any more", extra={"log": self.log})

    @property
    def log(self) -> str:
        """Name of the log."""
        return self._layouts.log

    @property
    def partition_count(self) -> int:
        """Number of partitions that records go to now."""
        assert self._held is not None, "a writer is handed out when it is open"
        return self._held[0].partition_count

    @property
    def last_positions(self) -> tuple[int, ...]:
        """By partition, the position up to which it is confirmed."""
        return tuple(part.last_position for part in self._parts)

    @property
    def last_txids(self) -> tuple[int, ...]:
        """By partition, the last transaction id that was appended."""
        return tuple(part.last_txid for part in self._parts)

    # ---- appending

    def append(
        self, payload: bytes, *, key: bytes | None = None, txid: int | None = None
    ) -> asyncio.Future[PartitionPosition]:
        """Append a record to the partition of its key; the future tells partition and position once it is confirmed.

        Records of one key are in the log in the order of their appends. The futures of records of one partition are
        done in that order.

        Args:
            payload: Of the record.
            key: Of the record; None = without one: such records go to the partitions in turn.
            txid: Not below that of the record before in the same partition; None = the same.

        Returns:
            A future: its place; or `NotLeaderError` = certainly not in the log, `OutcomeUnknownError` = perhaps. While
            the log grows, what `append` raises at other times comes by the future.

        Raises:
            TransactionIdError, RecordTooLargeError: See there; nothing was appended.
            NotLeaderError: This writer is over.
            PlainLogError: Too much waits to be appended: `await drain()` between appends.

        """
        return self.append_many((payload,), key=key, txid=txid)

    def append_many(
        self, payloads: Sequence[bytes], *, key: bytes | None = None, txid: int | None = None
    ) -> asyncio.Future[PartitionPosition]:
        """Append records of one key that are in the log together, or not at all; see `append`.

        Args:
            payloads: Of the records, 4 MB in all.
            key: Of all of them: records of several partitions cannot be together.
            txid: Of all of them.

        Returns:
            A future: the place of the last one.

        Raises:
            TransactionIdError, RecordTooLargeError: See there; nothing was appended.
            NotLeaderError: This writer is over.
            PlainLogError: There are none, or too many; or too much waits: `await drain()` between appends.

        """
        if self._refusal is not None:
            raise self._refusal
        place: asyncio.Future[PartitionPosition] = asyncio.get_running_loop().create_future()
        held = _HeldAppend(tuple(payloads), key, txid, place)
        if self._waiting is None:
            self._send(held)
            return place
        if self._waiting_bytes > WAITING_BYTES_MAX:
            raise PlainLogError(
                f"log {self.log}: it grows, and {self._waiting_bytes:,} bytes wait for that, over "
                f"{WAITING_BYTES_MAX:,}: wait with `await writer.drain()` between appends"
            )
        self._waiting_bytes += sum(map(len, held.payloads)) + len(key or b"")
        self._waiting.append(held)
        return place

    def _send(self, append: _HeldAppend) -> None:
        partition = self._partition_for(append.key)
        try:
            appended = self._parts[partition].append_many(
                append.payloads, keys=(append.key,) * len(append.payloads), txid=append.txid
            )
        except NotLeaderError as error:
            self._end(error)
            raise
        appended.add_done_callback(partial(self._appended, partition, append.place))

    def _partition_for(self, key: bytes | None) -> int:
        count = len(self._parts)
        if key is not None:
            return partition_of(key, count)
        self._turn += 1
        return self._turn % count

    def _appended(
        self, partition: int, place: asyncio.Future[PartitionPosition], appended: asyncio.Future[int]
    ) -> None:
        """Tell what became of an append."""
        error = appended.exception()
        if isinstance(error, NotLeaderError | OutcomeUnknownError):
            self._end(error)
        if place.done():
            return
        if error is None:
            place.set_result(PartitionPosition(partition, appended.result()))
        else:
            _fail(place, error)

    def _end(self, error: RsmError | LedgerError) -> None:
        """Take no more: one partition that another writer has fenced is enough."""
        if self._refusal is None:
            self._refusal = error

    # ---- producers

    async def produce(
        self,
        source: RecordSource,
        payloads: Sequence[bytes],
        *,
        partition: int,
        partition_count: int,
        keys: Sequence[bytes | None] | None = None,
    ) -> list[int]:
        """Append records of a producer to a partition, each once, however often they are sent; return their positions.

        A producer numbers its records by partition: 1, 2, 3, … in each. It names the number of partitions by which it
        has chosen this one: what is sent again behind a growth is found where it was appended before it.

        Args:
            source: Whose they are, and the sequence of the first in this partition; the others follow it.
            payloads: Of the records, 4 MB in all.
            partition: Where they go.
            partition_count: By which their keys go there.
            keys: One for each; None = without keys, which go anywhere.

        Raises:
            PartitionsChangedError: The log has another number of partitions. What of the records is not in the log is
                to be sent by that, with the next sequences of the partitions that they go to then.
            ProducerError, LogEndedError, RecordTooLargeError, PlainLogError: See `PlainLogWriter.produce`; or a key
                does not go there. Nothing was appended.
            NotLeaderError: This writer is over, they are not in the log if it was not said before that they are.
            OutcomeUnknownError: Nobody knows whether they are: send them again, to this writer or to the next.
            MetadataError: Send them again.

        """
        self._check_keys(partition, partition_count, keys or ())
        while True:
            await self._opened()
            count = self.partition_count
            if partition >= count:
                raise PartitionsChangedError(self._changed_text(count), count, [])
            part = self._parts[partition]
            try:
                if partition_count == count:
                    return await part.produce(source, payloads, keys=keys)
                return await self._produced_before(part, source, payloads, count)
            except (NotLeaderError, OutcomeUnknownError) as error:
                if isinstance(error, NotLeaderError) and part not in self._parts:
                    continue  # The log grows, and closed it just now: what came of the records its successor knows.
                self._end(error)
                raise

    def _check_keys(self, partition: int, partition_count: int, keys: Sequence[bytes | None]) -> None:
        if not 0 <= partition < partition_count <= PARTITIONS_MAX:
            raise ProducerError(f"log {self.log}: there is no partition {partition} of {partition_count}")
        for key in keys:
            if key is not None and (there := partition_of(key, partition_count)) != partition:
                raise ProducerError(
                    f"log {self.log}: a record's key goes to partition {there} of {partition_count}, not to {partition}"
                )

    async def _produced_before(
        self, part: PlainLogWriter, source: RecordSource, payloads: Sequence[bytes], count: int
    ) -> list[int]:
        """Return where records are that were appended by another number of partitions.

        Raises:
            PartitionsChangedError: Some are not, and no writer appends them there any more.

        """
        assert self._held is not None
        held = self._held
        positions = await part.sent_before(source, len(payloads))
        if len(positions) == len(payloads):
            return positions
        await self._layouts.check_held(held)
        raise PartitionsChangedError(self._changed_text(count), count, positions)

    def _changed_text(self, count: int) -> str:
        return f"log {self.log}: it has {count} partitions: send what is not in it by that number"

    async def _opened(self) -> OpenPartitions:
        """Return the partitions when the log does not grow; until the next await nothing changes.

        Raises:
            RsmError, LedgerError: This writer is over.

        """
        while self._waiting is not None:
            async with self._changing:
                pass
        if self._refusal is not None:
            raise self._refusal
        assert self._held is not None
        return OpenPartitions(self._parts, [one.partition_count for one in self._held[0].generations])

    async def _look(self) -> None:
        """Return if no other writer can have appended anything before this call.

        Raises:
            NotLeaderError: Another one has claimed the layout.
            MetadataError: Nobody can say; the same call may succeed later.

        """
        await self._opened()
        assert self._held is not None
        await self._layouts.check_held(self._held)

    # ---- writers of batches

    async def write_marked(
        self,
        mark: WriterMark,
        payloads: Sequence[bytes] = (),
        *,
        keys: Sequence[bytes | None] | None = None,
        txids: Sequence[int] | None = None,
        owner: str = "",
    ) -> MarkedReply:
        """Append rows of a writer's batch to the partitions of their keys, once, however often they are sent.

        Rows of a chunk that go to one partition are in it together, or none of them is; those of several partitions
        come there one by one. A batch has ended when all of it is in the log, whatever partitions that is in.

        Args:
            mark: Which part of which batch it is; see `PlainLogWriter.write_marked`.
            payloads: Of the records, 4 MB in all; none but for CHUNK and WHOLE.
            keys: One for each; None = without keys: such rows of a chunk go to one partition together.
            txids: None: rows of a batch in a partitioned log have none of their own.
            owner: Principal whose writer it is: the log knows it as `owner/writer`. "" = a program's.

        Returns:
            APPLIED = it is in the log; DONE = it was before; REFUSED, GONE = with the reason, and nothing is appended.

        Raises:
            LogEndedError, RecordTooLargeError: See there.
            NotLeaderError, OutcomeUnknownError: This writer is over: send it again, to the next one.
            PlainLogError: There are too many; too much waits; or the log was opened without producers; or rows have
                transaction ids.
            MetadataError: Ask again.

        """
        if txids is not None:
            raise PlainLogError(
                f"log {self.log}: it is partitioned, and its partitions have transaction ids of their own: rows of a "
                "batch are appended without them"
            )
        given = (None,) * len(payloads) if keys is None else keys
        marking = asyncio.get_running_loop().create_task(self._marking.write(mark, payloads, given, owner))
        marking.add_done_callback(_look_at)
        return await asyncio.shield(marking)  # Who goes away does not let the next one in before this is in the log.

    async def drain(self) -> None:
        """Wait until little enough waits to go on appending.

        Raises:
            NotLeaderError: This writer is over.

        """
        if self._waiting is not None and self._waiting_bytes > WAITING_BYTES_MAX // 2:
            async with self._changing:
                pass
        for part in tuple(self._parts):
            await part.drain()

    async def flush(self) -> None:
        """Wait until all that was appended so far is confirmed.

        Raises:
            NotLeaderError: This writer is over; each append has its own outcome.

        """
        if self._waiting is not None:
            async with self._changing:
                pass
        await self._flush()
        if self._refusal is not None:
            raise self._refusal

    async def _flush(self) -> None:
        problems = await asyncio.gather(*(part.flush() for part in self._parts), return_exceptions=True)
        for problem in problems:
            if problem is not None:
                raise problem

    # ---- growing

    async def grow(self, partitions: int) -> None:
        """Give the log more partitions. What is appended meanwhile waits.

        Args:
            partitions: How many it is to have.

        Raises:
            LogError, MetadataDeniedError: It cannot have so many; or the name of a new one is taken, or this log-in may
                not make it. The writer goes on.
            NotLeaderError: This writer is over, the log has not grown, or another writer was opened just behind it.
            CorruptLogError, LedgerError: The writer is over: a partition cannot be opened again.

        """
        async with self._changing:
            if self._refusal is not None:
                raise self._refusal
            assert self._held is not None
            check_growth(self.log, self._held[0], partitions)
            self._waiting = deque()
            try:
                refused = await self._grow(partitions)
            except BaseException as error:
                self._end(error if isinstance(error, RsmError | LedgerError) else _stopped(self.log))
                raise
            finally:
                self._release()
            if refused is not None:
                raise refused

    async def _grow(self, partitions: int) -> LogError | MetadataDeniedError | None:
        """Grow; return why it was refused, where the writer goes on all the same."""
        assert self._held is not None
        await self._flush()
        ends = self.last_positions  # Nothing is on its way, and nothing is sent before the layout tells them.
        closing, self._parts = self._parts, []
        await asyncio.gather(*(part.close() for part in closing))
        refused: LogError | MetadataDeniedError | None = None
        try:
            layout = await self._layouts.grow(self._held, partitions, ends)
            self._held = layout, self._held[1] + 1
        except (LayoutConflictError, NoSuchLogError) as error:
            raise NotLeaderError(f"log {self.log}: this writer is over, and has not made it grow: {error}") from error
        except (LogError, MetadataDeniedError) as error:
            refused = error
        opened = await self._open_again(self._held)
        if self._refusal is not None:  # It was stopped meanwhile.
            await asyncio.gather(*(part.abort() for part in opened))
            raise self._refusal
        self._parts = opened
        return refused

    async def _open_again(self, held: tuple[PartitionLayout, int]) -> list[PlainLogWriter]:
        while True:
            try:
                return await self._open_all(held)
            except LedgerError as error:
                _LOGGER.warning("opening the partitions again has to wait: %s", error, extra={"log": self.log})
                await asyncio.sleep(self._retry_s)

    def _release(self) -> None:
        """Send what has waited for the growth, or refuse it."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, None, 0
        for append in waiting or ():
            try:
                if self._refusal is not None:
                    raise _stopped(self.log)
                self._send(append)
            except RsmError as error:
                if not append.place.done():
                    _fail(append.place, error)

    async def _serve_orders(self) -> None:
        """Carry out what somebody orders, until another writer has the log: what is placed then is for that one."""
        changed = asyncio.Event()
        while True:
            changed.clear()
            try:
                for placed in await self._desk.pending(watch=changed.set):
                    answer = await self._obey(placed.order)
                    if answer is None:
                        return
                    await self._desk.answer(placed, answer)
            except LedgerError as error:
                _LOGGER.info("orders have to wait: %s", error, extra={"log": self.log})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ORDERS_LOOK_S):
                    await changed.wait()

    async def _obey(self, order: Order) -> AdminAnswer | None:
        """Carry out an order; return None if this writer is over, and another one is to do it."""
        by = self._keeper.member.replica_id
        try:
            if isinstance(order, WritersRequest):
                await self._look()
                return AdminAnswer(by, outcome=await self._marking.described(order.writer, order.after))
            if isinstance(order, ForgetWriterRequest):
                return AdminAnswer(by, outcome={"writer": await self._marking.forget(order.writer)})
            if isinstance(order, HandOverWriterRequest):
                given = await self._marking.hand_over(order.writer, order.checkpoint)
                return AdminAnswer(by, outcome={"writer": given})
            if not isinstance(order, GrowRequest):
                refusal = "a partitioned log can be told to grow, and knows writers of batches: name a partition"
                return AdminAnswer(by, refusal=refusal)
            if order.partitions != self.partition_count:  # Else an earlier order was carried out, and not answered.
                await self.grow(order.partitions)
        except NotLeaderError:
            return None
        except RsmError as error:
            return AdminAnswer(by, refusal=str(error))
        return AdminAnswer(by, outcome={"partitions": self.partition_count})

    # ---- the end

    async def mark_end(self) -> tuple[int, ...]:
        """Append the end mark to all partitions, behind all that was appended; return its position in each.

        Nothing follows, for ever; readers end there, and this writer is over. An end that was cut off, so that only
        some partitions have the mark, is completed by whoever opens the log next. What of batches is under way comes
        before it, so that no batch has ended in some partitions and can never end in others.

        Raises:
            NotLeaderError: This writer is over; some partitions may have the mark.
            OutcomeUnknownError, LedgerError: The same.

        """
        async with self._changing:
            if self._refusal is not None:
                raise self._refusal
            async with self._marking.settled():  # Nobody tells partitions of an end later.
                self._end(LogEndedError(f"log {self.log}: it has an end mark: nothing can be appended any more"))
            return tuple(await asyncio.gather(*(part.mark_end() for part in self._parts)))

    async def close(self) -> None:
        """Wait until all that was appended has an outcome, and close the ledgers. The log stays as it is.

        Raises:
            RsmError, LedgerError: A partition ended by an error: it is damaged, say.

        """
        try:
            async with self._changing:
                self._end(_stopped(self.log))
                await self._stop_tasks()
                problems = await asyncio.gather(*(part.close() for part in self._parts), return_exceptions=True)
        except asyncio.CancelledError:
            await self.abort()
            raise
        for problem in problems:
            if problem is not None:
                raise problem

    async def abort(self) -> None:
        """Stop at once: what is on its way has an unknown outcome."""
        self._end(_stopped(self.log))
        await self._stop_tasks()
        await asyncio.gather(*(part.abort() for part in self._parts))

    async def _stop_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._keeper.remove()

    async def __aenter__(self) -> Self:
        """Return the writer."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close; after an error nothing is waited for that may never come."""
        if kind is None:
            await self.close()
        else:
            with contextlib.suppress(Exception):
                await self.abort()


def _look_at(task: asyncio.Task[MarkedReply]) -> None:
    """Look at how a mark fared: who sent it may have gone."""
    if not task.cancelled():
        task.exception()


def _fail(place: asyncio.Future[PartitionPosition], error: BaseException) -> None:
    place.set_exception(error)
    place.exception()  # A future that nobody awaits is no news.


def _stopped(log: str) -> NotLeaderError:
    return NotLeaderError(f"log {log}: its writer has stopped")

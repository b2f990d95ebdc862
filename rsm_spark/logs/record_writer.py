"""The writing end of a plain log."""

# Longer than 400 lines: all that one writer takes: a program's records, producers', and those of writers of batches.

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rsm_spark.core.append_queue import WriterRecord
from rsm_spark.core.plain_log import PlainLogError
from rsm_spark.core.producer_intake import ProducerVerdict
from rsm_spark.core.producers import ProducedRange, ProducerError, RecordSource, TooManyProducersError
from rsm_spark.core.trimming import TrimPlan
from rsm_spark.core.writer_marks import MarkedReply, WriterMark
from rsm_spark.core.writers import WriterTable
from rsm_spark.log.discovery import MemberKeeper
from rsm_spark.logs.context import LogContext
from rsm_spark.logs.marked_writing import MarkedWriting, writers_of
from rsm_spark.logs.writing import WriterDriver

WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Bytes that may wait to be appended; more is refused until `drain` returns."""


class PlainLogWriter:
    """The writer of a plain log: `Logs.open_writer` makes one. For one event loop; any number of tasks may append.

    A writer that another one has fenced, or that met an error that it cannot mend, is over: what is appended then is
    refused with `NotLeaderError` or with that error.

    Args:
        context: Of the log.
        driver: Writes.
        keeper: Tells others that the log has a writer.

    """

    def __init__(self, context: LogContext, driver: WriterDriver, keeper: MemberKeeper) -> None:
        self._context = context
        self._driver = driver
        self._keeper = keeper
        self._marked = driver.upkeep.marked = MarkedWriting(context.log, driver, self.append_marked)
        self._make_ticket = asyncio.get_running_loop().create_future
        self._running = asyncio.get_running_loop().create_task(self._run())
        self._running.add_done_callback(_look_at)

    async def _run(self) -> None:
        """Write until it is over, and tell others so once it is open."""
        keeping = asyncio.get_running_loop().create_task(self._keep())
        try:
            await self._driver.run()
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            await self._keeper.remove()

    async def _keep(self) -> None:
        await asyncio.wait([self._driver.opened])
        if self._driver.refusal is None:
            await self._keeper.run()

    @property
    def log(self) -> str:
        """Name of the log."""
        return self._context.log

    @property
    def last_txid(self) -> int:
        """The last transaction id that was appended; 0 before the first."""
        return self._driver.queue.txid if self._driver.queue is not None else 0

    @property
    def last_position(self) -> int:
        """Position up to which the log is confirmed."""
        return self._driver.protocol.tip.revision

    async def open(self) -> Self:
        """Return the writer when it takes appends.

        Raises:
            RsmError, LedgerError: It never will; see `Logs.open_writer`.

        """
        try:
            await asyncio.shield(self._driver.opened)
            await self._keeper.appear()
        except BaseException:
            await self.abort()
            raise
        return self

    def append(self, payload: bytes, *, key: bytes | None = None, txid: int | None = None) -> asyncio.Future[int]:
        """Append a record; the future gives its position once it is confirmed.

        Futures of one writer are done in the order of their appends. Nobody has to wait for one before the next append.

        Args:
            payload: Of the record.
            key: Of the record, for whoever reads it.
            txid: Not below that of the record before; None = the same.

        Returns:
            A future: its position; or `NotLeaderError` = certainly not in the log, `OutcomeUnknownError` = perhaps.

        Raises:
            LogEndedError, TransactionIdError, RecordTooLargeError: See there; nothing was appended.
            NotLeaderError: This writer is over.
            PlainLogError: Too much waits to be appended: `await drain()` between appends.

        """
        return self._append((payload,), (key,), txid, None)

    def append_many(
        self, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = None, txid: int | None = None
    ) -> asyncio.Future[int]:
        """Append records that are in the log together, or not at all; the future gives the position of the last.

        Args:
            payloads: Of the records, 4 MB in all.
            keys: One for each; None = without keys.
            txid: Of all of them; see `append`.

        Raises:
            LogEndedError, TransactionIdError, RecordTooLargeError: See there; nothing was appended.
            NotLeaderError: This writer is over.
            PlainLogError: There are none, or too many; or too much waits: `await drain()` between appends.

        """
        return self._append(payloads, keys, txid, None)

    def produce(
        self, source: RecordSource, payloads: Sequence[bytes], *, keys: Sequence[bytes | None] | None = None
    ) -> asyncio.Future[list[int]]:
        """Append records of a producer, each once, however often they are sent; the future gives their positions.

        What of them is in the log already is answered with the positions that it has there. The rest is in the log
        together, or not at all.

        Args:
            source: Whose they are, and the sequence of the first; the others follow it.
            payloads: Of the records, 4 MB in all.
            keys: One for each; None = without keys.

        Returns:
            A future: the positions; or a `ProducerError` = they do not follow what the producer has sent, see
            `rsm_spark.core.producers`; or the errors of `append`; or a `MetadataError` = ask again.

        Raises:
            LogEndedError, RecordTooLargeError: See there; nothing was appended.
            NotLeaderError: This writer is over.
            PlainLogError: There are none, or too many; too much waits; or the log was opened without producers.

        """
        driver, loop = self._driver, asyncio.get_running_loop()
        if driver.refusal is not None:
            raise driver.refusal
        if driver.intake is None:
            raise PlainLogError(f"log {self.log}: it has no producers: open_writer(log, producers=True)")
        try:
            accepted = driver.intake.judge(source, len(payloads))
        except ProducerError as error:
            refused: asyncio.Task[list[int]] = loop.create_task(self._refused(error))
            refused.add_done_callback(_look_at)
            return refused
        appended: asyncio.Future[int] | None = None
        if accepted.fresh:
            known = len(payloads) - accepted.fresh
            fresh = source._replace(sequence=source.sequence + known)
            rest = None if keys is None else keys[known:]
            appended = self._append(payloads[known:], rest, None, fresh)
            driver.intake.take(fresh, accepted.fresh, appended)
        found = loop.create_task(_positions(accepted, appended))
        found.add_done_callback(_look_at)  # What nobody awaits is no news.
        return found

    async def sent_before(self, source: RecordSource, count: int) -> list[int]:
        """Return the positions of those of a producer's records, the first ones, that were sent before; append nothing.

        Args:
            source: Whose they are, and the sequence of the first; the others follow it.
            count: How many there are.

        Raises:
            ProducerError: See `produce`.
            NotLeaderError: This writer is over; OutcomeUnknownError: nobody knows whether they are in the log.
            PlainLogError: The log was opened without producers.
            MetadataError: Ask again.

        """
        driver = self._driver
        if driver.refusal is not None:
            raise driver.refusal
        if driver.intake is None:
            raise PlainLogError(f"log {self.log}: it has no producers: open_writer(log, producers=True)")
        try:
            accepted = driver.intake.judge(source, count)
        except ProducerError as error:
            return await self._refused(error)
        return await _positions(accepted._replace(fresh=0), None)

    async def write_marked(
        self,
        mark: WriterMark,
        payloads: Sequence[bytes] = (),
        *,
        keys: Sequence[bytes | None] | None = None,
        txids: Sequence[int] | None = None,
        owner: str = "",
    ) -> MarkedReply:
        """Append rows of a writer's batch, once, however often they are sent; or begin, end or forget a batch.

        What the mark says and the records are in the log together, or neither is. One mark of a writer goes after
        another; those of several writers go at once.

        Args:
            mark: Which part of which batch it is, see `rsm_spark.core.writers`; the digest is made here, of keys and
                payloads, and rows are never written twice.
            payloads: Of the records, 4 MB in all; none but for CHUNK and WHOLE.
            keys: One for each; None = without keys.
            txids: Transaction id of each, rising or equal; None = that of the record before.
            owner: Principal whose writer it is: the log knows it as `owner/writer`. "" = a program's.

        Returns:
            APPLIED = it is in the log; DONE = it was before; REFUSED, GONE = with the reason, and nothing is appended.

        Raises:
            LogEndedError, RecordTooLargeError, TransactionIdError: See there; nothing was appended.
            NotLeaderError: This writer is over, nothing was appended; OutcomeUnknownError: nobody knows.
            PlainLogError: There are too many; too much waits; or the log was opened without producers.
            MetadataError: Ask again.

        """
        given = (None,) * len(payloads) if keys is None else keys
        marking = asyncio.get_running_loop().create_task(self._marked.write(mark, payloads, given, owner, txids))
        marking.add_done_callback(_look_at)
        return await asyncio.shield(marking)  # Who goes away does not let the next one in before this is in the log.

    def become_partition(self) -> None:
        """Leave writers of batches to the partitioned log that this one is a partition of: operators ask that."""
        self._driver.upkeep.marked = None

    @property
    def writers(self) -> WriterTable:
        """Writers of batches that the log remembers, as of all that was appended so far.

        Raises:
            NotLeaderError: This writer is over.
            PlainLogError: The log was opened without producers.

        """
        return writers_of(self.log, self._driver)

    def append_marked(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None],
        records: Sequence[WriterRecord],
        txids: Sequence[int] | None = None,
    ) -> asyncio.Future[int]:
        """Append rows of a batch behind what is remembered of it; see `append_many`.

        Args:
            payloads: Of the rows; there may be none.
            keys: One for each.
            records: Of a writer, as it was judged: see `rsm_spark.core.writers`.
            txids: Transaction id of each; None = that of the record before.

        """
        return self._append(payloads, keys, None, None, records, txids)

    async def _refused(self, error: ProducerError) -> list[int]:
        """Refuse what a producer has sent, if no writer can have taken meanwhile what came before it.

        Raises:
            ProducerError: It is refused.
            NotLeaderError: Another writer knows better.

        """
        if isinstance(error, TooManyProducersError):
            self._driver.forget_idle()
        await self._driver.check()
        raise error

    def _append(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[bytes | None] | None,
        txid: int | None,
        source: RecordSource | None,
        marks: Sequence[WriterRecord] = (),
        txids: Sequence[int] | None = None,
    ) -> asyncio.Future[int]:
        driver = self._driver
        queue = driver.queue
        if driver.refusal is not None:
            raise driver.refusal
        assert queue is not None, "a writer is handed out when it is open"
        if queue.size > WAITING_BYTES_MAX:
            raise PlainLogError(
                f"log {self.log}: {queue.size:,} bytes wait to be appended, over {WAITING_BYTES_MAX:,}: wait with "
                "`await writer.drain()` between appends"
            )
        given = (None,) * len(payloads) if keys is None else keys
        ticket: asyncio.Future[int] = queue.add(payloads, given, txid, self._make_ticket, source, marks, txids).ticket
        driver.wake()
        return ticket

    async def drain(self) -> None:
        """Wait until little enough waits to go on appending.

        Raises:
            NotLeaderError: This writer is over.

        """
        while self._driver.queue is not None and self._driver.queue.size > WAITING_BYTES_MAX // 2:
            if self._driver.refusal is not None:
                break
            await self._driver.progress()
        if self._driver.refusal is not None:
            raise self._driver.refusal

    async def flush(self) -> None:
        """Wait until all that was appended so far is confirmed.

        Raises:
            NotLeaderError: This writer is over; each append has its own outcome.

        """
        driver = self._driver
        if driver.queue is not None and driver.queue.last is not None:
            await asyncio.wait([driver.queue.last.ticket])  # Those before it have their outcomes before.
        if driver.refusal is not None:
            raise driver.refusal

    async def mark_end(self) -> int:
        """Append the end mark and return its position: nothing follows, for ever; readers end there.

        Raises:
            LogEndedError: It was appended before.
            NotLeaderError: This writer is over, the mark is certainly not in the log.
            OutcomeUnknownError: It may be.

        """
        driver = self._driver
        if driver.refusal is not None:
            raise driver.refusal
        assert driver.queue is not None
        append = driver.queue.add_end(asyncio.get_running_loop().create_future)
        driver.wake()
        return int(await append.ticket)

    async def trim(self) -> TrimPlan:
        """Trim what the log need not keep, now; return what went, and why the rest stays.

        Raises:
            NotLeaderError: This writer is over; what it did may stand.
            MetadataError: ZooKeeper cannot be asked.

        """
        return await self._driver.upkeep.trim()

    async def close(self) -> None:
        """Wait until all that was appended has an outcome, and close the log's ledger. The log stays as it is.

        Raises:
            RsmError, LedgerError: The writer ended by an error: the log is damaged, say.

        """
        self._driver.close()
        try:
            await asyncio.shield(self._running)
        except asyncio.CancelledError:
            await self.abort()
            raise

    async def abort(self) -> None:
        """Stop at once: what is on its way has an unknown outcome."""
        self._running.cancel()
        await asyncio.wait([self._running])
        await self._keeper.remove()  # One that was deposed may have been about to, and was cut off.

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


async def _positions(accepted: ProducerVerdict, appended: asyncio.Future[int] | None) -> list[int]:
    """Return the positions of a producer's records, once all of them are confirmed.

    Raises:
        NotLeaderError, OutcomeUnknownError: Some of them are not, or perhaps not.

    """
    found: list[int] = []
    for sequence, count, where in accepted.repeated:
        known = where if isinstance(where, ProducedRange) else where.at(await asyncio.shield(where.ticket))
        found += [known.position(one) for one in range(sequence, sequence + count)]
    if appended is not None:
        last = await asyncio.shield(appended)
        found += range(last - accepted.fresh + 1, last + 1)
    return found


def _look_at(task: asyncio.Task[Any]) -> None:
    """Look at how the writer ended: each append hears of it, and `close`."""
    if not task.cancelled():
        task.exception()

"""Batches of writers in a partitioned log: carries out the steps that `rsm_spark.core.batch_pieces` gives.

A step is judged on what is confirmed, and its pieces are appended at once, to several partitions. When one of them is
not taken since the log grows, the next step is judged by the new layout: it finds those that were.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from ledger.errors import LedgerError
from rsm_spark.core.batch_pieces import BatchStep, ChunkRows, PartitionedWriters
from rsm_spark.core.plain_log import PlainLogError
from rsm_spark.core.writer_marks import MarkedReply, MarkedStatus, MarkKind, WriterMark
from rsm_spark.core.writers import MarkVerdict, WriterRow, WriterTable
from rsm_spark.errors import NotLeaderError, OutcomeUnknownError, RsmError
from rsm_spark.logs.marked_writing import WriterLanes, checked_mark, no_room
from rsm_spark.logs.record_writer import PlainLogWriter
from rsm_spark.runtime.writer_upkeep import check_checkpoint, described_one, tell_writers

_STATUSES = {
    MarkVerdict.DONE: MarkedStatus.DONE,
    MarkVerdict.REFUSED: MarkedStatus.REFUSED,
    MarkVerdict.GONE: MarkedStatus.GONE,
}


class OpenPartitions(NamedTuple):
    """Partitions as one layout has them.

    Attributes:
        parts: Their writers, by partition.
        counts: By generation of the layout, how many there were.

    """

    parts: Sequence[PlainLogWriter]
    counts: Sequence[int]


class PartitionedMarking:
    """See the module; of one writer of the log.

    Args:
        log: Its name.
        opened: Returns the partitions once the log does not grow; until the next await nothing changes.
        look: Returns if this is the log's writer still.
        end: Called when a partition takes no more.

    """

    def __init__(
        self,
        log: str,
        opened: Callable[[], Awaitable[OpenPartitions]],
        look: Callable[[], Awaitable[None]],
        end: Callable[[RsmError | LedgerError], None],
    ) -> None:
        self._log = log
        self._opened = opened
        self._look = look
        self._end = end
        self._lanes = WriterLanes()
        self._gate = asyncio.Lock()  # Held by who lets nobody in.
        self._under_way = 0  # Those let in.
        self._left = asyncio.Event()

    async def write(
        self, mark: WriterMark, payloads: Sequence[bytes], keys: Sequence[bytes | None], owner: str
    ) -> MarkedReply:
        """Do what a mark says; see `PartitionedLogWriter.write_marked`."""
        mark = checked_mark(self._log, mark, payloads, owner)
        rows = ChunkRows(payloads, keys, mark.batch + mark.part + mark.chunk)
        async with self._turn(mark.writer):
            was_done = False
            while True:
                present = await self._opened()
                step = _writers(present).next_step(mark, rows)
                reason = step.reason
                if step.standing is MarkVerdict.APPLY:
                    reason = "" if step.is_due else _full(present, step, mark.writer, owner)
                    if not reason:
                        await self._append(present, step, rows)
                        was_done |= mark.kind is not MarkKind.CHUNK or any(piece.rows for piece in step.pieces)
                        continue
                    step = BatchStep(MarkVerdict.REFUSED, reason=reason)
                if was_done and step.standing in (MarkVerdict.DONE, MarkVerdict.GONE):
                    return MarkedReply(MarkedStatus.APPLIED)
                if step.standing is not MarkVerdict.DONE:
                    await self._look()
                return MarkedReply(_STATUSES[step.standing], step.reason)

    @contextlib.asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """Be the one that does something about a writer."""
        async with self._gate:
            self._under_way += 1
        try:
            async with self._lanes.of(name):
                yield
        finally:
            self._under_way -= 1
            self._left.set()

    @contextlib.asynccontextmanager
    async def settled(self) -> AsyncIterator[None]:
        """Hold back what comes; inside, nothing is under way, and all partitions have been told of ends.

        Raises:
            RsmError, LedgerError: See `tell_ends`.

        """
        async with self._gate:
            while self._under_way:
                self._left.clear()
                await self._left.wait()
            await self.tell_ends()
            yield

    async def _append(self, present: OpenPartitions, step: BatchStep, rows: ChunkRows) -> None:
        """Append the pieces of a step; return when each has an outcome, and none is lost but by a growth.

        Raises:
            NotLeaderError, OutcomeUnknownError: Another writer has the log.
            RsmError, LedgerError: A piece was not taken.

        """
        appended: list[asyncio.Future[int]] = []
        problems: list[BaseException] = []
        for piece in step.pieces:
            payloads, keys = [rows.payloads[row] for row in piece.rows], [rows.keys[row] for row in piece.rows]
            try:
                appended.append(present.parts[piece.partition].append_marked(payloads, keys, piece.records))
            except (RsmError, LedgerError) as error:
                problems.append(error)
        outcomes = await asyncio.gather(*appended, return_exceptions=True)
        problems += [one for one in outcomes if isinstance(one, BaseException)]
        if not problems:
            return
        problem = problems[0]
        if isinstance(problem, NotLeaderError | OutcomeUnknownError):
            if (await self._opened()).parts is not present.parts:
                return  # The log has grown: what became of the pieces the tables know.
            self._end(problem)
        raise problem

    async def tell_ends(self) -> None:
        """Tell partitions of ends of batches that whoever wrote the log before did not tell them of any more.

        Raises:
            NotLeaderError, OutcomeUnknownError: Another writer has the log.
            RsmError, LedgerError: A partition did not take it.

        """
        for name in _remembered(await self._opened()).names():
            async with self._lanes.of(name):
                while True:
                    present = await self._opened()
                    step = _remembered(present).due_step(name)
                    if step.standing is not MarkVerdict.APPLY:
                        break
                    await self._append(present, step, ChunkRows((), (), 0))

    # ---- operators

    async def described(self, name: str, after: str) -> dict[str, Any]:
        """Return a writer with its parts, or all behind a name; see `tell_writers`."""
        return tell_writers(self._log, _writers(await self._opened()), name, after)

    async def forget(self, name: str) -> dict[str, Any]:
        """Have the log forget a writer; return it as it was.

        Raises:
            RsmError: There is no writer of this name.

        """
        return await self._ordered(name, lambda writers: writers.forget_step(name))

    async def hand_over(self, name: str, checkpoint: str) -> dict[str, Any]:
        """Give a writer to another checkpoint; return it as it was.

        Raises:
            RsmError: There is no writer of this name, or it is that checkpoint's; the checkpoint's name is none.

        """

        def check(own: WriterRow) -> None:
            check_checkpoint(self._log, name, own, checkpoint)

        return await self._ordered(name, lambda writers: writers.hand_over_step(name, checkpoint), check)

    async def _ordered(
        self,
        name: str,
        next_step: Callable[[PartitionedWriters], BatchStep],
        check: Callable[[WriterRow], None] = lambda _own: None,
    ) -> dict[str, Any]:
        async with self._turn(name):
            own = _writers(await self._opened()).get(name)
            if own is None:
                raise RsmError(f"log {self._log}: there is no writer {name!r}; see `rsm log writer list`")
            check(own)
            while True:
                present = await self._opened()
                step = next_step(_writers(present))
                if step.standing is not MarkVerdict.APPLY:
                    return described_one(name, own)
                await self._append(present, step, ChunkRows((), (), 0))


def _writers(present: OpenPartitions) -> PartitionedWriters:
    """Return what the partitions remember.

    Raises:
        NotLeaderError: A partition is over.
        PlainLogError: The log was opened without producers.

    """
    return PartitionedWriters([part.writers for part in present.parts], present.counts)


def _remembered(present: OpenPartitions) -> PartitionedWriters:
    """Return what the partitions remember; one without producers has no rows of batches.

    Raises:
        NotLeaderError: A partition is over.

    """

    def table(part: PlainLogWriter) -> WriterTable:
        try:
            return part.writers
        except PlainLogError:
            return WriterTable()

    return PartitionedWriters([table(part) for part in present.parts], present.counts)


def _full(present: OpenPartitions, step: BatchStep, name: str, owner: str) -> str:
    """Return why a partition cannot remember more; "" = all can."""
    reasons = (no_room(present.parts[piece.partition].writers, name, owner, piece.records) for piece in step.pieces)
    return next((reason for reason in reasons if reason), "")

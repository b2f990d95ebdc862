"""Bugs to plant into partitioned logs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rsm_spark.core import partition_layout
from rsm_spark.core.batch_pieces import BatchPiece, BatchStep, ChunkRows, PartitionedWriters
from rsm_spark.core.partition_layout import KeyOrder, PartitionLayout
from rsm_spark.core.producers import PartitionsChangedError
from rsm_spark.core.writer_marks import MarkedReply, MarkedStatus, WriterMark
from rsm_spark.core.writers import MarkVerdict, WriterRow
from rsm_spark.log.layout_store import LayoutStore
from rsm_spark.logs.marked_writing import WriterLanes
from rsm_spark.logs.partitioned_logs import PartitionedLogs
from rsm_spark.logs.partitioned_marking import PartitionedMarking
from rsm_spark.logs.partitioned_reader import PartitionedLogReader
from rsm_spark.logs.partitioned_writer import PartitionedLogWriter
from rsm_spark.logs.shared_subscription import SharedSubscription


def crosses_early(patch: pytest.MonkeyPatch) -> None:
    """Hand out records of a later generation before those before them."""
    patch.setattr(KeyOrder, "limit", lambda *_: None)


def crosses_when_its_own_partition_was_read(patch: pytest.MonkeyPatch) -> None:
    """Wait for the same partition alone, and not for those that keys came from."""
    patch.setattr(partition_layout, "share_keys", lambda one, _count, other, _other_count: one == other)


def does_not_look_at_the_layout_again(patch: pytest.MonkeyPatch) -> None:
    """Hand out records of another writer under the layout that is known, until its node is said to have changed."""
    patch.setattr(PartitionedLogReader, "_is_needed", lambda _self: False)
    patch.setattr("rsm_spark.logs.partitioned_reader._Part.needs_layout", False)
    patch.setattr(PartitionedLogReader, "_on_layout_changed", lambda _self: None)


def writes_under_a_stale_layout(patch: pytest.MonkeyPatch) -> None:
    """Go on with the number of partitions that the writer knew first."""
    grow = PartitionedLogWriter._grow

    async def forgetful(self: PartitionedLogWriter, partitions: int) -> Any:
        count = len(self._parts)
        refused = await grow(self, partitions)
        self._partition_for = lambda key: partition_layout.partition_of(key or b"", count)  # type: ignore[method-assign]
        return refused

    patch.setattr(PartitionedLogWriter, "_grow", forgetful)


def ends_a_generation_before_all_is_confirmed(patch: pytest.MonkeyPatch) -> None:
    """Take the positions of a generation's end while records are on their way."""
    grow = LayoutStore.grow
    flush = PartitionedLogWriter._flush
    early: dict[str, tuple[int, ...]] = {}

    async def flushed(self: PartitionedLogWriter) -> None:
        early[self._incarnation] = self.last_positions
        await flush(self)

    async def grown(self: LayoutStore, held: tuple[PartitionLayout, int], count: int, ends: Any) -> PartitionLayout:
        return await grow(self, held, count, early.get(held[0].writer, ends))

    patch.setattr(PartitionedLogWriter, "_flush", flushed)
    patch.setattr(LayoutStore, "grow", grown)


def goes_on_while_it_grows(patch: pytest.MonkeyPatch) -> None:
    """Leave the partitions open over a growth: what one opening appends is of two generations.

    Readers mostly hear of the growth in time, by their watch of the layout, which promises nothing: here it is silent.
    """

    async def grow(self: PartitionedLogWriter, partitions: int) -> None:
        assert self._held is not None
        await self._flush()
        layout = await self._layouts.grow(self._held, partitions, self.last_positions)
        added = range(len(self._parts), partitions)
        names = [(partition_layout.partition_log(self.log, one), layout.log_ids[one]) for one in added]
        self._parts = [*self._parts, *await asyncio.gather(*(self._open_partition(*name) for name in names))]
        self._held = layout, self._held[1] + 1

    patch.setattr(PartitionedLogWriter, "_grow", grow)
    patch.setattr(PartitionedLogReader, "_on_layout_changed", lambda _self: None)


def grows_what_another_writer_has_claimed(patch: pytest.MonkeyPatch) -> None:
    """Write the layout with the version that it has now, whoever claimed it."""
    grow = LayoutStore.grow

    async def grown(self: LayoutStore, held: tuple[PartitionLayout, int], count: int, ends: Any) -> PartitionLayout:
        present, version = await self.read()
        await asyncio.sleep(1.0)  # Another writer may append meanwhile.
        present, version = await self.read()
        return await grow(self, (present if len(ends) == present.partition_count else held[0], version), count, ends)

    patch.setattr(LayoutStore, "grow", grown)


def does_not_claim_the_layout(patch: pytest.MonkeyPatch) -> None:
    """Open the partitions of a layout that was only read."""

    async def read_only(self: LayoutStore, _incarnation: str) -> tuple[PartitionLayout, int]:
        found = await self.read()
        await asyncio.sleep(1.0)
        return found

    patch.setattr(LayoutStore, "claim", read_only)
    does_not_look_whether_its_claim_stands(patch)


def does_not_look_whether_its_claim_stands(patch: pytest.MonkeyPatch) -> None:
    """Append when the partitions are open, although another writer may have opened them and grown the log before."""

    async def unchecked(_self: LayoutStore, _held: tuple[PartitionLayout, int]) -> None:
        await asyncio.sleep(0)

    patch.setattr(LayoutStore, "check_held", unchecked)


def says_that_the_log_has_grown_and_does_not_look_what_is_in_it(patch: pytest.MonkeyPatch) -> None:
    """Refuse all that a producer sends by an older number of partitions, also what was appended before the growth."""

    async def unseen(self: PartitionedLogWriter, _part: Any, _source: Any, _payloads: Any, count: int) -> list[int]:
        raise PartitionsChangedError(self._changed_text(count), count, [])

    patch.setattr(PartitionedLogWriter, "_produced_before", unseen)


def does_not_wait_for_the_other_readers_of_its_subscription(patch: pytest.MonkeyPatch) -> None:
    """Cross the end of a generation when the own partitions were read to it."""

    async def blind(_self: SharedSubscription, _layout: PartitionLayout, _own: Any) -> None:
        await asyncio.sleep(0)

    patch.setattr(SharedSubscription, "look", blind)


def looks_for_pieces_by_the_present_layout_alone(patch: pytest.MonkeyPatch) -> None:
    """Append again what was appended of a chunk before the log grew."""
    found = PartitionedWriters._found

    def found_now(self: PartitionedWriters, writer: str, part: int, generation: int, own: WriterRow) -> Any:
        return found(self, writer, part, generation, own) if generation == len(self._counts) - 1 else {}

    patch.setattr(PartitionedWriters, "_found", found_now)


def takes_a_chunk_for_appended_when_one_piece_of_it_is(patch: pytest.MonkeyPatch) -> None:
    """Lose the pieces that other partitions did not take when somebody died."""
    chunk_step = PartitionedWriters._chunk_step

    def hasty(self: PartitionedWriters, mark: WriterMark, rows: ChunkRows, own: WriterRow) -> BatchStep:
        part = self.parts(mark.writer).get(mark.part)
        if part is not None and part.chunks > mark.chunk:
            return BatchStep(MarkVerdict.DONE)
        return chunk_step(self, mark, rows, own)

    patch.setattr(PartitionedWriters, "_chunk_step", hasty)


def answers_a_chunk_when_one_step_of_it_is_done(patch: pytest.MonkeyPatch) -> None:
    """Say that a chunk is in the log when its writer's row is, and its rows may not be."""
    append = PartitionedMarking._append

    class Answered(Exception):
        """Leaves the loop."""

    async def once(self: PartitionedMarking, *step: Any) -> None:
        await append(self, *step)
        raise Answered

    write = PartitionedMarking.write

    async def hasty(self: PartitionedMarking, *sent: Any) -> MarkedReply:
        try:
            return await write(self, *sent)
        except Answered:
            return MarkedReply(MarkedStatus.APPLIED)

    patch.setattr(PartitionedMarking, "_append", once)
    patch.setattr(PartitionedMarking, "write", hasty)


def judges_a_chunk_while_its_pieces_are_on_their_way(patch: pytest.MonkeyPatch) -> None:
    """Take what was sent and is not confirmed for appended."""
    patch.setattr(WriterLanes, "of", lambda _self, _name: asyncio.Lock())


def refuses_a_batch_by_tables_that_may_be_old(patch: pytest.MonkeyPatch) -> None:
    """Refuse the end of a batch although another writer of the log may have taken its chunks."""

    async def look(_: PartitionedLogWriter) -> None:
        pass

    patch.setattr(PartitionedLogWriter, "_look", look)


def marks_a_batch_and_appends_its_rows_without_a_mark(patch: pytest.MonkeyPatch) -> None:
    """Forget which pieces are in the log."""
    pieces = PartitionedWriters._pieces

    def bare(self: PartitionedWriters, *chunk: Any) -> Any:
        for piece in pieces(self, *chunk):
            yield piece._replace(records=())

    patch.setattr(PartitionedWriters, "_pieces", bare)


def tells_no_partition_of_an_end(patch: pytest.MonkeyPatch) -> None:
    """End a batch at home alone: readers of other partitions wait for ever."""
    patch.setattr(PartitionedWriters, "_untold", lambda *_: {})


def tells_all_partitions_of_an_end_at_once(patch: pytest.MonkeyPatch) -> None:
    """Let partitions know of an end that does not stand at home yet."""
    end_step = PartitionedWriters._end_step

    def hasty(self: PartitionedWriters, mark: WriterMark, own: WriterRow) -> BatchStep:
        step = end_step(self, mark, own)
        if step.standing is not MarkVerdict.APPLY:
            return step
        ((kind, fields),) = step.pieces[0].records
        away = [
            BatchPiece(place, (), ((kind, (*fields[:7], row_count, *fields[8:])),))
            for place, row_count in self._row_counts(mark.writer, own).items()
            if place != step.pieces[0].partition
        ]
        return step._replace(pieces=(*step.pieces, *away))

    patch.setattr(PartitionedWriters, "_end_step", hasty)


def hands_out_rows_of_batches_as_they_come(patch: pytest.MonkeyPatch) -> None:
    """Take a reader of finished batches for one of all."""
    patch.setattr(PartitionedLogs, "partitioned_reader", _all_of(PartitionedLogs.partitioned_reader))


def _all_of(partitioned_reader: Any) -> Any:
    async def reader(self: PartitionedLogs, *args: Any, **options: Any) -> PartitionedLogReader:
        options.pop("finished_batches", None)
        return await partitioned_reader(self, *args, **options)  # type: ignore[no-any-return]

    return reader


def ends_the_log_and_waits_for_no_batch(patch: pytest.MonkeyPatch) -> None:
    """Mark the end of partitions that are not told yet of the end of a batch: nobody can tell them any more."""

    @contextlib.asynccontextmanager
    async def hasty(_: PartitionedMarking) -> AsyncIterator[None]:
        yield

    patch.setattr(PartitionedMarking, "settled", hasty)

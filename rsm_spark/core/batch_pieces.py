"""Batches of writers in a partitioned log: which rows of a chunk are in which partition, and what is to follow. Pure.

A chunk is cut here, by the keys of its rows, into *pieces*, one for each partition. What is remembered of writers
stands in the tables of the partitions (`rsm_spark.core.writers`), which are read as one:

1. A writer has a *home*, the partition of its name among those that the log had first. The writer's own row stands
   there alone: its checkpoint, its run, its batch, and whether that has ended. It is there before any row of the batch.
2. Rows of a part stand in the partitions that have pieces of it. The number of such a row has the generation of the
   layout in it: pieces of one chunk may lie on both sides of a growth, and each is cut by the number of partitions of
   its time. So what is in the log already is known by the layout that it was appended under, and the rest goes where
   the present one says.
3. A chunk is begun when all pieces of the one before it are in the log. So only the last one can be there in part.
4. A batch ends in its home, when all its pieces are in the log. From then on nothing of it is appended anywhere.
5. Then each other partition that has pieces of it is told of the end, by an own row of the writer there, which says how
   many rows it has. So a reader of one partition needs to know no other. Nothing else of the writer is done before.
6. A writer is forgotten in its home last: as long as its home knows it, what is there of its batch counts. One whose
   batch has not ended is given up in its home first, so that nothing ends that is forgotten by half.

Nothing is decided for longer than one step: who carries it out asks again, so whoever takes the log over goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from rsm_spark.core.append_queue import WriterRecord
from rsm_spark.core.partition_layout import key_hash, partition_of
from rsm_spark.core.records import KernelRecord, pack
from rsm_spark.core.writer_marks import DIGEST_BYTES, PARTS_MAX, MarkKind, WriterMark, digest_of
from rsm_spark.core.writers import OWN_PART, MarkVerdict, WriterRow, WriterTable

_NOTHING = bytes(DIGEST_BYTES)
"""Digest of a chunk that has no piece in a partition."""

_GIVEN_UP = -2
"""Batch of a writer that is about to be forgotten."""


class ChunkRows:
    """Rows of a chunk, and where they go by how many partitions.

    Args:
        payloads: Of the rows.
        keys: One for each; rows without a key go to the partition of `turn`, all of them to one.
        turn: Number of the chunk, of whatever kind: it spreads chunks without keys.

    """

    def __init__(self, payloads: Sequence[bytes], keys: Sequence[bytes | None], turn: int) -> None:
        self.payloads = payloads
        self.keys = keys
        self._turn = turn
        self._cut: dict[int, dict[int, tuple[int, ...]]] = {}
        self._digests: dict[tuple[int, ...], bytes] = {}

    def __len__(self) -> int:
        return len(self.payloads)

    def pieces(self, partition_count: int) -> dict[int, tuple[int, ...]]:
        """Return the numbers of the rows that go to each partition, ascending; partitions without any are left out."""
        cut = self._cut.get(partition_count)
        if cut is None:
            rows: dict[int, list[int]] = {}
            for row, key in enumerate(self.keys):
                place = self._turn % partition_count if key is None else partition_of(key, partition_count)
                rows.setdefault(place, []).append(row)
            cut = self._cut[partition_count] = {place: tuple(rows[place]) for place in sorted(rows)}
        return cut

    def digest(self, rows: tuple[int, ...]) -> bytes:
        """Return what tells a piece from others."""
        digest = self._digests.get(rows)
        if digest is None:
            keys, payloads = [self.keys[row] for row in rows], [self.payloads[row] for row in rows]
            digest = self._digests[rows] = digest_of(pack((keys, payloads)))
        return digest


class BatchPiece(NamedTuple):
    """Rows and records that are to be appended to one partition, together.

    Attributes:
        partition: Where.
        rows: Numbers of rows of the chunk.
        records: Records of the writer, which stand right before them.

    """

    partition: int
    rows: tuple[int, ...]
    records: tuple[WriterRecord, ...]


class BatchStep(NamedTuple):
    """Next step of what a mark asks for.

    Attributes:
        standing: APPLY = append the pieces, to several partitions at once, and ask again; else what is to be answered.
        pieces: Of APPLY, one a partition.
        reason: Why it is refused, or gone.
        is_due: It follows from what is in the log already: it is appended whatever room there is.

    """

    standing: MarkVerdict
    pieces: tuple[BatchPiece, ...] = ()
    reason: str = ""
    is_due: bool = False


_DONE = BatchStep(MarkVerdict.DONE)


class PartitionedWriters:
    """See the module.

    Args:
        tables: By partition: the writers that it remembers.
        counts: By generation of the layout, how many partitions there were; the last one is that of `tables`.

    """

    def __init__(self, tables: Sequence[WriterTable], counts: Sequence[int]) -> None:
        assert len(tables) == counts[-1]
        self._tables = tables
        self._counts = counts

    # ---- what is there

    def home(self, writer: str) -> int:
        """Return the partition that has a writer's own row."""
        return key_hash(writer.encode()) % self._counts[0]

    def get(self, writer: str) -> WriterRow | None:
        """Return a writer's own row; once its batch has ended with the rows of all partitions. None = there is none."""
        own = self._own(writer)
        if own is None or not own.is_ended:
            return own
        told = [row for table in self._tables if (row := table.get(writer)) is not None and _has_ended(row, own)]
        return msgspec.structs.replace(own, row_count=sum(row.row_count for row in told))

    def _own(self, writer: str) -> WriterRow | None:
        """Return the row that its home has of a writer; None if there is no such writer."""
        return self._tables[self.home(writer)].get(writer)

    def names(self) -> list[str]:
        """Return the names of all writers, sorted."""
        homes = enumerate(self._tables)
        return sorted(name for home, table in homes for name in table.names() if self.home(name) == home)

    def parts(self, writer: str) -> dict[int, WriterRow]:
        """Return the parts of a writer's last batch, by number: chunks that have begun, rows that are in the log."""
        own = self._own(writer)
        found: dict[int, WriterRow] = {}
        for _, number, row in self._rows(writer):
            if own is not None and _is_of(row, own):
                known = found.setdefault(number % PARTS_MAX, WriterRow(own.checkpoint, "", own.batch))
                found[number % PARTS_MAX] = msgspec.structs.replace(
                    known, chunks=max(known.chunks, row.chunks), row_count=known.row_count + row.row_count
                )
        return dict(sorted(found.items()))

    def _rows(self, writer: str) -> Iterator[tuple[int, int, WriterRow]]:
        """Yield (partition, number, row) of all pieces that are remembered, of whichever batch."""
        for partition, table in enumerate(self._tables):
            for number, row in table.part_rows(writer):
                yield partition, number, row

    # ---- what is to be done

    def next_step(self, mark: WriterMark, rows: ChunkRows) -> BatchStep:
        """Say what is to be done next, on the present tables.

        Args:
            mark: Its digest does not matter. WHOLE is chunk 0 of part 0, and the end.
            rows: Of CHUNK and WHOLE.

        """
        fault = msgspec.structs.replace(mark, digest=_NOTHING).fault
        if fault:
            return _refused(f"writer {mark.writer[:40]!r}: {fault}")
        own = self._own(mark.writer)
        if mark.kind is MarkKind.FORGET:
            if own is not None and own.checkpoint != mark.checkpoint:
                return _refused(
                    f"writer {mark.writer!r}: it is of checkpoint {own.checkpoint!r}, not {mark.checkpoint!r}"
                )
            return self.forget_step(mark.writer)
        if own is None and mark.is_passing and mark.kind is not MarkKind.BEGIN:
            reason = f"writer {mark.writer!r}: there is none, its batch has ended or it was forgotten"
            return BatchStep(MarkVerdict.GONE, reason=reason)
        home = self.home(mark.writer)
        begun = self._tables[home].judge(
            msgspec.structs.replace(mark, kind=MarkKind.BEGIN, part=0, chunk=0, is_repeatable=False)
        )
        if begun.standing is MarkVerdict.DONE and own is not None and own.is_ended and mark.is_passing:
            return self.forget_step(mark.writer)
        due = self.due_step(mark.writer)
        if due.standing is MarkVerdict.APPLY:
            return due
        if begun.standing is MarkVerdict.APPLY and begun.records:
            return BatchStep(MarkVerdict.APPLY, (BatchPiece(home, (), begun.records),))
        if begun.standing is not MarkVerdict.APPLY or mark.kind is MarkKind.BEGIN:
            done = MarkVerdict.DONE if begun.standing is MarkVerdict.APPLY else begun.standing
            return BatchStep(done, reason=begun.reason)
        assert own is not None, "a writer that there is none of begins with a record"
        if mark.kind is MarkKind.WHOLE:
            return self._whole_step(mark, rows, own)
        return self._chunk_step(mark, rows, own) if mark.kind is MarkKind.CHUNK else self._end_step(mark, own)

    def _whole_step(self, mark: WriterMark, rows: ChunkRows, own: WriterRow) -> BatchStep:
        if len(rows):
            step = self._chunk_step(mark, rows, own)
            if step.standing is not MarkVerdict.DONE:
                return step
        return self._end_step(msgspec.structs.replace(mark, parts=((0, 1),) if len(rows) else ()), own)

    def _chunk_step(self, mark: WriterMark, rows: ChunkRows, own: WriterRow) -> BatchStep:
        """Find the pieces that are in the log, each under the layout of its time; the rest is to be appended."""
        at = f"writer {mark.writer!r}, batch {mark.batch}, part {mark.part}"
        part, chunk = (0, 0) if mark.kind is MarkKind.WHOLE else (mark.part, mark.chunk)
        reached, left = 0, dict.fromkeys(range(len(rows)))
        for generation, count in enumerate(self._counts):
            found = self._found(mark.writer, part, generation, own)
            reached = max([reached, *(row.chunks for row in found.values())])
            pieces = rows.pieces(count) if left else {}
            taken: list[int] = []
            for partition, row in found.items():
                digest = _digest_at(row, chunk)
                if digest == _NOTHING:
                    continue
                piece = tuple(number for number in pieces.get(partition, ()) if number in left)
                if not piece or rows.digest(piece) != digest:
                    return _refused(_other_rows(at, chunk))
                taken += piece
            for number in taken:
                del left[number]
        if chunk > reached:
            return _refused(f"{at}: chunk {chunk} comes before chunk {reached}")
        if not left:
            return _DONE
        if chunk < reached - 1:  # All of it was there before the next one came.
            return _refused(_other_rows(at, chunk))
        return BatchStep(MarkVerdict.APPLY, tuple(self._pieces(mark.writer, part, chunk, rows, left, own)))

    def _found(self, writer: str, part: int, generation: int, own: WriterRow) -> dict[int, WriterRow]:
        """Return, by partition, what was appended of a part of the present batch in one generation."""
        number = part + generation * PARTS_MAX
        rows = {place: self._tables[place].row(writer, number) for place in range(self._counts[generation])}
        return {place: row for place, row in rows.items() if row is not None and _is_of(row, own)}

    def _pieces(
        self, writer: str, part: int, chunk: int, rows: ChunkRows, left: dict[int, None], own: WriterRow
    ) -> Iterator[BatchPiece]:
        generation = len(self._counts) - 1
        number = part + generation * PARTS_MAX
        found = self._found(writer, part, generation, own)
        for partition, of_piece in rows.pieces(self._counts[-1]).items():
            piece = tuple(one for one in of_piece if one in left)
            if not piece:
                continue
            row = found.get(partition) or WriterRow(own.checkpoint, "", own.batch)
            changed = msgspec.structs.replace(
                row,
                chunks=chunk + 1,
                digests=row.digests.ljust(chunk * DIGEST_BYTES, b"\0") + rows.digest(piece),
                row_count=row.row_count + len(piece),
            )
            told = (KernelRecord.WRITER_MARKED, (writer, number, *msgspec.structs.astuple(changed)))
            yield BatchPiece(partition, piece, (*self._outdated(writer, partition, generation, own), told))

    def _outdated(self, writer: str, partition: int, generation: int, own: WriterRow) -> Iterator[WriterRecord]:
        """Yield records that forget what is of an earlier batch and layout: no later batch writes over it."""
        for number, row in self._tables[partition].part_rows(writer):
            if number < generation * PARTS_MAX and not _is_of(row, own):
                yield KernelRecord.WRITER_FORGOTTEN, (writer, number)

    def _end_step(self, mark: WriterMark, own: WriterRow) -> BatchStep:
        named = dict(mark.parts)
        found = {part: row.chunks for part, row in self.parts(mark.writer).items()}
        for part, chunks in named.items():
            if found.get(part, 0) != chunks:
                return _refused(
                    f"writer {mark.writer!r}, batch {mark.batch}: its end names {chunks} chunks of part {part}, "
                    f"{found.get(part, 0)} were applied"
                )
        others = found.keys() - named.keys()
        if others:
            return _refused(
                f"writer {mark.writer!r}, batch {mark.batch}: part {min(others)} was applied when the batch was run "
                "before, and is none of it now: its rows may not be written twice. Give it up by `rsm log writer "
                "forget`"
            )
        home = self.home(mark.writer)
        row_count = self._row_counts(mark.writer, own).get(home, 0)
        ended = msgspec.structs.replace(own, is_ended=True, row_count=row_count)
        return BatchStep(MarkVerdict.APPLY, (BatchPiece(home, (), (_own_record(mark.writer, ended),)),))

    def _row_counts(self, writer: str, own: WriterRow) -> dict[int, int]:
        """Return how many rows of the present batch are in each partition that has some."""
        found: dict[int, int] = {}
        for partition, _, row in self._rows(writer):
            if _is_of(row, own):
                found[partition] = found.get(partition, 0) + row.row_count
        return found

    # ---- what follows from what is there

    def due_step(self, writer: str) -> BatchStep:
        """Return the step that goes before all else: partitions are told of an end, or what was begun is forgotten.

        Returns:
            DONE if there is none.

        """
        own = self._own(writer)
        if own is not None and own.batch == _GIVEN_UP:
            return self.forget_step(writer)
        pieces = tuple(BatchPiece(partition, (), (told,)) for partition, told in self._untold(writer).items())
        return BatchStep(MarkVerdict.APPLY, pieces, is_due=True) if pieces else _DONE

    def _untold(self, writer: str) -> dict[int, WriterRecord]:
        """Return by partition what tells of an end, where it has rows of the batch and does not know that."""
        own = self._own(writer)
        if own is None or not own.is_ended:
            return {}
        found: dict[int, WriterRecord] = {}
        for partition, row_count in self._row_counts(writer, own).items():
            known = self._tables[partition].get(writer)
            if known is None or not _has_ended(known, own):
                ended = WriterRow(own.checkpoint, "", own.batch, row_count=row_count, is_ended=True)
                found[partition] = _own_record(writer, ended)
        return found

    def forget_step(self, writer: str) -> BatchStep:
        """Return the next step in which a writer is forgotten; DONE if nothing is known of it."""
        home, untold = self.home(writer), self._untold(writer)
        pieces: list[BatchPiece] = []
        for partition, table in enumerate(self._tables):
            forgotten = table.forgetting(writer)
            if partition in untold:  # In one entry: a reader is to tell it from a batch that was given up.
                told = (KernelRecord.WRITER_FORGOTTEN, (writer, OWN_PART))
                forgotten = (untold[partition], *([] if told in forgotten else [told]), *forgotten)
            if forgotten:
                pieces.append(BatchPiece(partition, (), forgotten))
        away = tuple(piece for piece in pieces if piece.partition != home)
        own = self._own(writer)
        if away and own is not None and not own.is_ended:
            given_up = msgspec.structs.replace(own, batch=_GIVEN_UP, row_count=0, is_ended=True)
            away = (BatchPiece(home, (), (_own_record(writer, given_up),)),)
        return BatchStep(MarkVerdict.APPLY, away or tuple(pieces), is_due=True) if pieces else _DONE

    def hand_over_step(self, writer: str, checkpoint: str) -> BatchStep:
        """Return the step that gives a writer to another checkpoint; DONE if it has it, or there is no such writer."""
        own = self._own(writer)
        if own is None or own.checkpoint == checkpoint:
            return _DONE
        due = self.due_step(writer)
        if due.standing is MarkVerdict.APPLY:
            return due
        home = self.home(writer)
        piece = BatchPiece(home, (), self._tables[home].handing_over(writer, checkpoint))
        return BatchStep(MarkVerdict.APPLY, (piece,))


def _is_of(row: WriterRow, own: WriterRow) -> bool:
    return row.batch == own.batch and row.checkpoint == own.checkpoint


def _has_ended(told: WriterRow, own: WriterRow) -> bool:
    """Return whether an own row, of whichever partition, says that the batch of the one at home has ended."""
    return told.is_ended and _is_of(told, own)


def _own_record(writer: str, row: WriterRow) -> WriterRecord:
    return KernelRecord.WRITER_MARKED, (writer, OWN_PART, *msgspec.structs.astuple(row))


def _digest_at(row: WriterRow, chunk: int) -> bytes:
    """Return the digest of the piece of a chunk; `_NOTHING` = there is none, or none yet."""
    return row.digests[chunk * DIGEST_BYTES : (chunk + 1) * DIGEST_BYTES] or _NOTHING


def _refused(reason: str) -> BatchStep:
    return BatchStep(MarkVerdict.REFUSED, reason=reason)


def _other_rows(at: str, chunk: int) -> str:
    return (
        f"{at}: chunk {chunk} was applied with other rows, when this batch was run before. Its rows may not be written "
        "twice: let the query give the same rows in the same order at each run (repartition by a column, "
        "sortWithinPartitions), or give the batch up by `rsm log writer forget`"
    )

"""A partitioned log in memory: what its one writer appends of batches, step by step, and what partitions then show."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import msgspec

from rsm_spark.core.batch_pieces import BatchStep, ChunkRows, PartitionedWriters
from rsm_spark.core.writer_marks import MarkKind, WriterMark
from rsm_spark.core.writers import MarkVerdict
from tests.unit.rsm_spark.core.composed_log import ComposedLog, shown_of

Row = tuple[bytes | None, bytes]

NOTHING = ChunkRows((), (), 0)


class PiecedLog:
    """A partitioned log as its writer has it: entries by partition, with what is remembered of writers.

    Args:
        partition_count: That it has first.

    Attributes:
        parts: Its partitions.
        rows: By partition, what was appended.
        counts: By generation, how many partitions there were.

    """

    def __init__(self, partition_count: int) -> None:
        self.parts = [ComposedLog() for _ in range(partition_count)]
        self.rows: list[list[Row]] = [[] for _ in range(partition_count)]
        self.counts = [partition_count]

    @property
    def writers(self) -> PartitionedWriters:
        return PartitionedWriters([part.writers for part in self.parts], self.counts)

    def grow(self, partition_count: int) -> None:
        self.counts.append(partition_count)
        while len(self.parts) < partition_count:
            self.parts.append(ComposedLog())
            self.rows.append([])

    def append(self, step: BatchStep, rows: ChunkRows = NOTHING, only: Sequence[int] | None = None) -> None:
        """Append the pieces of a step, or some of them: then somebody died."""
        for number, piece in enumerate(step.pieces):
            if only is None or number in only:
                sent = [(rows.keys[row], rows.payloads[row]) for row in piece.rows]
                self.put(piece.partition, sent, piece.records)

    def put(self, partition: int, sent: Sequence[Row], records: Sequence[tuple[int, tuple[object, ...]]] = ()) -> None:
        """Append to one partition."""
        part = self.parts[partition]
        part.queue.add([payload for _, payload in sent], [key for key, _ in sent], None, lambda: None, None, records)
        part.flush()
        self.rows[partition] += sent

    def send(self, mark: WriterMark, *sent: Row) -> BatchStep:
        """Carry a mark out; return the last step, with APPLY if anything was appended."""
        rows, was_done = chunk_rows(mark, sent), False
        for _ in range(20):
            step = self.writers.next_step(mark, rows)
            if step.standing is not MarkVerdict.APPLY:
                is_done = step.standing in (MarkVerdict.DONE, MarkVerdict.GONE)
                return step._replace(standing=MarkVerdict.APPLY) if was_done and is_done else step
            self.append(step, rows)
            was_done = True
        raise AssertionError("it never ends")

    def open_anew(self) -> None:
        """Do what the next writer of the log does first."""
        for name in self.writers.names():
            while (step := self.writers.due_step(name)).standing is MarkVerdict.APPLY:
                self.append(step)

    def payloads(self) -> Counter[bytes]:
        return Counter(payload for rows in self.rows for _, payload in rows)

    def shown(self, rng: random.Random | None = None) -> list[list[bytes]]:
        """Return by partition what a reader of finished batches sees, reading it in ranges that chance cuts."""
        found: list[list[bytes]] = []
        for part in self.parts:
            end = len(part.entries)
            cuts = [0, *sorted(rng.sample(range(end), k=min(5, end)) if rng else ()), end]
            ranges = zip(cuts, cuts[1:], strict=False)
            found.append([payload for first, last in ranges for _, payload in shown_of(part, first, last)])
        return found


def chunk_rows(mark: WriterMark, sent: Sequence[Row]) -> ChunkRows:
    return ChunkRows([payload for _, payload in sent], [key for key, _ in sent], mark.batch + mark.part + mark.chunk)


def make_mark(
    kind: MarkKind, part: int = 0, chunk: int = 0, *, batch: int = 0, run: str = "r1", writer: str = "w", **more: object
) -> WriterMark:
    return msgspec.structs.replace(WriterMark(writer, kind, "c", run, batch, part, chunk), **more)


def make_end(*parts: tuple[int, int], **more: object) -> WriterMark:
    return make_mark(MarkKind.END, parts=parts, **more)  # type: ignore[arg-type]


def make_rows(name: str, count: int) -> list[Row]:
    return [(b"k%d" % number, f"{name}.{number}".encode()) for number in range(count)]

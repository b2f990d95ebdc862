"""Marks of a batch: what a task says of its part, and the driver of the whole. Pure.

1. Tasks send the chunks of the parts that are not kept.
2. The driver sends the whole batch in one command if every part was kept and they fit; readers then see all of it at
   once. Else it sends the parts that were kept as chunks, then the end, which names every part.

Nothing is lost whoever dies when: the batch is run again, and what is in the state already is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from pyspark.sql.datasource import WriterCommitMessage

from connectors.errors import OptionError
from connectors.sink.commands import RowCommands
from rsm_spark.core.writer_marks import MarkKind, WriterMark, digest_after, digest_of


class BatchName(NamedTuple):
    """Name of a batch: all that its marks have in common.

    Attributes:
        writer: See `WriterMark`, as for the others.
        checkpoint: What counts the batches.
        run: One start of it.
        batch: Number.
        take_over: Checkpoint whose place this one may take.
        is_passing: The writer is forgotten when the batch has ended.

    """

    writer: str
    checkpoint: str
    run: str
    batch: int
    take_over: str = ""
    is_passing: bool = False


@dataclass(frozen=True)
class PartMessage(WriterCommitMessage):
    """Message of a task to the driver.

    Attributes:
        name: Of the batch.
        part: Number of the part.
        row_count: Its rows.
        size: Their bytes.
        sent: Chunks that were sent.
        kept: Commands of its chunks if none was sent.
        conflict_count: Rows in conflict, in what was sent.
        start_ns: When the task began.

    """

    name: BatchName
    part: int
    row_count: int
    size: int
    sent: int
    kept: tuple[bytes, ...]
    conflict_count: int
    start_ns: int = 0


def chunk_mark(
    name: BatchName, part: int, number: int, command: bytes, row_count: int, *, is_repeatable: bool
) -> WriterMark:
    """Return the mark of a chunk."""
    return WriterMark(
        name.writer,
        MarkKind.CHUNK,
        name.checkpoint,
        name.run,
        name.batch,
        part,
        number,
        digest_of(command),
        row_count,
        is_repeatable,
        name.is_passing,
        name.take_over,
        (),
        command,
    )


def call_marks(name: BatchName, part: int, first: int, digest: bytes, calls: Sequence[bytes]) -> list[WriterMark]:
    """Return the marks of calls, each of which follows the one before.

    Args:
        name: Of the batch.
        part: They are of.
        first: Number of the first one.
        digest: Of all calls of the part before; see `digest_after`.
        calls: Commands of the machine.

    """
    marks: list[WriterMark] = []
    for number, call in enumerate(calls, first):
        mark = chunk_mark(name, part, number, call, 1, is_repeatable=False)
        marks.append(msgspec.structs.replace(mark, digest=digest, is_call=True))
        digest = digest_after(digest, call)
    return marks


def begin_mark(name: BatchName) -> WriterMark:
    """Return the mark of a beginning."""
    return _mark(name, MarkKind.BEGIN, 0)


def forget_mark(name: BatchName) -> WriterMark:
    """Return the mark that has a writer forgotten."""
    return _mark(name, MarkKind.FORGET, 0)


def end_marks(messages: Sequence[PartMessage], commands: RowCommands) -> Iterator[WriterMark]:
    """Yield what the driver sends, in this order, when all tasks have ended.

    Args:
        messages: Of all tasks, one at least.
        commands: Of the rows' kind.

    Raises:
        OptionError: The rows have an order, and are too many to be in several parts.

    """
    name = messages[0].name
    repeatable = commands.is_repeatable
    row_count = sum(message.row_count for message in messages)
    size = sum(message.size for message in messages)
    ordered = sorted(messages, key=lambda message: message.part)
    limits = commands.limits
    is_small = row_count <= limits.whole_rows and size <= limits.whole_bytes
    if is_small and not any(message.sent for message in messages):
        payload = commands.joined([command for message in ordered for command in message.kept]) if row_count else b""
        yield _mark(name, MarkKind.WHOLE, row_count, is_repeatable=repeatable, payload=payload)
        return
    if commands.is_ordered:
        check_order([message.part for message in ordered if message.row_count])
    for message in ordered:
        left = message.row_count
        for number, command in enumerate(message.kept):
            counted = left if number == len(message.kept) - 1 else 0
            yield chunk_mark(name, message.part, number, command, counted, is_repeatable=repeatable)
    parts = tuple((message.part, message.sent or len(message.kept)) for message in ordered)
    yield _mark(name, MarkKind.END, row_count, is_repeatable=repeatable, parts=tuple(one for one in parts if one[1]))


def check_order(parts: Sequence[int]) -> None:
    """Check that rows of a batch that is not one command, and have an order, are in one part.

    Args:
        parts: That have rows.

    Raises:
        OptionError: They are not.

    """
    if len(parts) > 1:
        raise OptionError(
            "sink ledger, as=log: with a column txid a batch has up to 10,000 rows and 3 MiB, spread evenly over its "
            "partitions, or one partition: transaction ids never fall along a log, and partitions are written in any "
            "order. Let the query end with coalesce(1).sortWithinPartitions('txid'), or write smaller batches "
            "(maxFilesPerTrigger, maxOffsetsPerTrigger). If this batch has begun, `rsm log writer forget` gives it up"
        )


def _mark(
    name: BatchName,
    kind: MarkKind,
    row_count: int,
    *,
    is_repeatable: bool = False,
    parts: tuple[tuple[int, int], ...] = (),
    payload: bytes = b"",
) -> WriterMark:
    return WriterMark(
        name.writer,
        kind,
        name.checkpoint,
        name.run,
        name.batch,
        row_count=row_count,
        is_repeatable=is_repeatable,
        is_passing=name.is_passing,
        takes_over_from=name.take_over,
        parts=parts,
        payload=payload,
    )

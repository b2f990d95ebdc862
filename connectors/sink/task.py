"""Work of a Spark task that writes: its rows become chunks, and the chunks go to the leader or to the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from connectors.sink.chunks import ChunkSplitter
from connectors.sink.commands import RowCommands
from connectors.sink.links import link_of
from connectors.sink.log_rows import behind_the_log
from connectors.sink.marks import BatchName, PartMessage, call_marks, check_order, chunk_mark
from connectors.sink.options import SinkOptions
from rsm_spark.core.plain_log import TransactionIdError
from rsm_spark.core.writer_marks import DIGEST_BYTES, MarkedReply, MarkedStatus, digest_after


def write_part(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, commands: RowCommands, name: BatchName, part: int
) -> PartMessage:
    """Write the rows of a partition, or keep them for the driver.

    One chunk is on its way while the next is made: a leader whose queue is full slows the task down.

    Args:
        batches: The rows.
        options: Of the query.
        commands: Of the rows' kind.
        name: Of the batch.
        part: Number of the partition.

    Raises:
        BadRowError: A row cannot be written.
        OptionError: The rows have an order, and are too many to be in several partitions.
        WriterRefusedError, InvalidCommandError: The leader refuses the chunk.
        NoLeaderError, OverloadedError, OutcomeUnknownError: It was not written in time; running it again is safe.

    """
    if commands.are_calls:
        return _make_calls(batches, options, commands, name, part)
    cutter = ChunkSplitter[Any](part, commands.limits)
    sender = _Sender(options, commands, name, part)
    for batch in batches:
        for item, size in commands.items(batch, part):
            cutter.add(item, size)
        if commands.is_ordered and part and not cutter.is_kept:
            check_order([part, part - 1])
        for chunk in cutter.take():
            sender.send(commands.command(chunk), len(chunk))
    is_kept = cutter.is_kept
    left = [(commands.command(chunk), len(chunk)) for chunk in cutter.finish()]
    if not is_kept:
        for command, count in left:
            sender.send(command, count)
        sender.wait()
    kept = tuple(command for command, _ in left) if is_kept else ()
    return PartMessage(name, part, cutter.row_count, cutter.size, sender.sent, kept, sender.conflict_count)


def _make_calls(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, commands: RowCommands, name: BatchName, part: int
) -> PartMessage:
    """Send each row as a command of its own, many at a time; those of one time are on their way while the next come."""
    cutter = ChunkSplitter[Any](part, commands.limits)
    digest = bytes(DIGEST_BYTES)
    sent = refused = 0
    flying: Future[list[MarkedReply]] | None = None

    def send(calls: Sequence[bytes]) -> None:
        nonlocal digest, sent, flying
        wait()
        marks = call_marks(name, part, sent, digest, calls)
        digest = digest_after(marks[-1].digest, calls[-1])
        sent += len(calls)
        flying = link_of(options).start_calls(marks, options.patience_s)

    def wait() -> None:
        nonlocal refused, flying
        if flying is not None:
            refused += sum(reply.status is MarkedStatus.DECLINED for reply in flying.result())
            flying = None

    for batch in batches:
        for item, size in commands.items(batch, part):
            cutter.add(item, size)
        for calls in cutter.take():
            send(calls)
    for calls in cutter.finish():
        send(calls)
    wait()
    return PartMessage(name, part, cutter.row_count, cutter.size, sent, (), refused)


class _Sender:
    """Sends the chunks of one part, in order."""

    def __init__(self, options: SinkOptions, commands: RowCommands, name: BatchName, part: int) -> None:
        self.sent = 0
        self.conflict_count = 0
        self._options = options
        self._commands = commands
        self._name = name
        self._part = part
        self._flying: Future[bytes] | None = None
        self._command = b""  # What is on its way.
        self._row_count = 0  # Its rows.
        self._rows_before = 0  # Rows of the part that were sent before it.

    def send(self, command: bytes, row_count: int) -> None:
        self.wait()
        repeatable = self._commands.is_repeatable
        mark = chunk_mark(self._name, self._part, self.sent, command, row_count, is_repeatable=repeatable)
        self._flying = link_of(self._options).start(mark, self._options.patience_s, self._commands.is_busy)
        self._command, self._row_count = command, row_count
        self.sent += 1

    def wait(self) -> None:
        """Wait until the leader has answered."""
        flying, self._flying = self._flying, None
        if flying is not None:
            try:
                reply = flying.result()
            except TransactionIdError as error:
                raise behind_the_log(self._part, self._rows_before, self._command, error) from error
            self.conflict_count += self._commands.conflict_count(reply, self._row_count)
            self._rows_before += self._row_count

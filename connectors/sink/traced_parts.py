"""Spans of what a sink writes: a step of the batch for each part, one for its end, and the batch itself.

A stream's batch has the trace of its micro-batch. So has a batch that `foreachBatch` writes, by its option
`checkpoint`: the micro-batch itself is told by nobody there, since it may write several. Any other batch has a trace of
its own.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from connectors.sink.commands import RowCommands
from connectors.sink.marks import BatchName, PartMessage
from connectors.sink.options import BATCH_CHECKPOINT, SinkOptions
from connectors.sink.task import write_part
from connectors.source.traced_batches import TracedBatch, trace_of, traced_batch, traced_step


def write_traced(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, commands: RowCommands, name: BatchName, part: int
) -> PartMessage:
    """Write the rows of a partition as a step of their batch's trace; see `write_part`."""
    start_ns = time.time_ns()
    trace = trace_of(options)
    with traced_step(trace, _traced_name(name), "write part", log=options.log, part=part) as span:
        message = write_part(batches, options, commands, name, part)
        if span is not None:
            span.set(count=message.row_count, bytes=message.size)
    return message if trace is None else dataclasses.replace(message, start_ns=start_ns)


@contextmanager
def ended_trace(messages: list[WriterCommitMessage | None], options: SinkOptions, *, is_whole: bool) -> Iterator[None]:
    """Have what this block does be the end of a batch.

    Args:
        messages: Of its tasks.
        options: Of the query.
        is_whole: The batch itself is told, too, when it is over.

    """
    parts = [message for message in messages if isinstance(message, PartMessage)]
    trace = trace_of(options) if parts else None
    if trace is None:
        yield
        return
    name = _traced_name(parts[0].name)
    start_ns = min(part.start_ns for part in parts)
    whole = trace if is_whole else None
    rows = sum(part.row_count for part in parts)
    with (
        traced_batch(whole, name, start_ns, log=options.log, writer=parts[0].name.writer, count=rows),
        traced_step(trace, name, "commit", log=options.log),
    ):
        yield


def _traced_name(name: BatchName) -> TracedBatch:
    return TracedBatch(name.run if name.checkpoint == BATCH_CHECKPOINT else name.checkpoint, name.batch)

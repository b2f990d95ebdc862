"""The writers that Spark calls: on executors a part of a batch, on the driver its end.

Spark pickles them from process to process: nothing is connected before it is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from connectors.errors import OptionError
from connectors.plain_errors import tells_plainly
from connectors.sink.commands import commands_of
from connectors.sink.described_table import with_table
from connectors.sink.links import link_of
from connectors.sink.log_rows import behind_the_log, first_by_txid
from connectors.sink.marks import BatchName, PartMessage, begin_mark, end_marks, forget_mark
from connectors.sink.options import BATCH_CHECKPOINT, SinkOptions
from connectors.sink.traced_parts import ended_trace, write_traced
from connectors.source.traced_batches import BATCH_ID, QUERY_ID
from rsm_spark.core.plain_log import TransactionIdError

_LOGGER = logging.getLogger(__name__)
_RUN_ID = "spark.jobGroup.id"
"""Local property of a task of a stream, beside number of the batch and id of its checkpoint: that of this start."""
_PASSING = "spark/"
"""Beginning of the names of writers that a batch without the option `writer` makes."""


@tells_plainly("write", "commit", "abort")
class LedgerStreamWriter(DataSourceStreamArrowWriter):
    """Writer of a stream.

    Args:
        options: Of the query.
        schema: Columns of the frame.

    Raises:
        OptionError: They are none that can be written.

    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        options = self._options = with_table(options)
        self._schema = schema
        commands_of(options, schema)

    def write(  # type: ignore[override]  # Spark has it so
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write one part of a batch; see `task.write_part`."""
        context = _task()
        names = {name: context.getLocalProperty(name) for name in (QUERY_ID, _RUN_ID, BATCH_ID)}
        missing = [name for name, value in names.items() if not value]
        if missing:
            raise OptionError(f"this task has no local property {missing[0]}: it is none of a stream's batch")
        name = BatchName(
            self._options.writer,
            str(names[QUERY_ID]),
            str(names[_RUN_ID]),
            int(str(names[BATCH_ID])),
            self._options.take_over,
        )
        commands = commands_of(self._options, self._schema)
        return write_traced(iterator, self._options, commands, name, context.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """End a batch."""
        with ended_trace(messages, self._options, is_whole=True):
            end_batch(messages, self._options, self._schema)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: what was written is marked, and the batch will be run again."""


@tells_plainly("write", "commit", "abort")
class LedgerBatchWriter(DataSourceArrowWriter):
    """Writer of a batch.

    Args:
        options: Of the query.
        schema: Columns of the frame.

    Raises:
        OptionError: They are none that can be written.

    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        options = self._options = with_table(options)
        self._schema = schema
        commands_of(options, schema)
        run = os.urandom(16).hex()
        self._name = BatchName(
            options.writer or f"{_PASSING}{run}",
            options.checkpoint,
            run,
            options.batch,
            options.take_over,
            is_passing=not options.writer,
        )
        if self._name.is_passing:
            link_of(options).send(begin_mark(self._name), options.patience_s)

    def write(  # type: ignore[override]  # Spark has it so
        self, iterator: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write one part; see `task.write_part`."""
        commands = commands_of(self._options, self._schema)
        return write_traced(iterator, self._options, commands, self._name, _task().partitionId())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """End the batch."""
        with ended_trace(messages, self._options, is_whole=self._options.checkpoint == BATCH_CHECKPOINT):
            end_batch(messages, self._options, self._schema)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - as Spark calls it
        """Have a passing writer forgotten; a writer with a name may write the batch again."""
        if self._name.is_passing:
            link_of(self._options).send(forget_mark(self._name), self._options.patience_s)


def end_batch(messages: list[WriterCommitMessage | None], options: SinkOptions, schema: StructType) -> None:
    """Write what tasks have kept, and the end of the batch; see `end_marks`.

    Raises:
        WriterRefusedError, InvalidCommandError: The leader refuses it; what tasks have written stays.
        BadRowError: A transaction id is below the log's last one; nothing was written.
        OptionError: Rows that have an order are too many to be in several parts.
        NoLeaderError, OverloadedError, OutcomeUnknownError: It did not end in time; running it again is safe.

    """
    parts = [message for message in messages if isinstance(message, PartMessage)]
    if not parts:
        return
    commands = commands_of(options, schema)
    link = link_of(options)
    conflicts = sum(part.conflict_count for part in parts)
    for mark in end_marks(parts, commands):
        try:
            reply = link.send(mark, options.patience_s, commands.is_busy)
        except TransactionIdError as error:
            raise behind_the_log(*first_by_txid([(part.part, part.kept) for part in parts]), error) from error
        conflicts += commands.conflict_count(reply, mark.row_count) if mark.payload else 0
    rows = sum(part.row_count for part in parts)
    name = parts[0].name
    who: dict[str, object] = {"log": options.log, "writer": name.writer, "batch": name.batch}
    _LOGGER.info("log %s, writer %s, batch %d: %d rows", options.log, name.writer, name.batch, rows, extra=who)
    if conflicts:
        _LOGGER.warning(
            "log %s, writer %s, batch %d: %d rows %s%s",
            options.log,
            name.writer,
            name.batch,
            conflicts,
            commands.conflict_words,
            f", they are kept under the prefix {options.conflict_prefix!r}" if options.conflict_prefix else "",
            extra=who,
        )


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark calls `write` in a task"
    return context

"""Rows of a part as commands: what is common to all kinds of rows, and which kind is whose.

A further kind is a module beside `map_rows`, a `RowKind`, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from connectors.sink.chunks import RowLimits
from connectors.sink.command_rows import CallCommands
from connectors.sink.log_rows import LogCommands
from connectors.sink.map_rows import MapCommands
from connectors.sink.options import RowKind, SinkOptions
from connectors.sink.service_rows import ServiceRowCommands
from connectors.sink.table_rows import TableCommands
from connectors.sink.task_rows import TaskCommands


class RowCommands(Protocol):
    """Makes commands of rows: an item is a row as its kind has it.

    Attributes:
        is_repeatable: See `WriterMark`.
        limits: Of chunks, and of a batch in one command.
        conflict_words: What became of rows in conflict.
        are_calls: Each row is a command of its own, and sent by its task.
        is_ordered: A batch that is not one command has its rows in one part.

    """

    is_repeatable: bool

    @property
    def limits(self) -> RowLimits: ...

    @property
    def conflict_words(self) -> str: ...

    @property
    def are_calls(self) -> bool: ...

    @property
    def is_ordered(self) -> bool: ...

    def items(self, batch: pa.RecordBatch, part: int) -> Iterator[tuple[Any, int]]:
        """Yield the rows of a batch, each with its bytes.

        Raises:
            BadRowError: One cannot be written.

        """
        ...

    def command(self, items: Sequence[Any]) -> bytes:
        """Return the command of a chunk."""
        ...

    def joined(self, commands: Sequence[bytes]) -> bytes:
        """Return one command of several chunks, in this order."""
        ...

    def conflict_count(self, reply: bytes, row_count: int) -> int:
        """Return how many of so many rows were in conflict, by the reply; b"" = nobody knows any more: 0."""
        ...

    def is_busy(self, reply: bytes) -> bool:
        """Return whether a refusal of the machine may be over soon: the command is then sent again."""
        ...


_MAKERS: dict[RowKind, Callable[[SinkOptions, StructType], RowCommands]] = {
    RowKind.MAP: MapCommands,
    RowKind.TASKS: TaskCommands,
    RowKind.COMMANDS: CallCommands,
    RowKind.TABLE: TableCommands,
    RowKind.LOG: LogCommands,
}


def commands_of(options: SinkOptions, schema: StructType) -> RowCommands:
    """Return what makes commands of the rows of a frame.

    Raises:
        OptionError: The frame's columns are not those of its kind.

    """
    return ServiceRowCommands(options, schema) if options.table_fields else _MAKERS[options.kind](options, schema)

"""Rows of a part as commands, for each kind of rows; what is common to all kinds is elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark.sql.types import StructType

from connectors.sink.map_rows import MapRows, check_map_schema, is_repeatable
from connectors.sink.options import SinkOptions
from ledger.decoding import msgpack_decoder
from rsm_spark.map.commands import RowWrite, WriteRows, WroteRows
from rsm_spark.map.messages import decode_reply, encode

Item = TypeVar("Item")

_ROW_BYTES = 64
"""Bytes of a row beside its values, in a command and in the entry."""


class RowCommands(Protocol[Item]):
    """Makes commands of rows.

    Attributes:
        is_repeatable: See `WriterMark`.

    """

    is_repeatable: bool

    def items(self, batch: pa.RecordBatch, part: int) -> Iterator[tuple[Item, int]]:
        """Yield the rows of a batch, each with its bytes.

        Raises:
            BadRowError: One cannot be written.

        """
        ...

    def command(self, items: Sequence[Item]) -> bytes:
        """Return the command of a chunk."""
        ...

    def joined(self, commands: Sequence[bytes]) -> bytes:
        """Return one command of several chunks, in this order."""
        ...

    def conflict_count(self, reply: bytes) -> int:
        """Return how many rows were in conflict, by the machine's reply; b"" = nobody knows any more: 0."""
        ...


class MapCommands:
    """Commands of the map: `WriteRows`.

    Args:
        options: Of the query.
        names: Columns of the frame.

    """

    def __init__(self, options: SinkOptions, names: list[str]) -> None:
        self.is_repeatable = is_repeatable(names)
        self._prefix = b"" if self.is_repeatable else options.conflict_prefix
        self._rows: dict[int, MapRows] = {}

    def items(self, batch: pa.RecordBatch, part: int) -> Iterator[tuple[RowWrite, int]]:
        """Yield the rows of a batch; see `RowCommands`."""
        prefix_bytes = len(self._prefix)
        rows = self._rows.get(part)
        if rows is None:
            rows = self._rows[part] = MapRows(part, prefix_bytes)
        for row in rows.writes(batch):
            yield row, 2 * len(row.key) + len(row.value or b"") + prefix_bytes + _ROW_BYTES

    def command(self, items: Sequence[RowWrite]) -> bytes:
        """Return the command of a chunk."""
        return encode(WriteRows(list(items), self._prefix))

    def joined(self, commands: Sequence[bytes]) -> bytes:
        """Return one command of several chunks."""
        decode = msgpack_decoder(WriteRows).decode
        return self.command([row for command in commands for row in decode(command).rows])

    def conflict_count(self, reply: bytes) -> int:
        """Return how many rows were in conflict."""
        wrote = decode_reply(reply) if reply else None
        return len(wrote.conflict_rows) if isinstance(wrote, WroteRows) else 0


def commands_of(options: SinkOptions, schema: StructType) -> MapCommands:
    """Return what makes commands of the rows of a frame.

    Raises:
        OptionError: The frame's columns are not those of its kind.

    """
    check_map_schema(schema)
    return MapCommands(options, schema.names)

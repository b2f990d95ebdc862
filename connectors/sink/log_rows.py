"""Rows of a data frame as records of a plain or a partitioned log.

payload    binary or string
key        binary or string, optional; null = the record has none
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
from pyspark.sql.types import StructType

from connectors.sink.chunks import RowLimits
from connectors.sink.columns import SinkColumn, bad_row, check_columns, values_of
from connectors.sink.options import SinkOptions
from ledger.decoding import msgpack_decoder

ROW_BYTES_MAX = 4_000_000
"""Key and payload of one row: they have to fit an entry, with what the log remembers of the writer."""

_ROW_BYTES = 64
"""Bytes of a record beside its key and payload, in the entry."""

LOG_COLUMNS = {"payload": SinkColumn.of_bytes(is_needed=True), "key": SinkColumn.of_bytes()}

LogRow = tuple[bytes | None, bytes]
"""Key and payload."""


class LogCommands:
    """Records of a log; see `RowCommands`. A command is the msgpack of rows, each key and payload.

    Args:
        options: Of the query.
        schema: Columns of the frame.

    Raises:
        OptionError: They are none of a log's.

    """

    limits = RowLimits()
    are_calls = False
    is_repeatable = False
    conflict_words = ""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:  # noqa: ARG002 - as all kinds are made
        check_columns("log", schema, LOG_COLUMNS)
        self._row_counts: dict[int, int] = {}

    def items(self, batch: pa.RecordBatch, part: int) -> Iterator[tuple[LogRow, int]]:
        """Yield the rows of a batch; a bad one is named before any is yielded."""
        first = self._row_counts.get(part, 0)
        payloads = values_of(batch.column("payload"), as_bytes=True)
        has_keys = "key" in batch.schema.names
        keys = values_of(batch.column("key"), as_bytes=True) if has_keys else [None] * len(payloads)
        rows: list[tuple[LogRow, int]] = []
        for number, (key, payload) in enumerate(zip(keys, payloads, strict=True), first):
            if payload is None:
                raise bad_row(part, number, "payload", "it is null", key)
            size = len(payload) + len(key or b"")
            if size > ROW_BYTES_MAX:
                fault = f"key and payload have {size:,} bytes: {ROW_BYTES_MAX:,} are the most"
                raise bad_row(part, number, "payload", fault, key)
            rows.append(((key, payload), size + _ROW_BYTES))
        self._row_counts[part] = first + batch.num_rows
        yield from rows

    def command(self, items: Sequence[LogRow]) -> bytes:
        """Return the rows of a chunk."""
        return msgspec.msgpack.encode(items)

    def joined(self, commands: Sequence[bytes]) -> bytes:
        """Return the rows of several chunks."""
        return self.command([row for command in commands for row in rows_of(command)])

    def conflict_count(self, reply: bytes, row_count: int) -> int:  # noqa: ARG002 - as `RowCommands` has it
        """Return 0: a log has no conflicts."""
        return 0

    def is_busy(self, reply: bytes) -> bool:  # noqa: ARG002 - as `RowCommands` has it
        """Return False: a refusal is for good."""
        return False


def rows_of(command: bytes) -> list[LogRow]:
    """Return the rows of a command."""
    return msgpack_decoder(list[LogRow]).decode(command) if command else []

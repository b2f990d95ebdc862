"""Rows of a data frame as writes of the map: types are checked before the first row, values before they are sent.

key        binary or string
value      binary or string; null only where `delete` is true
delete     boolean, optional: the key is to go
ttl_ms     integer, optional: the key goes by itself after so long; null or 0 = it stays
expected   binary, string or integer, optional: value or mod revision that the key must have; null = no such key
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from connectors.sink.chunks import RowLimits
from connectors.sink.columns import BYTES, INTEGERS, SinkColumn, bad_row, check_columns, values_of
from connectors.sink.options import SinkOptions
from ledger.decoding import msgpack_decoder
from rsm_spark.map.commands import RowWrite, WriteRows, WroteRows
from rsm_spark.map.messages import decode_reply, encode
from rsm_spark.map.row_writes import row_fault

_ROW_BYTES = 64
"""Bytes of a row beside its values, in a command and in the entry."""

MAP_COLUMNS = {
    "key": SinkColumn.of_bytes(is_needed=True),
    "value": SinkColumn.of_bytes(is_needed=True),
    "delete": SinkColumn.of_flags(),
    "ttl_ms": SinkColumn.of_integers(),
    "expected": SinkColumn(BYTES + INTEGERS, "binary, string or bigint"),
}


def check_map_schema(schema: StructType) -> None:
    """Check the columns of a frame that is to be written to the map; see `check_columns`."""
    check_columns("map", schema, MAP_COLUMNS)


def is_repeatable(names: list[str]) -> bool:
    """Return whether rows of these columns may be written twice: what is written does not hang on what was before."""
    return "expected" not in names


class MapRows:
    """Rows of one task.

    Args:
        part: Number of the partition, for errors.
        prefix_bytes: Of the prefix of conflicts.

    """

    def __init__(self, part: int, prefix_bytes: int) -> None:
        self._part = part
        self._prefix_bytes = prefix_bytes
        self._row_count = 0

    def writes(self, batch: pa.RecordBatch) -> Iterator[RowWrite]:
        """Yield the rows of a batch.

        Raises:
            BadRowError: One of them cannot be written; it is named, and none of the batch was yielded.

        """
        columns = {name: values_of(batch.column(name), as_bytes=True) for name in batch.schema.names}
        keys, values = columns["key"], columns["value"]
        count = batch.num_rows
        deletes = columns.get("delete") or [None] * count
        lives = columns.get("ttl_ms") or [0] * count
        expected: list[tuple[Any, ...]] = [()] * count
        if "expected" in columns:
            expected = [(one,) for one in columns["expected"]]
        rows: list[RowWrite] = []
        for number, (key, value, delete, ttl_ms, wanted) in enumerate(
            zip(keys, values, deletes, lives, expected, strict=True), self._row_count
        ):
            if key is None:
                raise bad_row(self._part, number, "key", "it is null")
            if value is None and not delete:
                fault = "it is null: a key is removed by a column delete that is true"
                raise bad_row(self._part, number, "value", fault, key)
            row = RowWrite(key, None if delete else value, 0 if delete else ttl_ms or 0, wanted)
            fault_of_row = row_fault(row, self._prefix_bytes)
            if fault_of_row is not None:
                column = "key" if "a key " in fault_of_row else "ttl_ms" if "time to live" in fault_of_row else "value"
                raise bad_row(self._part, number, column, fault_of_row, key)
            rows.append(row)
        self._row_count += count
        yield from rows


class MapCommands:
    """Commands of the map: `WriteRows`; see `RowCommands`.

    Args:
        options: Of the query.
        schema: Columns of the frame.

    Raises:
        OptionError: They are none of the map's.

    """

    limits = RowLimits()
    are_calls = False
    is_ordered = False
    conflict_words = "were in conflict and were left"

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_map_schema(schema)
        self.is_repeatable = is_repeatable(schema.names)
        self._prefix = b"" if self.is_repeatable else options.conflict_prefix
        self._rows: dict[int, MapRows] = {}

    def items(self, batch: pa.RecordBatch, part: int) -> Iterator[tuple[RowWrite, int]]:
        """Yield the rows of a batch."""
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

    def conflict_count(self, reply: bytes, row_count: int) -> int:  # noqa: ARG002 - as `RowCommands` has it
        """Return how many rows were in conflict."""
        wrote = decode_reply(reply) if reply else None
        return len(wrote.conflict_rows) if isinstance(wrote, WroteRows) else 0

    def is_busy(self, reply: bytes) -> bool:  # noqa: ARG002 - as `RowCommands` has it
        """Return False: the map refuses for good."""
        return False

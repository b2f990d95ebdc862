"""Rows of a data frame as rows of a described table: inserted, written over by their key, or deleted.

Columns are those of the table. `_op` (string, optional) says what is done with a row: `upsert`, or `delete`, for which
the key is enough; null = `upsert`. Of a table without a primary key rows are only added.

Of several rows of one key in a chunk the last one counts. A chunk deletes first, then writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from connectors.errors import OptionError
from connectors.sink.chunks import RowLimits
from connectors.sink.columns import INTEGERS, SinkColumn, bad_row, check_columns, values_of
from connectors.sink.options import RowKind, SinkOptions, TableColumn
from ledger.decoding import msgpack_decoder
from rsm_spark.sql.messages import SqlStatement, SqlTransaction, encode

OPERATION = "_op"
_DELETE = "delete"
_OPERATIONS = ("upsert", _DELETE)
_STATEMENT_ROWS_MAX = 250
_PARAMETERS_MAX = 30_000
_ROW_BYTES_MAX = 1024 * 1024
_ROW_BYTES = 60
"""Bytes of a row beside its values, in a command and in the entry."""
_WHOLE = (*INTEGERS, ByteType)
_REAL = (*_WHOLE, FloatType, DoubleType)
_TIME = (TimestampType, TimestampNTZType, StringType)
_ANY = (*_REAL, BooleanType, DecimalType, StringType, BinaryType, DateType, *_TIME)

# Words of a declared type, in the order in which SQLite looks for them, but for those that say more; then the types
# that fit, the same in words, and the one that a table of the catalog has.
_DECLARED: tuple[tuple[tuple[str, ...], tuple[type[DataType], ...], str, str], ...] = (
    (("BOOL",), (BooleanType, *_WHOLE), "boolean or an integer", "boolean"),
    (("TIMESTAMP", "DATETIME"), _TIME, "timestamp or string", "timestamp"),
    (("DATE",), (DateType, StringType), "date or string", "date"),
    (("INT", "SERIAL"), (BooleanType, *_WHOLE), "an integer", "bigint"),
    (("CHAR", "CLOB", "TEXT", "UUID", "JSON", "TIME"), (StringType,), "string", "string"),
    (("BLOB", "BYTEA"), (BinaryType,), "binary", "binary"),
    (("REAL", "FLOA", "DOUB"), _REAL, "double, float or an integer", "double"),
    (("NUM", "DEC"), (*_REAL, DecimalType), "decimal or a number", "decimal"),
)
_DIGITS = re.compile(r"\((\d{1,2})(?:,\s*(\d{1,2}))?\)")
_DIGITS_MAX = 38

TableRow = tuple[bool, tuple[Any, ...]]
"""A row: True = it is to go; and its values: all columns of the frame, or those of the key."""


class TableCommands:
    """Transactions of SQL; see `RowCommands`.

    Args:
        options: Of the query, with the table's columns.
        schema: Columns of the frame.

    Raises:
        OptionError: They do not fit the table.

    """

    limits = RowLimits(whole_rows=4_000, whole_bytes=2 * 1024 * 1024, chunk_rows=2_000)
    conflict_words = "were in conflict"
    are_calls = False
    is_ordered = False

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._table = options.table
        declared = {column.name: column for column in options.table_columns}
        keys = sorted((column for column in declared.values() if column.key_place), key=lambda one: one.key_place)
        self._keys = [column.name for column in keys]
        self._check(schema, declared)
        self._names = [name for name in schema.names if name != OPERATION]
        self._columns = [declared[name] for name in self._names]
        self._converts = [_convert(column) for column in self._columns]
        self._key_places = [self._names.index(name) for name in self._keys]
        self.is_repeatable = bool(self._keys)
        self._row_counts: dict[int, int] = {}
        shown = ", ".join(map(_quoted, self._names))
        self._insert = f"INSERT INTO {_quoted(self._table)} ({shown}) VALUES "  # noqa: S608 - names are quoted
        rest = [name for name in self._names if name not in self._keys]
        kept = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in rest)
        key = ", ".join(map(_quoted, self._keys))
        over = f" ON CONFLICT ({key}) DO {f'UPDATE SET {kept}' if kept else 'NOTHING'}"
        self._over = over if self._keys else ""
        self._delete = f"DELETE FROM {_quoted(self._table)} WHERE ({key}) IN (VALUES "  # noqa: S608 - the same

    def _check(self, schema: StructType, declared: Mapping[str, TableColumn]) -> None:
        columns = {
            name: SinkColumn(*_types_of(column.declared), is_needed=bool(column.key_place))
            for name, column in declared.items()
            if not column.is_generated
        }
        if self._keys:
            columns[OPERATION] = SinkColumn.of_text()
        elif OPERATION in schema.names:
            raise OptionError(
                f"sink ledger, as=table: table {self._table} has no primary key: rows are only added to it, without a "
                f"column {OPERATION}"
            )
        check_columns(RowKind.TABLE, schema, columns)
        if not [name for name in schema.names if name != OPERATION]:
            raise OptionError(f"sink ledger, as=table: the frame has no column of table {self._table}")

    def items(self, batch: pa.RecordBatch, part: int) -> Iterator[tuple[TableRow, int]]:
        """Yield the rows of a batch; a bad one is named before any is yielded."""
        first = self._row_counts.get(part, 0)
        count = batch.num_rows
        columns = [
            _converted(values_of(batch.column(name)), convert)
            for name, convert in zip(self._names, self._converts, strict=True)
        ]
        has_operation = OPERATION in batch.schema.names
        operations = values_of(batch.column(OPERATION)) if has_operation else [None] * count
        made: list[tuple[TableRow, int]] = []
        for number, (operation, *values) in enumerate(zip(operations, *columns, strict=True), first):
            row = self._row(part, number, operation, values)
            size = sum(len(value) if isinstance(value, str | bytes) else 9 for value in row[1])
            if size > _ROW_BYTES_MAX:
                longest = max(
                    range(len(values)), key=lambda at: len(v) if isinstance(v := values[at], str | bytes) else 0
                )
                fault = f"the row has {size:,} bytes, a row of a table {_ROW_BYTES_MAX:,} at most"
                raise bad_row(part, number, self._names[longest], fault, self._key(values) or None)
            made.append((row, 2 * size + _ROW_BYTES))
        self._row_counts[part] = first + count
        yield from made

    def _row(self, part: int, number: int, operation: str | None, values: Sequence[Any]) -> TableRow:
        key = self._key(values)
        if None in key:
            raise bad_row(part, number, self._keys[key.index(None)], "it is null: it is the table's key")
        if operation is not None and operation not in _OPERATIONS:
            fault = f"{operation!r:.40} is no operation: {' or '.join(_OPERATIONS)}"
            raise bad_row(part, number, OPERATION, fault, key)
        if operation == _DELETE:
            return True, key
        for column, value in zip(self._columns, values, strict=True):
            if value is None and column.is_filled:
                raise bad_row(part, number, column.name, "it is null: the table has it NOT NULL", key or None)
        return False, tuple(values)

    def _key(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values[place] for place in self._key_places)

    def command(self, items: Sequence[TableRow]) -> bytes:
        """Return the command of a chunk."""
        deleted, written = self._last_of_each_key(items)
        statements = [
            *self._statements(self._delete, ")", deleted, len(self._keys)),
            *self._statements(self._insert, self._over, written, len(self._names)),
        ]
        return encode(SqlTransaction(tuple(statements)))

    def _last_of_each_key(self, items: Sequence[TableRow]) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        if not self._keys:
            return [], [values for _, values in items]
        last: dict[tuple[Any, ...], TableRow] = {}
        for is_deleted, values in items:
            last[values if is_deleted else self._key(values)] = is_deleted, values
        rows = last.values()
        return [one for gone, one in rows if gone], [one for gone, one in rows if not gone]

    def _statements(self, begin: str, end: str, rows: Sequence[tuple[Any, ...]], width: int) -> Iterator[SqlStatement]:
        step = max(1, min(_STATEMENT_ROWS_MAX, _PARAMETERS_MAX // max(1, width)))
        place = f"({', '.join('?' * width)})"
        for at in range(0, len(rows), step):
            some = rows[at : at + step]
            yield SqlStatement(
                begin + ", ".join([place] * len(some)) + end, tuple(value for row in some for value in row)
            )

    def joined(self, commands: Sequence[bytes]) -> bytes:
        """Return one command of several chunks."""
        decode = msgpack_decoder(SqlTransaction).decode
        items: list[TableRow] = []
        for statement in (one for command in commands for one in decode(command).statements):
            is_deleted = statement.sql.startswith(self._delete)
            width = len(self._keys) if is_deleted else len(self._names)
            values = tuple(statement.parameters)
            items += [(is_deleted, values[at : at + width]) for at in range(0, len(values), width)]
        return self.command(items)

    def conflict_count(self, reply: bytes, row_count: int) -> int:  # noqa: ARG002 - as `RowCommands` has it
        """Return 0: the rows of a chunk are all written."""
        return 0

    def is_busy(self, reply: bytes) -> bool:  # noqa: ARG002 - as `RowCommands` has it
        """Return False: tables refuse for good."""
        return False


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _types_of(declared: str) -> tuple[tuple[type[DataType], ...], str]:
    found = _found(declared)
    if found is None:
        return _ANY, "a plain value"
    return found[1], f"{found[2]}, since the table declares it {declared}"


def _found(declared: str) -> tuple[tuple[str, ...], tuple[type[DataType], ...], str, str] | None:
    upper = declared.upper()
    return next((one for one in _DECLARED if any(mark in upper for mark in one[0])), None)


def declared_type(declared: str) -> str:
    """Return the type, in Spark's words, that a column of a table of the catalog has for a declared one."""
    found = _found(declared)
    if found is None:
        return "string"
    if found[3] != "decimal":
        return found[3]
    digits = _DIGITS.search(declared)
    precision, scale = (int(digits[1]), int(digits[2] or 0)) if digits else (_DIGITS_MAX, 18)
    return f"decimal({min(precision, _DIGITS_MAX)},{min(scale, precision, _DIGITS_MAX)})"


def _convert(column: TableColumn) -> Callable[[Any], Any]:
    has_zone = "TZ" in column.declared.upper() or "WITH TIME ZONE" in column.declared.upper()

    def convert(value: Any) -> Any:
        if isinstance(value, datetime):
            if value.tzinfo is not None:
                value = value.astimezone(UTC) if has_zone else value.astimezone(UTC).replace(tzinfo=None)
            return value.isoformat(" ")
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, Decimal):
            return str(value)
        return int(value) if isinstance(value, bool) else value

    return convert


_CONVERTED = (datetime, date, Decimal, bool)


def _converted(values: list[Any], convert: Callable[[Any], Any]) -> list[Any]:
    """Return values as SQLite has them: times, days and decimals as texts, booleans as numbers."""
    sample = next((value for value in values if value is not None), None)
    return [convert(value) for value in values] if isinstance(sample, _CONVERTED) else values

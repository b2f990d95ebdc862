"""Rows of a data frame as rows of a table of a service with typed commands: written by their key, or deleted.

Columns are those that the service describes, or some of them. `_op` (string, optional) says what is done with a row,
as for SQL tables: `upsert`, or `delete`, for which the key is enough; null = `upsert`. Of several rows of one key in a
chunk the last one counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
    StructType,
    TimestampType,
)

from connectors.errors import OptionError
from connectors.sink.chunks import RowLimits
from connectors.sink.columns import BYTES, INTEGERS, SinkColumn, bad_row, check_columns, values_of
from connectors.sink.options import RowKind, SinkOptions
from connectors.sink.table_rows import OPERATION
from ledger.decoding import msgpack_decoder
from rsm_spark.core.column_types import column_type
from rsm_spark.core.machine import Field, FieldType
from rsm_spark.core.typed_rows import WRITE, WrittenRows

_DELETE = "delete"
_OPERATIONS = ("upsert", _DELETE)
_ROW_BYTES_MAX = 1024 * 1024
_ROW_BYTES = 40
"""Bytes of a row beside its texts and bytes, in a command and in the entry."""
_WHOLE = (*INTEGERS, ByteType)
_TYPES: dict[FieldType, tuple[tuple[type[DataType], ...], str, str]] = {
    FieldType.INT: (_WHOLE, "an integer", "bigint"),
    FieldType.FLOAT: ((*_WHOLE, FloatType, DoubleType), "double, float or an integer", "double"),
    FieldType.BOOL: ((BooleanType,), "boolean", "boolean"),
    FieldType.STR: ((StringType,), "string", "string"),
    FieldType.BYTES: (BYTES, "binary or string", "binary"),
    FieldType.DECIMAL: ((*_WHOLE, DecimalType), "decimal or an integer", "decimal"),
    FieldType.TIMESTAMP: ((TimestampType,), "timestamp", "timestamp"),
    FieldType.DATE: ((DateType,), "date", "date"),
    FieldType.UUID: ((StringType,), "string", "string"),
    FieldType.JSON: ((StringType,), "string, with JSON in it", "string"),
    FieldType.LIST: ((ArrayType,), "array", "array"),
}
"""Of each type of a column: Spark's that fit, the same in words, and the one that a table of the catalog has."""
_READ: dict[FieldType, Callable[[Any], Any]] = {
    FieldType.FLOAT: float,
    FieldType.DECIMAL: Decimal,
    FieldType.UUID: UUID,
    FieldType.JSON: json.loads,
}
"""Values of Python out of those that Arrow gives."""
_COMMAND: msgspec.msgpack.Decoder[tuple[str, WrittenRows]] = msgpack_decoder(tuple[str, WrittenRows])

ServiceRow = tuple[bool, tuple[Any, ...]]
"""A row: True = it is to go; and its values as the log has them: all columns of the frame, or those of the key."""


class ServiceRowCommands:
    """Commands that write rows of a service's table; see `RowCommands`.

    Args:
        options: Of the query, with the table's fields.
        schema: Columns of the frame.

    Raises:
        OptionError: They do not fit the table.

    """

    limits = RowLimits(whole_rows=4_000, whole_bytes=2 * 1024 * 1024, chunk_rows=2_000)
    conflict_words = ""
    are_calls = False
    is_ordered = False
    is_repeatable = True

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._table = options.table
        fields = {field.name: field for field in options.table_fields}
        self._keys = [field.name for field in options.table_fields[: options.table_key_width]]
        columns = {name: SinkColumn(*_types_of(field), is_needed=name in self._keys) for name, field in fields.items()}
        check_columns(RowKind.TABLE, schema, {**columns, OPERATION: SinkColumn.of_text()})
        self._names = [name for name in schema.names if name != OPERATION]
        self._fields = [fields[name] for name in self._names]
        for field in self._fields:
            _check_items(field, schema[field.name].dataType)
        self._converts = [_convert(field) for field in self._fields]
        self._key_places = [self._names.index(name) for name in self._keys]
        self._row_counts: dict[int, int] = {}

    def items(self, batch: pa.RecordBatch, part: int) -> Iterator[tuple[ServiceRow, int]]:
        """Yield the rows of a batch; a bad one is named before any is yielded."""
        first = self._row_counts.get(part, 0)
        columns = [
            values_of(batch.column(field.name), as_bytes=field.type is FieldType.BYTES) for field in self._fields
        ]
        has_operation = OPERATION in batch.schema.names
        operations = values_of(batch.column(OPERATION)) if has_operation else [None] * batch.num_rows
        made: list[tuple[ServiceRow, int]] = []
        for number, (operation, *values) in enumerate(zip(operations, *columns, strict=True), first):
            row = self._row(part, number, operation, values)
            size = len(msgspec.msgpack.encode(row[1]))
            if size > _ROW_BYTES_MAX:
                fault = f"the row has {size:,} bytes, a row of a table {_ROW_BYTES_MAX:,} at most"
                raise bad_row(part, number, self._names[0], fault, self._key(values))
            made.append((row, 2 * size + _ROW_BYTES))
        self._row_counts[part] = first + batch.num_rows
        yield from made

    def _row(self, part: int, number: int, operation: str | None, values: Sequence[Any]) -> ServiceRow:
        given = self._key(values)
        if None in given:
            raise bad_row(part, number, self._keys[given.index(None)], "it is null: it is the table's key")
        if operation is not None and operation not in _OPERATIONS:
            raise bad_row(
                part, number, OPERATION, f"{operation!r:.40} is no operation: {' or '.join(_OPERATIONS)}", given
            )
        read: list[Any] = []
        for field, convert, value in zip(self._fields, self._converts, values, strict=True):
            if value is None and not field.nullable and operation != _DELETE:
                raise bad_row(part, number, field.name, "it is null: the table's column takes none", given)
            try:
                read.append(value if value is None or convert is None else convert(value))
            except (ValueError, ArithmeticError, RecursionError) as error:
                fault = f"{value!r:.60} is no {field.type_name}: {error}"
                raise bad_row(part, number, field.name, fault, given) from error
        return (True, self._key(read)) if operation == _DELETE else (False, tuple(read))

    def _key(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values[place] for place in self._key_places)

    def command(self, items: Sequence[ServiceRow]) -> bytes:
        """Return the command of a chunk."""
        last: dict[tuple[Any, ...], ServiceRow] = {}
        for is_deleted, values in items:
            last[values if is_deleted else self._key(values)] = is_deleted, values
        deleted = [values for is_deleted, values in last.values() if is_deleted]
        written = [values for is_deleted, values in last.values() if not is_deleted]
        return msgspec.msgpack.encode((WRITE, WrittenRows(self._table, tuple(self._names), written, deleted)))

    def joined(self, commands: Sequence[bytes]) -> bytes:
        """Return one command of several chunks."""
        asked = [_COMMAND.decode(command)[1] for command in commands]
        return self.command(
            [
                row
                for one in asked
                for row in (*((True, values) for values in one.deleted), *((False, values) for values in one.rows))
            ]
        )

    def conflict_count(self, reply: bytes, row_count: int) -> int:  # noqa: ARG002 - as `RowCommands` has it
        """Return 0: the rows of a chunk are all written."""
        return 0

    def is_busy(self, reply: bytes) -> bool:  # noqa: ARG002 - as `RowCommands` has it
        """Return False: services refuse for good."""
        return False


def spark_type(field: Field) -> str:
    """Return the type, in Spark's words, that a column of a table of the catalog has for a field."""
    word = _TYPES[field.type][2]
    if field.type is FieldType.DECIMAL:
        return f"decimal({field.precision},{field.scale})"
    return f"array<{spark_type(field.item)}>" if field.type is FieldType.LIST else word


def _types_of(field: Field) -> tuple[tuple[type[DataType], ...], str]:
    types, words, _ = _TYPES[field.type]
    return types, f"{words}, since the table has {field.type_name}"


def _check_items(field: Field, kind: DataType) -> None:
    if isinstance(kind, ArrayType) and not isinstance(kind.elementType, _TYPES[field.item.type][0]):
        found, (_, words, _) = kind.simpleString(), _TYPES[field.item.type]
        raise OptionError(
            f"sink ledger, as=table: column {field.name} is {found:.100}, its elements must be {words}, since the "
            f"table has {field.type_name}: cast it"
        )


def _convert(field: Field) -> Callable[[Any], Any] | None:
    """Return what makes a value of Arrow one of the log; None = they are the same."""
    if field.type is FieldType.LIST:
        item = _convert(field.item)
        return lambda values: [_item(item, one) for one in values]
    read, to_log = _READ.get(field.type), column_type(field).to_log
    if to_log is None:
        return read
    return to_log if read is None else lambda value: to_log(read(value))


def _item(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    if value is None:
        raise ValueError("an element is null")
    return value if convert is None else convert(value)

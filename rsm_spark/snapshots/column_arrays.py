"""Described columns in Spark, Arrow and Delta, from the log's values and back to the same. Pure.

| described | Spark and Delta | Arrow |
| --- | --- | --- |
| int, float, bool, str, bytes | bigint, double, boolean, string, binary | int64, double, bool, string, binary |
| decimal(p,s) | decimal(p,s) | decimal128(p, s) |
| timestamp, date | timestamp, date | timestamp[us, UTC], date32 |
| uuid, json | string | string |
| list(type) | array<type> | list<type> |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from rsm_spark.core.column_types import column_type
from rsm_spark.core.machine import Field, FieldType

_ARROW: Final[dict[FieldType, pa.DataType]] = {
    FieldType.INT: pa.int64(),
    FieldType.FLOAT: pa.float64(),
    FieldType.BOOL: pa.bool_(),
    FieldType.STR: pa.string(),
    FieldType.BYTES: pa.binary(),
    FieldType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    FieldType.DATE: pa.date32(),
    FieldType.UUID: pa.string(),
    FieldType.JSON: pa.string(),
}
Convert = Callable[[Any], Any]


def arrow_type(field: Field) -> pa.DataType:
    """Return a column's type in Arrow."""
    match field.type:
        case FieldType.DECIMAL:
            return pa.decimal128(field.precision, field.scale)
        case FieldType.LIST:
            return pa.list_(arrow_type(field.item))
    return _ARROW[field.type]


def to_arrow(field: Field) -> Convert | None:
    """Return the function that makes a value of the log one that Arrow takes for the column; None = Arrow takes it.

    It raises ValueError or ArithmeticError where a value does not fit.
    """
    match field.type:
        case FieldType.DECIMAL:
            return Decimal
        case FieldType.UUID:
            return _uuid_text
        case FieldType.LIST:
            return _each(to_arrow(field.item))
    return None  # Arrow counts microseconds and days as the log does.


def to_log(field: Field) -> Convert | None:
    """Return the way back, from what Arrow gives to Python; None = it is the log's."""
    match field.type:
        case FieldType.DECIMAL | FieldType.TIMESTAMP | FieldType.DATE:
            return column_type(field).to_log
        case FieldType.UUID:
            return _uuid_bytes
        case FieldType.LIST:
            return _each(to_log(field.item))
    return None


def converted(values: Sequence[Any], convert: Convert | None) -> Sequence[Any]:
    """Return values after a conversion; None stays."""
    return values if convert is None else [None if value is None else convert(value) for value in values]


def arrow_array(field: Field, values: Sequence[Any]) -> pa.Array[Any]:
    """Return a column of values of the log; None becomes null.

    Raises:
        pyarrow.ArrowException, TypeError, ValueError, ArithmeticError: A value does not fit its type.

    """
    return pa.array(converted(values, to_arrow(field)), arrow_type(field))


def _uuid_text(value: bytes) -> str:
    return str(UUID(bytes=value))


def _uuid_bytes(text: str) -> bytes:
    return UUID(text).bytes


def _each(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda values: [convert(value) for value in values]

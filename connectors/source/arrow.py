"""Columns of `connectors.source.schema` in Arrow: Spark refuses a batch whose names, types or order differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from connectors.source.schema import RowColumn
from connectors.spark_types import decimal_of, element_of

_HEADER: list[pa.Field[Any]] = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
_ARROW_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "array<struct<key:string,value:binary>>": pa.list_(pa.struct(_HEADER)),
    "map<string,binary>": pa.map_(pa.string(), pa.binary()),
}


def arrow_schema(columns: Sequence[RowColumn]) -> pa.Schema:
    """Return the schema of the batches."""
    return pa.schema([pa.field(column.name, _arrow_type(column.type)) for column in columns])


def _arrow_type(kind: str) -> pa.DataType:
    known = _ARROW_TYPES.get(kind)
    if known is not None:
        return known
    decimal, element = decimal_of(kind), element_of(kind)
    if decimal is not None:
        return pa.decimal128(*decimal)
    assert element is not None, kind
    return pa.list_(_arrow_type(element))


def binary_of(values: Sequence[bytes | memoryview]) -> pa.Array[Any]:
    """Return a binary column without nulls: one copy of each value, no object made; at most 2 GiB in all."""
    offsets: Any = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, values), dtype=np.int32, count=len(values)), out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(values))]
    )


def nulls(count: int, kind: pa.DataType) -> pa.Array[Any]:
    """Return a column without values."""
    return pa.array([None] * count, kind)


def repeated(value: str | None, count: int) -> pa.Array[Any]:
    """Return a string column that says the same in each row."""
    return pa.nulls(count, pa.string()) if value is None else pa.repeat(pa.scalar(value, pa.string()), count)


def chosen(values: Sequence[str | None], places: np.ndarray[Any, Any]) -> pa.Array[Any]:
    """Return a string column of few different values, by their places."""
    return pa.array(values, pa.string()).take(pa.array(places))

"""Columns of `connectors.source.schema` in Arrow: Spark refuses a batch whose names, types or order differ.

Columns are made from buffers where that can be. `pyarrow.array` and `pyarrow.scalar` look whether they were given
something of pandas, and import it for that: 1.5 s of processor in each new Python worker of Spark.
"""

from __future__ import annotations

import sys
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

_PYTHON_TYPES: dict[pa.DataType, type] = {
    pa.string(): str,
    pa.binary(): bytes,
    pa.bool_(): bool,
    pa.int32(): int,
    pa.int64(): int,
    pa.float64(): float,
    pa.timestamp("us", tz="UTC"): int,
    pa.date32(): int,
}
"""Types whose lists of values are taken as they are, if all have the type that stands here."""
_NUMPY_TYPES: dict[pa.DataType, Any] = {
    pa.bool_(): np.bool_,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
    pa.float64(): np.float64,
    pa.timestamp("us", tz="UTC"): np.int64,
    pa.date32(): np.int32,
}
_OFFSET_MAX = 2**31 - 1


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


class _Price:
    """Price of pandas: it is paid once by a process, which then makes columns of lists in a third of the time."""

    values_left = 20_000_000
    """So many values made without it cost as much as its import."""

    @classmethod
    def is_paid(cls, count: int) -> bool:
        """Return whether pandas is there, or worth its import by now."""
        cls.values_left -= count
        return cls.values_left < 0 or "pandas" in sys.modules


def column_of(values: Any, kind: pa.DataType, mask: Any = None) -> pa.Array[Any]:
    """Return a column.

    Args:
        values: An array of numpy; or a list of values of the type's own kind, and None.
        kind: Type of the column.
        mask: Rows without a value, as an array of booleans; None = those where a list has None.

    Raises:
        pa.ArrowException: A value does not fit, as for the next two.
        TypeError: Likewise.
        ValueError: Likewise.

    """
    if isinstance(values, np.ndarray):
        return _of_numbers(values, kind, mask)
    made = None if _Price.is_paid(len(values)) else _of_list(values, kind)
    return pa.array(values, kind) if made is None else made


def _of_list(values: Sequence[Any], kind: pa.DataType) -> pa.Array[Any] | None:
    """Return a column of a list; None if Arrow is to convert its values, or to say what does not fit."""
    kinds = set(map(type, values))
    has_nulls = type(None) in kinds
    kinds.discard(type(None))
    if not kinds:
        return nulls(len(values), kind)
    if kinds != {_PYTHON_TYPES.get(kind)}:
        return None
    mask = np.array([value is None for value in values]) if has_nulls else None
    if kind == pa.string():
        return _of_bytes([value.encode() if value else b"" for value in values], kind, mask)
    if kind == pa.binary():
        return _of_bytes([value or b"" for value in values] if has_nulls else values, kind, mask)
    try:
        numbers = np.array([value or 0 for value in values] if has_nulls else values, dtype=_NUMPY_TYPES[kind])
    except OverflowError:
        return None
    return _of_numbers(numbers, kind, mask)


def scalar_of(value: bool | int | str, kind: pa.DataType) -> pa.Scalar[Any]:
    """Return a value as Arrow compares it with columns."""
    made: pa.Scalar[Any] = column_of([value], kind)[0]
    return made


def _of_bytes(values: Sequence[bytes], kind: pa.DataType, mask: Any) -> pa.Array[Any]:
    sizes = np.fromiter(map(len, values), dtype=np.int64, count=len(values))
    offsets: Any = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] > _OFFSET_MAX:
        raise pa.ArrowCapacityError(f"a column of {offsets[-1]:,} bytes; {_OFFSET_MAX:,} fit a batch")
    buffers = [validity(mask), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _of_numbers(values: np.ndarray[Any, Any], kind: pa.DataType, mask: Any) -> pa.Array[Any]:
    count, wanted = len(values), _NUMPY_TYPES[kind]
    if values.dtype != wanted:
        values = values.astype(wanted)
    packed: Any = np.packbits(values, bitorder="little") if kind == pa.bool_() else np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, count, [validity(mask), pa.py_buffer(packed)])


def validity(mask: Any) -> pa.Buffer | None:
    """Return the bits of a column that tell where it has values: not where the mask is set; None = everywhere."""
    if mask is None:
        return None
    packed: Any = np.packbits(~mask, bitorder="little")
    return pa.py_buffer(packed)


def nulls(count: int, kind: pa.DataType) -> pa.Array[Any]:
    """Return a column without values."""
    whatever: Any = kind
    made: pa.Array[Any] = pa.nulls(count, whatever)
    return made


def repeated(value: str | None, count: int) -> pa.Array[Any]:
    """Return a string column that says the same in each row."""
    if value is None:
        return pa.nulls(count, pa.string())
    text = value.encode()
    offsets: Any = (np.arange(count + 1) * len(text)).astype(np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text * count)])


def chosen(values: Sequence[str | None], places: np.ndarray[Any, Any]) -> pa.Array[Any]:
    """Return a string column of few different values, by their places."""
    return column_of(values, pa.string()).take(column_of(places, pa.int64()))


FALSE: Any = scalar_of(False, pa.bool_())  # noqa: FBT003 - a value
"""For comparisons of what may be null."""

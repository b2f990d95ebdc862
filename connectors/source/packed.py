"""Keys and rows in msgpack to columns: decoded by the batch, one by one only where something does not fit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from connectors.source.arrow import column_of
from rsm_spark.core.column_types import default_in_log
from rsm_spark.core.machine import Field
from rsm_spark.snapshots.column_arrays import Convert, converted

_ARRAYS: Final = msgspec.msgpack.Decoder(list[list[Any]])
_MISFITS: Final = (pa.ArrowException, TypeError, AttributeError, ValueError, ArithmeticError)
_ARRAY: Final = msgspec.msgpack.Decoder(list[Any])

Misfit = Callable[[int, str], None]
"""(place, what is wrong): takes note of a value that cannot be used, or raises."""


def unpack_all(packed: Sequence[bytes | None], columns: Sequence[Field], misfit: Misfit) -> list[list[Any] | None]:
    """Return the values of msgpack arrays; None where there is none, or one that is told to `misfit`.

    Args:
        packed: The arrays.
        columns: Their values. Those at the end that an older version did not have yet may be missing: they are filled.
        misfit: Told of those that have another number, or are none.

    """
    width = len(columns)
    present = [text for text in packed if text is not None]
    try:
        arrays = _ARRAYS.decode(b"\xdd" + len(present).to_bytes(4, "big") + b"".join(present))
    except msgspec.MsgspecError:
        arrays = []
    if len(arrays) == len(present) and all(len(array) == width for array in arrays):
        if len(present) == len(packed):
            return list(arrays)
        rest = iter(arrays)
        return [None if text is None else next(rest) for text in packed]
    return [None if text is None else _unpack(text, columns, place, misfit) for place, text in enumerate(packed)]


def _unpack(text: bytes, columns: Sequence[Field], place: int, misfit: Misfit) -> list[Any] | None:
    try:
        array = _ARRAY.decode(text)
    except msgspec.MsgspecError as error:
        misfit(place, f"is no msgpack array: {error}")
        return None
    missing = columns[len(array) :]
    if len(array) > len(columns) or not all(column.fills for column in missing):
        misfit(place, f"has {len(array)} columns, {len(columns)} are described")
        return None
    return array + [default_in_log(column) for column in missing]


def typed_column(values: list[Any], kind: pa.DataType, misfit: Misfit, convert: Convert | None = None) -> pa.Array[Any]:
    """Return a column; null where a value does not fit its type, which is told to `misfit`.

    Args:
        values: As the log has them.
        kind: Of the column.
        misfit: Told of those that do not fit.
        convert: See `rsm_spark.snapshots.column_arrays.to_arrow`.

    """
    try:
        return column_of(converted(values, convert), kind)
    except _MISFITS:
        return pa.array([_fitting(value, kind, place, misfit, convert) for place, value in enumerate(values)], kind)


def _fitting(value: Any, kind: pa.DataType, place: int, misfit: Misfit, convert: Convert | None) -> Any:
    try:
        (fitting,) = converted([value], convert)
        pa.scalar(fitting, kind)
    except _MISFITS as error:
        misfit(place, f"{type(value).__name__} is no {kind}: {error}")
        return None
    return fitting

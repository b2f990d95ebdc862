"""Range of the keys that a micro-batch names, as a condition on a Delta table: files of other keys stay unread. Pure.

Delta keeps the least and the greatest value of a column for each file, Parquet for each part of a file. Where keys grow
with time, or changed keys are neighbours, most of a large table lies outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_LETTERS_MAX = 256


def key_range(name: str, values: pa.Array[Any]) -> str | None:
    """Return the condition that a column is in the range of some values; None where it cannot be said safely.

    Args:
        name: Of the column.
        values: Of a key column, so none is null.

    """
    literal = _literals().get(values.type)
    if literal is None or not len(values):
        return None
    ends = pc.min_max(values)
    least, greatest = (literal(ends[end].as_py()) for end in ("min", "max"))
    if least is None or greatest is None:
        return None
    return f"`{name}` >= {least} AND `{name}` <= {greatest}"


def _literals() -> Mapping[pa.DataType, Callable[[Any], str | None]]:
    """Return how values of a type are written in SQL; dates, times and floats have too many ways to be misread."""
    return {pa.int64(): str, pa.string(): _text, pa.binary(): _bytes}


def _text(value: str) -> str | None:
    """Return a text that no dialect reads otherwise."""
    if len(value) > _LETTERS_MAX or not value.isprintable() or "\\" in value:
        return None
    return "'" + value.replace("'", "''") + "'"


def _bytes(value: bytes) -> str | None:
    return f"X'{value.hex()}'" if len(value) <= _LETTERS_MAX else None

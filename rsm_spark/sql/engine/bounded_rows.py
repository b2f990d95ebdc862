"""Rows of a result, as far as a reply holds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rsm_spark.sql.engine.faults import SqlRefusal

_VALUE_BYTES = 9  # Of a number in the reply, at most.


def rows_within(rows: Iterable[tuple[Any, ...]], bytes_max: int) -> tuple[tuple[Any, ...], ...]:
    """Take all rows.

    Raises:
        SqlRefusal: They have more than `bytes_max` bytes.

    """
    taken: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        size += sum(len(value) if isinstance(value, str | bytes) else 0 for value in row) + _VALUE_BYTES * len(row)
        if size > bytes_max:
            text = f"its rows have more than {bytes_max} bytes: read them in pieces, with LIMIT and a key"
            raise SqlRefusal("limit", text)
        taken.append(row)
    return tuple(taken)

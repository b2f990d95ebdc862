"""Result of one statement: its columns, and its rows as far as a reply holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apsw

from rsm_spark.sql.engine.faults import MORE_THAN_ONE, SqlRefusal
from rsm_spark.sql.limits import SLICE_BYTES, SLICE_S

_VALUE_BYTES = 9  # Of a number in the reply, at most.


def heard_columns(cursor: Any) -> list[tuple[str, str]]:
    """Have a cursor run one statement at most; return the list that its columns, name and declared type, come into.

    They are those of before its first step; see `told_columns`.
    A second one ends the run with `SqlRefusal`.
    """
    columns: list[tuple[str, str]] = []
    seen = 0

    def _on_statement(_cursor: Any, _sql: str, _bindings: Any) -> bool:
        nonlocal seen
        seen += 1
        if seen > 1:
            raise SqlRefusal("sql", MORE_THAN_ONE)
        columns.extend((name, kind or "") for name, kind in cursor.get_description())
        return True

    cursor.exec_trace = _on_statement
    return columns


def told_columns(cursor: Any, heard: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the columns of a result that a cursor has begun to run.

    A statement that was prepared before the schema changed is prepared anew by SQLite when it takes its first step, so
    what was heard before that may be of the former schema. Of a result without rows nothing newer is known.

    Args:
        cursor: It has been run to its first row.
        heard: Columns before.

    """
    try:
        # Not `get_description`, which answers the second time as it did the first time.
        described = cursor.description
    except apsw.ExecutionCompleteError:
        return tuple(heard)
    return tuple([(column[0], column[1] or "") for column in described])


def rows_within(rows: Iterable[tuple[Any, ...]], bytes_max: int) -> tuple[tuple[Any, ...], ...]:
    """Take all rows.

    Raises:
        SqlRefusal: They have more than `bytes_max` bytes.

    """
    taken: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        size += _size_of(row)
        if size > bytes_max:
            text = (
                f"its rows have more than {bytes_max} bytes: read them in slices (`rows`), or in pieces, with LIMIT "
                "and a key"
            )
            raise SqlRefusal("limit", text)
        taken.append(row)
    return tuple(taken)


def slice_within(
    rows: Iterator[tuple[Any, ...]], row_bytes_max: int, clock_s: Callable[[], float]
) -> tuple[tuple[tuple[Any, ...], ...], bool]:
    """Take rows until a slice is full, or has taken its time; return them, and whether these are the last.

    Raises:
        SqlRefusal: One row has more than `row_bytes_max` bytes.

    """
    taken: list[tuple[Any, ...]] = []
    size = 0
    end_s = clock_s() + SLICE_S
    for row in rows:
        of_row = _size_of(row)
        if of_row > row_bytes_max:
            raise SqlRefusal("limit", f"a row has more than {row_bytes_max} bytes: ask for fewer of its columns")
        size += of_row
        taken.append(row)
        if size >= min(SLICE_BYTES, row_bytes_max) or clock_s() > end_s:
            return tuple(taken), False
    return tuple(taken), True


def _size_of(row: tuple[Any, ...]) -> int:
    return sum(len(value) if isinstance(value, str | bytes) else 0 for value in row) + _VALUE_BYTES * len(row)

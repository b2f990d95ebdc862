"""Statements with many rows of values, `VALUES (…), (…), …`, as a statement with one row. Pure.

sqlglot takes long for long texts. Rows that a program has made differ in their values and numbers alone: one of them,
with marks in place of these, is respelled for all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from rsm_spark.sql.limits import PARAMETERS_MAX

_ROWS_MIN: Final = 3
_MARK: Final = re.compile(r"\?([0-9]{5,6})\b")
_TOKEN: Final = re.compile(
    r"""
    (?P<value>'(?:[^']|'')*+'|:p[0-9]++|\?[0-9]++|(?:(?<=[(,])-|(?<=[(,]\ )-)?[0-9][0-9A-Za-z_.]*+
      |\b(?i:NULL|TRUE|FALSE)\b)
  | (?P<space>\s++|--[^\n]*+)
  | (?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z_0-9$\x80-\U0010ffff]*+|"(?:[^"]|"")*+")
  | (?P<other>::|.)
    """,
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str


class _RowsFound(NamedTuple):
    """Place of the rows in a statement, and their tokens."""

    begin: int
    end: int
    rows: list[list[_Token]]


class FoldedRows(NamedTuple):
    """A statement with one row for all.

    Attributes:
        sql: Of it; values of the row are marks.
        values: Of each row.

    """

    sql: str
    values: list[list[str]]

    def unfolded(self, sql: str) -> str | None:
        """Return the statement with all of its rows; None = its row is not to be found any more.

        Args:
            sql: Of the statement, respelled.

        """
        found = _rows_of(sql)
        if found is None or len(found.rows) != 1:
            return None
        row = sql[found.begin : found.end]
        marks = [int(mark) - PARAMETERS_MAX - 1 for mark in _MARK.findall(row)]
        if sorted(marks) != list(range(len(self.values[0]))) or len(_MARK.findall(sql)) != len(marks):
            return None
        rows = [_MARK.sub(_value_of(values), row) for values in self.values]
        return sql[: found.begin] + ", ".join(rows) + sql[found.end :]


def folded(sql: str) -> FoldedRows | None:
    """Return a statement with one of its rows; None = it has not many, or they differ in more than their values.

    Args:
        sql: Of it, with parameters as sqlglot gets them.

    """
    found = _rows_of(sql)
    if found is None or len(found.rows) < _ROWS_MIN:
        return None
    shape = _shape(found.rows[0])
    if any(_shape(row) != shape for row in found.rows):
        return None
    row: list[str] = []
    count = 0
    for kind, text in found.rows[0]:
        if kind == "value":
            count += 1
            row.append(f":p{PARAMETERS_MAX + count}")
        else:
            row.append(text)
    values = [[_own(text) for kind, text in one if kind == "value"] for one in found.rows]
    return FoldedRows(sql[: found.begin] + "".join(row) + sql[found.end :], values)


def _own(value: str) -> str:
    """Return a value as SQLite spells it."""
    return f"?{value[2:]}" if value.startswith(":p") else value


def _value_of(values: list[str]) -> Callable[[re.Match[str]], str]:
    return lambda mark: values[int(mark[1]) - PARAMETERS_MAX - 1]


def _shape(row: list[_Token]) -> list[str]:
    """Return what two rows must have in common."""
    shape: list[str] = []
    before = ""
    for kind, text in row:
        # `DATE '2026-01-02'` is a value with its word; a mark could not stand there.
        is_bound = kind == "value" and before == "word"
        shape.append(f"={text}" if kind != "value" or is_bound else "value")
        if kind != "space":
            before = kind
    return shape


def _rows_of(sql: str) -> _RowsFound | None:
    """Find the rows behind the only VALUES of a statement."""
    rows: list[list[_Token]] = []
    begin = end = -1
    row: list[_Token] = []
    depth, is_among_rows = 0, False
    for token in _TOKEN.finditer(sql):
        kind, text = str(token.lastgroup), token.group()
        if row:
            row.append(_Token(kind, text))
            depth += (text == "(") - (text == ")")
            if depth == 0:
                rows.append(row)
                row, end = [], token.end()
        elif kind == "word" and text.upper() == "VALUES":
            if rows:
                return None
            is_among_rows = True
        elif is_among_rows and text == "(":
            begin = token.start() if begin < 0 else begin
            row, depth = [_Token(kind, text)], 1
        elif is_among_rows and kind != "space" and text != ",":
            is_among_rows = False
    return _RowsFound(begin, end, rows) if rows and not row else None

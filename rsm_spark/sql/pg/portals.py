"""Prepared statements and portals of a session of PostgreSQL's protocol, and the rows that they bring. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from rsm_spark.sql.messages import SqlResult, SqlStatement, SqlValue
from rsm_spark.sql.pg import answers
from rsm_spark.sql.pg.statements import PgStatement, tag_of
from rsm_spark.sql.pg.tasks import RowsLeft
from rsm_spark.sql.pg.values import PgColumn, declared_type, found_type, shown_value, spread

STATEMENT_BYTES: Final = 300
"""Bytes of a prepared statement or a portal beside its text and values."""
_VALUE_BYTES: Final = 16
_ARRAY_PARAMETER: Final = re.compile(r"\bJSON_EACH\(\?([0-9]{1,5})\)")
_TEXT_ARRAY: Final = 1009


class PreparedStatement:
    """A prepared statement."""

    def __init__(self, statement: PgStatement | None, types: tuple[int, ...]) -> None:
        self.statement = statement
        count = max(len(types), 0 if statement is None else statement.parameter_count)
        found = list(types + (0,) * (count - len(types)))
        for number in () if statement is None else map(int, _ARRAY_PARAMETER.findall(statement.sql)):
            if number <= len(found) and not found[number - 1]:
                found[number - 1] = _TEXT_ARRAY  # As PostgreSQL takes it, of `= ANY($1)`.
        self.types = tuple(found)
        # Told to the client, who asks for formats by them.
        self.columns: tuple[PgColumn, ...] | None = None
        # Of the columns that an INSERT fills, by the place of the parameter; learned when a value needs it.
        self.column_types: dict[int, int] | None = None
        self.size = STATEMENT_BYTES + (0 if statement is None else len(statement.sql))


class PgPortal:
    """A prepared statement with values, and its rows once they were read: all, or a slice of them.

    A cursor is one, with rows from the beginning. One that is held stays when its transaction has ended; it is of
    none once that was committed, or was declared outside of one.
    """

    def __init__(
        self, prepared: PreparedStatement, values: tuple[SqlValue, ...], formats: tuple[int, ...], size: int
    ) -> None:
        self.prepared = prepared
        self.values = values
        self.formats = formats
        self.size = size
        self.columns = prepared.columns
        self.result: SqlResult | None = None
        self.sent = 0
        self.left: RowsLeft | None = None
        self.rows_size = 0
        self.is_done = False
        self.is_cursor = self.is_held = self.is_of_none = False


class KeptStatement:
    """A statement that writes and waits for the others of its transaction; its answer stands in its place."""

    def __init__(self, statement: PgStatement, sent: SqlStatement, portal: PgPortal | None) -> None:
        self.statement = statement
        self.sent = sent
        self.portal = portal
        self.answer: bytes | None = None


def columns_of(result: SqlResult) -> tuple[PgColumn, ...]:
    """Return the columns of rows: as their tables declare them, else as their values are."""
    found: list[PgColumn] = []
    for place, (name, declared) in enumerate(result.columns):
        kind = declared_type(declared)
        found.append(PgColumn(name, found_type(row[place] for row in result.rows) if kind is None else kind))
    return tuple(found)


def answer_of(kept: KeptStatement, result: SqlResult) -> bytes:
    """Return the answer to a statement that was kept."""
    parts: list[bytes] = []
    portal = kept.portal
    if result.columns:
        columns = columns_of(result)
        formats: tuple[int, ...] = (0,) * len(columns)
        if portal is None:
            parts.append(answers.columns(columns, formats))
        else:
            # It is done: if its tables have got or lost columns since it was described, what was described is shown.
            columns = portal.columns or columns
            formats = spread(portal.formats, len(columns), "columns")
        missing = (None,) * max(0, len(columns) - len(result.columns))
        shapes = [(column.type, form) for column, form in zip(columns, formats, strict=True)]
        parts += [answers.row(encoded((*row, *missing)[: len(columns)], shapes)) for row in result.rows]
    return b"".join((*parts, answers.done(tag_of(kept.statement, result))))


def encoded(row: Sequence[SqlValue], shapes: Sequence[tuple[int, int]]) -> Iterator[bytes | None]:
    """Iterate over the values of a row as they are sent."""
    return (shown_value(kind, form, value) for (kind, form), value in zip(shapes, row, strict=True))


def size_of(value: SqlValue) -> int:
    """Return about how many bytes a value takes."""
    return _VALUE_BYTES + len(value) if isinstance(value, str | bytes) else _VALUE_BYTES

"""Tables of a catalog that may be of the past: names of their columns, and rows of the log as values by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import apsw

from rsm_spark.errors import CorruptLogError
from rsm_spark.sql.engine.connections import open_scratch
from rsm_spark.sql.engine.faults import SqlRefusal
from rsm_spark.sql.engine.guard import StatementGuard
from rsm_spark.sql.engine.shapes import TableShape, read_shape
from rsm_spark.sql.engine.touched import decode_values

_TABLES_MAX = 1_000


class PastTable(NamedTuple):
    """A table as the log had it at some revision.

    Attributes:
        name: Of the table then.
        key: Names of its key columns; the rowid's where no column is the key.
        columns: Names of its stored columns in order; generated ones are not among them.
        shape: Of keys and images.
        declared: Types that the columns declare; "" = none.

    """

    name: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    shape: TableShape
    declared: tuple[str, ...]

    def key_of(self, key: bytes) -> dict[str, Any]:
        """Return the key of a row by column."""
        return dict(zip(self.key, decode_values(key), strict=True))

    def values_of(self, image: bytes) -> tuple[Any, ...]:
        """Return the columns behind the key, of an image."""
        return self.shape.filled(decode_values(image))

    def row_of(self, key: bytes, values: Sequence[Any]) -> dict[str, Any]:
        """Return a row by column, in the order of the table."""
        row = list(values)
        places = self.shape.key_places
        for place, value in sorted(zip(places, decode_values(key), strict=False)):
            row.insert(place, value)
        return dict(zip(self.columns, row, strict=True))


def values_before(values: Sequence[Any], told: bytes) -> list[Any]:
    """Return what the columns behind the key were, by what a record tells of them; see `rsm_spark.sql.records`."""
    before = list(values)
    old = decode_values(told)
    for place, value in zip(old[::2], old[1::2], strict=True):
        before[place] = value
    return before


@lru_cache(_TABLES_MAX)
def past_table(name: str, number: int, sql: str) -> PastTable:
    """Return a table by the SQL that makes it.

    Raises:
        CorruptLogError: No leader of this kind has logged it.

    """
    guard = StatementGuard(may_write=True)
    connection = open_scratch()
    try:
        connection.authorizer = guard
        guard.is_on = True
        connection.execute(sql)
        guard.is_on = False
        shape = read_shape(connection.execute, name, number, sql)
        listed: Any = connection.execute("SELECT name, type FROM pragma_table_xinfo(?)", (name,)).fetchall()
        types: dict[str, str] = dict(listed)
    except (apsw.Error, SqlRefusal, ValueError) as error:
        raise CorruptLogError(f"the log has a table {name!r} that cannot be made, {sql[:200]!r}: {error}") from error
    finally:
        connection.close()
    key, others = tuple(map(_plain, shape.key)), list(map(_plain, shape.columns))
    for place, column in sorted(zip(shape.key_places, key, strict=False)):
        others.insert(place, column)
    return PastTable(name, key, tuple(others), shape, tuple(types[column] for column in others))


def tables_of(objects: Mapping[str, Any]) -> dict[int, str]:
    """Return the names of a catalog's tables by their numbers."""
    return {row.number: name for name, row in objects.items() if row.kind == "table"}


def _plain(column: str) -> str:
    return column[1:-1].replace('""', '"') if column.startswith('"') else column

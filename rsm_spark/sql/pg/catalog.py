"""Questions to PostgreSQL's system catalog, answered from what a replica's tables are now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rsm_spark.sql.engine.side_base import SideBase
from rsm_spark.sql.messages import SqlFault, SqlResult
from rsm_spark.sql.pg.catalog_functions import ARRAY_MARK, CatalogAsker, PgCatalogCalls, items, shown_array
from rsm_spark.sql.pg.catalog_schema import catalog_of
from rsm_spark.sql.pg.catalog_tables import SCHEMAS, TABLES, catalog_rows
from rsm_spark.sql.pg.faults import fault_of
from rsm_spark.sql.pg.session_settings import SessionSettings

_TIME_S: Final = 5.0
_BYTES_MAX: Final = 2 * 1024 * 1024
_ARRAY_KIND: Final = "TEXT[]"
_WHOLE_ARRAY_KIND: Final = "INT8[]"
_VECTOR_KIND: Final = "INT2VECTOR"


class PgCatalog:
    """See the module. For one thread at a time.

    Args:
        database: Name of the log.

    """

    def __init__(self, database: str) -> None:
        self._database = database
        self._functions = PgCatalogCalls(database)
        self._base: SideBase | None = None
        self._schema: Sequence[tuple[Any, ...]] | None = None

    def answer(
        self,
        sql: str,
        values: Sequence[Any],
        schema: Sequence[tuple[Any, ...]],
        asker: CatalogAsker,
    ) -> SqlResult:
        """Return the rows of a question.

        Args:
            sql: As SQLite spells it.
            values: Of its parameters.
            schema: Rows of `SCHEMA_SQL`.
            asker: Who asks.

        Raises:
            PgFault: It is wrong, or takes too long.

        """
        base = self._ready(schema)
        self._functions.asker = asker
        found = base.query(sql, values, _TIME_S, _BYTES_MAX)
        if isinstance(found, SqlFault):
            raise fault_of(found)
        return _with_arrays(found)

    def columns(self, sql: str, schema: Sequence[tuple[Any, ...]]) -> tuple[tuple[str, str], ...]:
        """Return name and declared type of the columns of a question.

        Raises:
            PgFault: It is wrong.

        """
        found = self._ready(schema).columns(sql)
        if isinstance(found, SqlFault):
            raise fault_of(found)
        return found

    def _ready(self, schema: Sequence[tuple[Any, ...]]) -> SideBase:
        if self._base is None:
            self._base = SideBase(SCHEMAS, TABLES, self._functions.scalars(), self._functions.aggregates())
        if schema != self._schema:
            found = catalog_rows(catalog_of(schema), self._database, dict(SessionSettings("").all()))
            self._base.fill(found.rows)
            self._functions.take(found)
            self._schema = schema
        return self._base

    def close(self) -> None:
        """Drop it."""
        if self._base is not None:
            self._base.close()


def _with_arrays(found: SqlResult) -> SqlResult:
    """Return rows whose arrays are written as PostgreSQL does."""
    columns, rows = list(found.columns), [list(row) for row in found.rows]
    for place, (name, kind) in enumerate(columns):
        if kind == _VECTOR_KIND:
            columns[place] = (name, "TEXT")
            for row in rows:
                row[place] = None if row[place] is None else " ".join(map(str, items(row[place])))
            continue
        held = [row[place] for row in rows if row[place] is not None]
        is_array = kind.endswith("[]") or (
            bool(held) and all(isinstance(value, str) and value.startswith(ARRAY_MARK) for value in held)
        )
        if not is_array:
            continue
        is_whole = all(isinstance(item, int | None) for value in held for item in items(value))
        columns[place] = (name, _WHOLE_ARRAY_KIND if held and is_whole else _ARRAY_KIND)
        for row in rows:
            row[place] = None if row[place] is None else shown_array(row[place])
    return SqlResult(tuple(columns), tuple(map(tuple, rows)))

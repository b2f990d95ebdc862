"""Steps of a session that alter a table as SQLite does not: what is read for it, and what is to be written. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from rsm_spark.sql.messages import SqlStatement
from rsm_spark.sql.pg.altering import SCHEMA_SQL, alteration_of, referred, statements_for
from rsm_spark.sql.pg.faults import NOT_SUPPORTED, TOO_LARGE, PgFault
from rsm_spark.sql.pg.statements import PgStatement, PgStatementKind
from rsm_spark.sql.pg.tasks import PgTask, RowsLeft, RowsRead, TaskAnswer

ReadSteps = Generator[PgTask, TaskAnswer, RowsRead]


def altered(
    sql: str, read: Callable[[PgStatement, tuple[Any, ...]], ReadSteps], dropped: list[RowsLeft]
) -> Generator[PgTask, TaskAnswer, tuple[SqlStatement, ...]]:
    """Return the statements that do what an ALTER TABLE says.

    Args:
        sql: Of it; of a kind that is made anew.
        read: Steps that read the rows of a query.
        dropped: Gets results that are not read on.

    Raises:
        PgFault: It cannot be done.

    """
    alteration = alteration_of(sql)
    assert alteration is not None
    found = yield from read(_query(SCHEMA_SQL, 1), (alteration.table,))
    if found.left is not None:
        dropped.append(found.left)
        raise PgFault(TOO_LARGE, f"the indexes and triggers of {alteration.table} are too long to alter it")
    statements = statements_for(alteration, found.result.rows)
    for one in statements:
        if one.expected is not None and one.parameters == ():
            seen = yield from read(_query(one.sql, 0), ())
            if not seen.result.rows:
                raise PgFault(NOT_SUPPORTED, referred(alteration))
    return statements


def _query(sql: str, count: int) -> PgStatement:
    return PgStatement(PgStatementKind.READ, sql, ("SELECT",), count, is_returning=False)

"""Statements and parameters as a caller gives them, and as they are sent. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rsm_spark.sql.errors import SqlError
from rsm_spark.sql.messages import SqlParameters, SqlStatement, SqlValue

Statement = str | tuple[str, SqlParameters] | tuple[str, SqlParameters, int | None] | SqlStatement
"""SQL; or SQL and parameters; or these and the number of rows that it must change or return."""


def statement_of(statement: Statement) -> SqlStatement:
    """Return a statement as it is sent.

    Raises:
        SqlError: Its parameters are none.

    """
    if isinstance(statement, SqlStatement):
        return statement
    if isinstance(statement, str):
        return SqlStatement(statement)
    sql, parameters, *expected = statement
    return SqlStatement(sql, parameters_of(parameters), expected[0] if expected else None)


def parameters_of(parameters: SqlParameters) -> tuple[SqlValue, ...] | dict[str, SqlValue]:
    """Return parameters as they are sent.

    Raises:
        SqlError: They are no sequence and no mapping: a lone string, say.

    """
    if isinstance(parameters, Mapping):
        return dict(parameters)
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        raise SqlError(f"parameters are a tuple or a dictionary, not {type(parameters).__name__}: write (value,)")
    return tuple(parameters)

"""A base beside the tables, in memory: rows that are made for a question, and functions that it calls. Read only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import apsw

from rsm_spark.sql import limits
from rsm_spark.sql.engine.bounded_rows import heard_columns, rows_within, told_columns
from rsm_spark.sql.engine.faults import fault_of, is_statements_own
from rsm_spark.sql.messages import SqlFault, SqlResult

SideFunction = Callable[..., Any]
_PROGRESS_STEPS = 5_000
_NO_VALUES: Any = apsw._null_bindings  # type: ignore[attr-defined]  # As `apsw.ext.query_info` does.
_READS = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_RECURSIVE, apsw.SQLITE_FUNCTION})
_FUNCTIONS_REFUSED = frozenset({"load_extension", "fts3_tokenizer", "randomblob"})


class SideBase:
    """See the module. For one thread at a time.

    Args:
        schemas: Names by which tables may be called: `schema.table`.
        tables: "schema.name" -> columns as CREATE TABLE has them.
        functions: By name; each takes any number of arguments.
        aggregates: By name: called with the list of values.

    """

    def __init__(
        self,
        schemas: Sequence[str],
        tables: Mapping[str, str],
        functions: Mapping[str, SideFunction],
        aggregates: Mapping[str, SideFunction],
    ) -> None:
        self._deadline_s = float("inf")
        self._connection = apsw.Connection(":memory:")
        for name in schemas:
            self._connection.execute(f"ATTACH ':memory:' AS \"{name}\"")
        for name, columns in tables.items():
            self._connection.execute(f"CREATE TABLE {name} ({columns})")
        for name, function in functions.items():
            self._connection.create_scalar_function(name, function)
        for name, function in aggregates.items():
            self._connection.create_aggregate_function(name, _gathering(function))
        for limit, value in (
            (apsw.SQLITE_LIMIT_LENGTH, limits.VALUE_BYTES_MAX),
            (apsw.SQLITE_LIMIT_SQL_LENGTH, limits.STATEMENT_BYTES_MAX),
            (apsw.SQLITE_LIMIT_EXPR_DEPTH, limits.EXPRESSION_DEPTH_MAX),
            (apsw.SQLITE_LIMIT_COMPOUND_SELECT, limits.COMPOUND_SELECTS_MAX),
            (apsw.SQLITE_LIMIT_VDBE_OP, limits.OPCODES_MAX),
        ):
            self._connection.limit(limit, value)
        self._connection.set_progress_handler(lambda: time.monotonic() > self._deadline_s, _PROGRESS_STEPS)

    def fill(self, rows: Mapping[str, Iterable[Sequence[Any]]]) -> None:
        """Replace the rows of tables: "schema.name" -> rows."""
        self._connection.authorizer = None
        with self._connection:
            for name, found in rows.items():
                self._connection.execute(f"DELETE FROM {name}")
                for row in found:
                    self._connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)

    def query(self, sql: str, parameters: Sequence[Any], time_s: float, bytes_max: int) -> SqlResult | SqlFault:
        """Answer one statement that only reads, within limits of time and of the bytes of its rows."""
        self._connection.authorizer = _only_reads
        self._deadline_s = time.monotonic() + time_s
        cursor = self._connection.cursor()
        heard = heard_columns(cursor)
        try:
            left = cursor.execute(sql, parameters)
            return SqlResult(told_columns(cursor, heard), rows_within(left, bytes_max))
        except apsw.InterruptError:
            return SqlFault("limit", f"it takes longer than {time_s:g} s")
        except Exception as error:
            if not is_statements_own(error):
                raise
            return fault_of(error, "", 0)
        finally:
            cursor.close(force=True)
            self._deadline_s = float("inf")

    def columns(self, sql: str) -> tuple[tuple[str, str], ...] | SqlFault:
        """Return name and declared type of the columns of a statement that only reads; it is not run."""
        self._connection.authorizer = _only_reads
        columns: tuple[tuple[str, str], ...] = ()

        def _on_statement(_cursor: Any, _sql: str, _bindings: Any) -> bool:
            nonlocal columns
            columns = tuple((name, kind or "") for name, kind in cursor.get_description())
            return False  # It is not run.

        cursor = self._connection.cursor()
        cursor.exec_trace = _on_statement
        try:
            cursor.execute(sql, _NO_VALUES)
        except apsw.ExecTraceAbort:
            pass
        except Exception as error:
            if not is_statements_own(error):
                raise
            return fault_of(error, "", 0)
        finally:
            cursor.close(force=True)
        return columns

    def close(self) -> None:
        """Drop it."""
        self._connection.close()


def _only_reads(action: int, _one: str | None, two: str | None, _base: str | None, _by: str | None) -> int:
    if action == apsw.SQLITE_FUNCTION and (two or "").lower() in _FUNCTIONS_REFUSED:
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK if action in _READS else apsw.SQLITE_DENY


def _gathering(function: SideFunction) -> Callable[[], Any]:
    def make() -> Any:
        values: list[Any] = []
        return values, _step, function

    return make


def _step(values: list[Any], *arguments: Any) -> None:
    values.append(arguments[0] if len(arguments) == 1 else arguments)

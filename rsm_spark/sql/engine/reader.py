"""A connection that reads for clients: what is committed, within limits of time and size.

A result is read whole, or in slices (`open_rows`, `next_rows`): then the connection holds one commit until the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw

from rsm_spark.errors import RsmError
from rsm_spark.sql.engine.bounded_rows import heard_columns, rows_within, slice_within, told_columns
from rsm_spark.sql.engine.connections import open_reader, private_comment
from rsm_spark.sql.engine.faults import fault_of, is_statements_own
from rsm_spark.sql.engine.guard import StatementGuard
from rsm_spark.sql.engine.rights_check import RightsCheck
from rsm_spark.sql.engine.system_rows import make_system_tables
from rsm_spark.sql.engine.writer import MARK_TABLE
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import SqlFault, SqlQuery, SqlReply, SqlResult, SqlSlice
from rsm_spark.sql.statement_words import first_word, is_of_rows
from rsm_spark.sql.system_tables import SystemRows, system_names
from rsm_spark.sql.table_rights import TableRights

T = TypeVar("T")
_PROGRESS_STEPS = 5_000
_HELD_CACHE_KIB = 512
_NO_VALUES: Any = apsw._null_bindings  # type: ignore[attr-defined]  # As `apsw.ext.query_info` does.


class ColumnsQuery(NamedTuple):
    """A statement whose columns are asked for; it is not run, and may be one that writes."""

    sql: str


class ReadReply(NamedTuple):
    """Reply to a read, and the revision of the commit that it saw."""

    reply: SqlReply
    revision: int


class SliceReply(NamedTuple):
    """First rows of a result that is read in slices.

    Attributes:
        slice: The rows.
        revision: Of the commit that the result shows.
        name: By which the next slice is asked for; empty: there is none.

    """

    slice: SqlSlice
    revision: int
    name: bytes = b""


class HeldReply(NamedTuple):
    """Reply to a read of a held commit; whether it depends on any table of the log, and on a system table."""

    reply: SqlReply
    has_read: bool
    has_read_system: bool


class SqlReader:
    """One connection. For one thread at a time; only `interrupt` may come from another.

    Args:
        path: Of the file.
        settings: Limits.
        clock_s: Monotonic seconds.

    Attributes:
        number: Of the read that began last.

    """

    def __init__(self, path: Path, settings: SqlSettings, clock_s: Callable[[], float]) -> None:
        self._settings = settings
        self._clock_s = clock_s
        self._deadline_s = float("inf")
        self._is_interrupted = False
        self._is_held = False
        self._cursor: Any = None  # Of the result that is read in slices.
        self._rows_left: Iterator[tuple[Any, ...]] = iter(())
        self._columns_left: tuple[tuple[str, str], ...] = ()
        self.number = 0
        self._connection = open_reader(path, settings.cache_mib)
        self._private = private_comment()
        self._guard = StatementGuard(may_write=False)
        self._connection.authorizer = self._guard
        self._check = RightsCheck(self._connection, self._execute, self._guard)
        self._connection.set_progress_handler(self._is_over, _PROGRESS_STEPS)

    def _is_over(self) -> bool:
        return self._is_interrupted or self._clock_s() > self._deadline_s

    def begin(self) -> int:
        """Begin a read; return its number."""
        self._is_interrupted = False
        self.number += 1
        return self.number

    def interrupt(self, number: int) -> None:
        """End the read with this number, if it is still being read; from any thread."""
        if number == self.number:
            self._is_interrupted = True

    def close(self) -> None:
        """Close it; nothing is being read."""
        self._connection.close()

    def read(
        self, query: SqlQuery | ColumnsQuery, system: SystemRows | None = None, rights: TableRights | None = None
    ) -> ReadReply:
        """Answer a query as of one commit, or name the columns of a statement.

        Args:
            query: The query.
            system: Rows of the system tables that it names; None = there are none.
            rights: Tables that its client has; None = all.

        Raises:
            RsmError: The file failed.

        """
        try:
            return self._read_as_of_one_commit(query, system, rights)
        except apsw.Error as error:
            raise RsmError(f"the tables' file cannot be read: {type(error).__name__}: {error}") from error

    def _read_as_of_one_commit(
        self, query: SqlQuery | ColumnsQuery, system: SystemRows | None, rights: TableRights | None
    ) -> ReadReply:
        revision = self._begin()
        try:
            return ReadReply(self._read(query, system, rights), revision)
        finally:
            self._end()

    def _begin(self) -> int:
        self._connection.execute(f"{self._private}BEGIN")
        found: Any = self._connection.execute(f"{self._private}SELECT revision FROM {MARK_TABLE}").fetchall()
        return found[0][0] if found else 0

    def _end(self) -> None:
        self._deadline_s = float("inf")
        if self._connection.in_transaction:
            self._connection.execute(f"{self._private}ROLLBACK")

    def hold(self) -> int:
        """Hold the last commit, and read as of it alone; return its revision."""
        self._is_held = True
        return self._begin()

    def read_held(
        self, query: SqlQuery, system: SystemRows | None = None, rights: TableRights | None = None
    ) -> HeldReply:
        """Answer a query as of the commit that is held; see `read`."""
        try:
            reply = self._read(query, system, rights)
        finally:
            self._deadline_s = float("inf")
        return HeldReply(reply, self._guard.has_read, self._guard.has_read_system)

    def release(self) -> None:
        """Hold it no more."""
        self._is_held = False
        self._end()

    def open_rows(
        self, query: SqlQuery, system: SystemRows | None = None, rights: TableRights | None = None
    ) -> SliceReply:
        """Begin to read a result in slices; until the last one, or `close_rows`, it holds one commit; see `read`.

        Raises:
            RsmError: The file failed.

        """
        try:
            revision = self._begin()
            first = self._slice(query, system, rights)
            if not first.is_last:
                # Many of them may wait for their clients.
                self._connection.execute(f"{self._private}PRAGMA cache_size = {-_HELD_CACHE_KIB}")
            return SliceReply(first, revision)
        except apsw.Error as error:
            self.close_rows()
            raise RsmError(f"the tables' file cannot be read: {type(error).__name__}: {error}") from error

    def next_rows(self) -> SqlSlice:
        """Return the next rows of the result that is open.

        Raises:
            RsmError: The file failed.

        """
        try:
            return self._slice(None, None, None)
        except apsw.Error as error:
            self.close_rows()
            raise RsmError(f"the tables' file cannot be read: {type(error).__name__}: {error}") from error

    def close_rows(self) -> None:
        """Read no more of the result that is open, and hold its commit no more."""
        self._stop()
        self._end()

    def _slice(self, query: SqlQuery | None, system: SystemRows | None, rights: TableRights | None) -> SqlSlice:
        def _work() -> SqlSlice:
            if query is not None:
                self._make_system_tables(query.sql, system)
                self._check.statement(query.sql)
                self._columns_left = self._start(query)
            rows, is_last = slice_within(self._rows_left, self._settings.result_bytes_max, self._clock_s)
            return SqlSlice(self._columns_left if query is not None else (), rows, is_last)

        if query is not None:
            self._guard.begin()
            self._guard.may_write = first_word(query.sql) == "EXPLAIN"
        found = self._within_limits(_work, rights)
        if isinstance(found, SqlFault):
            found = SqlSlice(fault=found)
        if found.is_last:
            self.close_rows()
        return found

    def _read(self, query: SqlQuery | ColumnsQuery, system: SystemRows | None, rights: TableRights | None) -> SqlReply:
        self._guard.begin()
        # What only tells how a statement would run may be of one that writes: the connection cannot.
        self._guard.may_write = isinstance(query, ColumnsQuery) or first_word(query.sql) == "EXPLAIN"

        def _work() -> SqlResult:
            is_of_columns = isinstance(query, ColumnsQuery)
            self._make_system_tables(query.sql, {} if is_of_columns else system)
            self._check.statement(query.sql)
            return self._columns(query.sql) if isinstance(query, ColumnsQuery) else self._rows(query)

        found = self._within_limits(_work, rights)
        return SqlReply((), found) if isinstance(found, SqlFault) else SqlReply((found,))

    def _within_limits(self, work: Callable[[], T], rights: TableRights | None) -> T | SqlFault:
        """Run a statement of a client, or a part of it, under the guard and a time limit."""
        guard = self._guard
        guard.is_on, guard.rights = True, rights
        self._deadline_s = self._clock_s() + self._settings.read_ms_max / 1000
        try:
            return work()
        except apsw.InterruptError:
            text = f"it takes longer than {self._settings.read_ms_max / 1000:g} s: an index may help, or a LIMIT"
            return SqlFault("limit", "it was cancelled" if self._is_interrupted else text)
        except KeyError as error:
            return SqlFault("sql", f"the parameter {error} has no value")
        except Exception as error:
            if not is_statements_own(error):
                raise
            return fault_of(error, guard.refusal, 0)
        finally:
            guard.is_on, guard.rights = False, None
            guard.may_write = False

    def _make_system_tables(self, sql: str, rows: SystemRows | None) -> None:
        names = system_names(sql)
        if not names or rows is None:
            return
        guard = self._guard
        guard.is_on = False
        try:
            guard.system = make_system_tables(self._connection, self._execute, names, rows)
        finally:
            guard.is_on = True

    def _execute(self, sql: str) -> Any:
        """Run a statement of the replica itself; return its rows."""
        guard = self._guard
        was_on, guard.is_on = guard.is_on, False
        try:
            return self._connection.execute(self._private + sql).fetchall()
        finally:
            guard.is_on = was_on

    def _columns(self, sql: str) -> SqlResult:
        columns: tuple[tuple[str, str], ...] = ()

        def _on_statement(_cursor: Any, _sql: str, _bindings: Any) -> bool:
            nonlocal columns
            columns = tuple((name, kind or "") for name, kind in cursor.get_description())
            return False  # It is not run.

        cursor = self._connection.cursor()
        cursor.exec_trace = _on_statement
        try:
            # The guard hears of a statement when it is prepared: nobody else may find this one prepared.
            cursor.execute(sql, _NO_VALUES, can_cache=False)
        except apsw.ExecTraceAbort:
            pass
        finally:
            cursor.close(force=True)
        return SqlResult(columns)

    def _rows(self, query: SqlQuery) -> SqlResult:
        try:
            columns = self._start(query)
            return SqlResult(columns, rows_within(self._rows_left, self._settings.result_bytes_max))
        finally:
            self._stop()

    def _start(self, query: SqlQuery) -> tuple[tuple[str, str], ...]:
        """Begin to run a query; return its columns."""
        cursor = self._cursor = self._connection.cursor()
        heard = heard_columns(cursor)
        # One that was prepared for another caller may be run once it was looked at: `RightsCheck.statement`.
        can_cache = not self._is_held and (self._guard.rights is None or is_of_rows(query.sql))
        self._rows_left = cursor.execute(query.sql, query.parameters, can_cache=can_cache)
        return told_columns(cursor, heard)

    def _stop(self) -> None:
        cursor, self._cursor = self._cursor, None
        self._rows_left = iter(())
        if cursor is not None:
            cursor.close(force=True)

"""A connection for reads that are over at once, on the event loop itself: a thread costs more than they do.

It runs a statement that calls no function, reads stored rows alone, and ends within some thousand of SQLite's steps and
little time; such are those that look rows up by a key. Of any other it says so, and has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import apsw

from rsm_spark.sql.engine.bounded_rows import heard_columns, rows_within, told_columns
from rsm_spark.sql.engine.connections import open_reader, private_comment
from rsm_spark.sql.engine.faults import SqlRefusal
from rsm_spark.sql.engine.guard import NO_RIGHT, StatementGuard
from rsm_spark.sql.engine.reader import SliceReply
from rsm_spark.sql.engine.rights_check import RightsCheck
from rsm_spark.sql.engine.writer import MARK_TABLE
from rsm_spark.sql.messages import SqlQuery, SqlSlice
from rsm_spark.sql.statement_words import is_of_rows
from rsm_spark.sql.table_rights import TableRights

_PROGRESS_STEPS: Final = 100
_LOOKS_MAX: Final = 20
"""Looks at the clock, one after each hundred of steps. SQLite counts the steps of a statement on from run to run, so
the first look may come at any step, and means nothing."""
QUICK_S: Final = 0.001
_BYTES_MAX: Final = 64 * 1024
_CALLS = frozenset({apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE, apsw.SQLITE_PRAGMA})
_COMPUTED = ("json_each", "json_tree")
"""Tables whose rows SQLite computes: one step of theirs may be long."""


class StoredRowsGuard(StatementGuard):
    """Lets a client's statement read stored rows, and call nothing."""

    def __init__(self) -> None:
        super().__init__(may_write=False)

    def _reason(self, action: int, one: str, two: str) -> str:
        # SQLite asks each time that it prepares the statement, also anew: a view may be another one by then.
        if action in _CALLS or (action == apsw.SQLITE_READ and one.lower() in _COMPUTED):
            return "it is not quick"
        return super()._reason(action, one, two)


class QuickReader:
    """One connection; see the module. For one thread.

    Args:
        path: Of the file; it is there.
        cache_mib: Memory for its pages.
        clock_s: Monotonic seconds.

    Attributes:
        was_slow: The last read was given up: the statement is none for this reader.

    """

    def __init__(self, path: Path, cache_mib: int, clock_s: Callable[[], float]) -> None:
        self.was_slow = False
        self._clock_s = clock_s
        self._looks = 0
        self._deadline_s = 0.0
        self._connection = open_reader(path, cache_mib)
        self._guard = StoredRowsGuard()
        self._connection.authorizer = self._guard
        self._connection.set_progress_handler(self._is_over, _PROGRESS_STEPS)
        self._private = private = private_comment()
        self._check = RightsCheck(self._connection, self._execute, self._guard)
        self._begin, self._end = f"{private}BEGIN", f"{private}ROLLBACK"
        self._mark = f"{private}SELECT revision FROM {MARK_TABLE}"

    def _is_over(self) -> bool:
        self._looks += 1
        if not self._guard.is_on or self._looks <= 1:
            return False
        return self._looks > _LOOKS_MAX or self._clock_s() > self._deadline_s

    def _execute(self, sql: str) -> Any:
        """Run a statement of the replica itself; return its rows."""
        guard = self._guard
        was_on, guard.is_on = guard.is_on, False
        try:
            return self._connection.execute(self._private + sql).fetchall()
        finally:
            guard.is_on = was_on

    def read(self, query: SqlQuery, rights: TableRights | None = None) -> SliceReply | None:
        """Return all rows of a query as of the last commit; None = it is not quick, or fails: a thread says how.

        Args:
            query: The query.
            rights: Tables that its client has; None = all.

        """
        connection, guard = self._connection, self._guard
        self.was_slow = False
        guard.begin()
        try:
            connection.execute(self._begin)
            found: Any = connection.execute(self._mark).fetchone()
            cursor = connection.cursor()
            heard = heard_columns(cursor)
            self._looks, self._deadline_s = 0, self._clock_s() + QUICK_S
            guard.is_on, guard.rights = True, rights
            try:
                self._check.statement(query.sql)
                can_cache = rights is None or is_of_rows(query.sql)
                left = cursor.execute(query.sql, query.parameters, can_cache=can_cache)
                columns = told_columns(cursor, heard)
                rows = rows_within(left, _BYTES_MAX)
            finally:
                guard.is_on, guard.rights = False, None
                cursor.close(force=True)
        except (apsw.Error, SqlRefusal, LookupError, TypeError, ValueError) as error:
            is_denied = guard.refusal.startswith(NO_RIGHT) or (isinstance(error, SqlRefusal) and error.kind == "denied")
            is_slow = bool(guard.refusal) or isinstance(error, SqlRefusal | apsw.InterruptError)
            self.was_slow = is_slow and not is_denied  # Others may have the right to it.
            return None
        finally:
            if connection.in_transaction:
                connection.execute(self._end)
        return SliceReply(SqlSlice(columns, rows), 0 if found is None else found[0])

    def close(self) -> None:
        """Close it."""
        self._connection.close()

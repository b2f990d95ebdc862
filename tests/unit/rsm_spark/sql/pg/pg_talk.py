"""A session of PostgreSQL's protocol over plain SQLite, for tests: what the shell does, without sockets."""

from __future__ import annotations

import sqlite3
from typing import Any

from rsm_spark.sql.messages import SqlFault, SqlResult, SqlSlice
from rsm_spark.sql.pg.dialect import respelled
from rsm_spark.sql.pg.faults import PgFault, fault_of
from rsm_spark.sql.pg.lexing import statements_of
from rsm_spark.sql.pg.session import PgSession
from rsm_spark.sql.pg.session_settings import SessionSettings
from rsm_spark.sql.pg.statements import statement_of
from rsm_spark.sql.pg.tasks import (
    DescribeRows,
    EndTransaction,
    PgTask,
    ReadRows,
    ReadSlice,
    RowsRead,
    RunStep,
    RunWrites,
    StartTransaction,
    TranslateQuery,
    WritesDone,
)
from rsm_spark.sql.pg.wire import PgReader, PgRequest
from tests.unit.rsm_spark.sql.pg.pg_bytes import told


class _Rest:
    """Rest of a result."""

    def __init__(self, rows: tuple[Any, ...], slice_rows: int) -> None:
        self.rows = rows
        self.slice_rows = slice_rows
        self.is_closed = False
        self.fault: PgFault | None = None

    def take(self) -> SqlSlice:
        rows, self.rows = self.rows[: self.slice_rows], self.rows[self.slice_rows :]
        return SqlSlice((), rows, not self.rows)

    async def next(self) -> SqlSlice:
        return self.take()

    async def close(self) -> None:
        self.is_closed = True


class Talk:
    """See the module.

    Attributes:
        tasks: What the session has had done, as names of classes.
        slice_rows: Rows of one slice of a result.
        left: Results that had more than one.
        declared: Types of columns, by name; plain SQLite does not tell them.
        step_rows_max: Rows that a query in a transaction may have.
        takes_at_once: Requests that need nothing done are taken as the port takes them; else all are handled by steps.

    """

    def __init__(self, *, may_write: bool = True) -> None:
        self.session = PgSession(SessionSettings("ann"), may_write=may_write)
        self.reader = PgReader()
        self.reader.is_greeting = False
        self.reader.message_bytes_max = 5 * 1024 * 1024
        self.base = sqlite3.connect(":memory:", isolation_level=None)
        self.tasks: list[str] = []
        self.hides_tables = False
        self.revision = 0
        self.slice_rows = 1_000
        self.left: list[_Rest] = []
        self.step_rows_max = 1_000_000
        self.takes_at_once = True
        self.declared: dict[str, str] = {}

    def say(self, *parts: bytes) -> list[str]:
        """Say something; return the answers in short."""
        return told(self.bytes_for(*parts))

    def bytes_for(self, *parts: bytes) -> bytes:
        self.reader.feed(b"".join(parts))
        out = b""
        while (request := self.reader.request()) is not None:
            if self.takes_at_once and self.session.take(request):
                pass
            elif self.takes_at_once and (writes := self.session.writes_at(request)) is not None:
                try:
                    self.session.written(self.carry_out(writes))
                except PgFault as fault:
                    self.session.failed(request, fault)
            else:
                out += self._handle(request)
            out += self.session.take_answers()
            for left in self.session.take_dropped():
                assert isinstance(left, _Rest)
                assert not left.is_closed
                left.is_closed = True
        return out

    def _handle(self, request: PgRequest) -> bytes:
        steps, out = self.session.handle(request), b""
        try:
            task = next(steps)
            while True:
                out += self.session.take_answers()
                try:
                    answer = self.carry_out(task)
                except PgFault as fault:
                    task = steps.throw(fault)
                else:
                    task = steps.send(answer)
        except StopIteration:
            return out

    def carry_out(self, task: PgTask) -> Any:
        self.tasks.append(type(task).__name__)
        match task:
            case TranslateQuery():
                return tuple(statement_of(one, respelled(one)) for one in statements_of(task.sql))
            case ReadRows():
                return self._read(task)
            case ReadSlice():
                assert isinstance(task.left, _Rest)
                if isinstance(task.left.fault, PgFault):
                    raise task.left.fault
                return task.left.take()
            case DescribeRows() if self.hides_tables:
                raise PgFault("42P01", "no such table")
            case DescribeRows():
                found = self._run(task.sql, (None,) * task.sql.count("?"))
                return found.columns
            case RunWrites():
                return self._write(task)
            case StartTransaction():
                self.base.execute("BEGIN")
            case RunStep():
                done = tuple(self._run(one.sql, tuple(one.parameters)) for one in task.statements)  # type: ignore[arg-type]
                if any(len(one.rows) > self.step_rows_max for one in done):
                    raise fault_of(SqlFault("limit", "its rows have more bytes than that"))
                return done
            case EndTransaction():
                self.base.execute("COMMIT" if task.is_kept else "ROLLBACK")
                self.revision += task.is_kept
                return self.revision if task.is_kept else 0
            case _:
                pass
        return None

    def _read(self, task: ReadRows) -> RowsRead:
        found = self._run(task.sql, task.values)
        if len(found.rows) <= self.slice_rows:
            return RowsRead(found, self.revision)
        left = _Rest(found.rows, self.slice_rows)
        self.left.append(left)
        return RowsRead(SqlResult(found.columns, left.take().rows), self.revision, left)

    def _write(self, task: RunWrites) -> WritesDone:
        self.base.execute("BEGIN")
        done: list[SqlResult] = []
        try:
            for one in task.statements:
                done.append(self._run(one.sql, tuple(one.parameters)))  # type: ignore[arg-type]
        except PgFault:
            self.base.execute("ROLLBACK")
            raise
        self.base.execute("COMMIT")
        self.revision += 1
        return WritesDone(tuple(done), self.revision)

    def _run(self, sql: str, values: tuple[Any, ...]) -> SqlResult:
        try:
            cursor = self.base.execute(sql, values)
        except sqlite3.IntegrityError as error:
            raise fault_of(SqlFault("constraint", str(error))) from None
        except sqlite3.Error as error:
            raise fault_of(SqlFault("sql", str(error))) from None
        columns = tuple((one[0], self.declared.get(one[0], "")) for one in cursor.description or ())
        return SqlResult(columns, tuple(cursor.fetchall()), max(0, cursor.rowcount))

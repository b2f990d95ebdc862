"""One session of PostgreSQL's protocol, behind its log-in: requests in, answers and tasks out. Pure.

    steps = session.handle(request)     # a generator of tasks, each of which is answered with `send` or `throw`
    session.take_answers()              # bytes for the client, whenever a task is yielded and at the end

1. Outside of BEGIN … COMMIT a statement is a transaction of its own. Statements that write and come in one text, or
   between two `Sync`, are one transaction: they are kept until the text ends, `Sync` or `Flush` comes, or a query must
   see them.
2. What has failed in a series is answered once; the rest up to `Sync` is passed over, and what was kept is dropped.
3. A transaction that was begun runs where the leader is, from its first statement on. One of which a statement has
   failed does nothing more until it is rolled back, or to a savepoint.
4. A query that comes first in a transaction and has more rows than a transaction may read is read in slices beside it,
   at a commit of its own; the transaction then does nothing else, so it is of one commit still.
5. Everything that a session keeps is bounded: statements, portals and their rows in bytes and by number.
"""

# Longer than 400 lines: what one request leaves behind the next one finds.

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import msgspec

from rsm_spark.core.freshness import LINEARIZABLE
from rsm_spark.sql.messages import SqlResult, SqlStatement, SqlValue
from rsm_spark.sql.pg import answers
from rsm_spark.sql.pg import faults as f
from rsm_spark.sql.pg.alter_steps import altered
from rsm_spark.sql.pg.copy_in import CopyWriter
from rsm_spark.sql.pg.copy_out import CopyAnswers
from rsm_spark.sql.pg.copying import copied_row, copy_command
from rsm_spark.sql.pg.cursors import CURSOR_WORDS, CURSORS_MAX, closed_cursor, cursor_step, declared_cursor
from rsm_spark.sql.pg.portal_desk import STATEMENTS_MAX
from rsm_spark.sql.pg.portals import (
    STATEMENT_BYTES,
    PgPortal,
    PreparedStatement,
    columns_of,
    size_of,
)
from rsm_spark.sql.pg.row_answers import Steps
from rsm_spark.sql.pg.session_settings import COPY_AS, SessionSettings, name_of, set_of
from rsm_spark.sql.pg.statements import PgStatement, PgStatementKind, tag_of_rows
from rsm_spark.sql.pg.tasks import (
    DescribeRows,
    EndTransaction,
    PgTask,
    ReadRows,
    RowsRead,
    RunStep,
    RunWrites,
    SendAnswers,
    StartTransaction,
    TaskAnswer,
    TranslateQuery,
    WritesDone,
)
from rsm_spark.sql.pg.values import TEXT, PgColumn, declared_type, spread
from rsm_spark.sql.pg.wire import (
    PgBindRequest,
    PgCloseRequest,
    PgCopyRequest,
    PgDescribeRequest,
    PgExecuteRequest,
    PgFlushRequest,
    PgParseRequest,
    PgQuery,
    PgRequest,
    PgSecretAnswer,
    PgSyncRequest,
    PgTerminateRequest,
)
from rsm_spark.sql.pg.write_desk import FAILED, IDLE, OPEN, PgWriteDesk, executed_already
from rsm_spark.sql.pg.zoned_moments import inserted_columns, without_zone, zoned_places
from rsm_spark.sql.table_rights import RIGHTS_ARE_IN_A_FILE

_READS = (PgStatementKind.READ, PgStatementKind.SYSTEM)


class PgSession(PgWriteDesk):
    """See the module.

    Args:
        settings: Of the session.
        may_write: Its principal may.
        is_shown_all: System tables tell its principal who the others are.

    Attributes:
        settings: The same.
        revision: That the session has seen last.
        is_over: The client has said good-bye.
        denied: What it was last told that it has no right to; the shell tells of it, and empties it.

    """

    def __init__(self, settings: SessionSettings, *, may_write: bool, is_shown_all: bool = False) -> None:
        super().__init__(may_write=may_write)
        self.settings = settings
        self._is_shown_all = is_shown_all
        self.revision = 0
        self.is_over = False
        self.denied = ""
        self._copying: CopyWriter | None = None
        self._copying_bytes = 0  # Of those that are held.
        self._skips_to_sync = False
        self._has_begun = False  # A statement of the transaction that is open was to be run.
        self._reads_beside = False  # A result that is too large for it: it does nothing else.

    # ---- the shell's side

    def begin(self, process_id: int, secret: int) -> None:
        """Say what a client is told when it has logged in."""
        for name, value in self.settings.told():
            self._say(answers.status(name, value))
        self._say(answers.key(process_id, secret))
        self._say(answers.ready("I"))

    def take(self, request: PgRequest) -> bool:
        """Take a request for which nothing has to be done first; return False if it is none: then `handle` it.

        It says what `handle` says. Those of a prepared statement that writes are such, up to the `Sync` behind them.
        """
        if self._skips_to_sync or self._copying is not None:
            return False
        kind = type(request)
        try:
            if kind is PgBindRequest:
                assert isinstance(request, PgBindRequest)
                prepared = self._statement(request.statement)
                if zoned_places(prepared.types, request.formats, request.values):
                    return False
                self._bind(request)
                return True
            if kind is PgExecuteRequest:
                assert isinstance(request, PgExecuteRequest)
                portal = self._portals.get(request.portal)
                statement = None if portal is None else portal.prepared.statement
                if portal is None or statement is None or statement.kind is not PgStatementKind.WRITE:
                    return False
                self._execute_write(request, portal, statement)
                return True
            if kind is PgSyncRequest and not self._kept:
                self._end_series()
                return True
        except f.PgFatalFault:
            raise
        except f.PgFault as fault:
            self.failed(request, fault)
            return True
        return False

    def writes_at(self, request: PgRequest) -> RunWrites | None:
        """Return what is to be done at a `Sync` that ends statements which write; then `written` or `failed` is called.

        None = the request is another one, or they belong to a transaction that is open: `handle` it.
        """
        if not self._kept or self._state != IDLE or type(request) is not PgSyncRequest:
            return None
        return RunWrites(tuple(kept.sent for kept in self._kept))

    def written(self, done: WritesDone) -> None:
        """Say that what `writes_at` returned is done."""
        self.revision = max(self.revision, done.revision)
        self._answer_kept(done.results)
        self._end_series()

    def handle(self, request: PgRequest) -> Steps:
        """Take a request; see the module."""
        if isinstance(request, PgTerminateRequest):
            self.is_over = True
            return
        if self._skips_to_sync and not isinstance(request, PgSyncRequest):
            return
        is_copying = self._copying is not None
        try:
            yield from (self._copy_on(request) if is_copying else self._handle(request))
        except f.PgFatalFault:
            raise
        except f.PgFault as fault:
            self.failed(request, fault, is_copying=is_copying)

    def failed(self, request: PgRequest, fault: f.PgFault, *, is_copying: bool = False) -> None:
        """Answer a request with a fault."""
        if fault.code == f.DENIED:
            self.denied = fault.text
        self._fail(fault)
        if self._state == OPEN:
            self._state = FAILED
        if isinstance(request, PgQuery) or is_copying:
            self._end_copy()
            self._ready()
        elif isinstance(request, PgSyncRequest):
            self._end_series()
        else:
            self._skips_to_sync = True

    def _handle(self, request: PgRequest) -> Steps:
        match request:
            case PgQuery():
                yield from self._query(request)
                if self._copying is None:
                    self._ready()
            case PgParseRequest():
                yield from self._parse(request)
            case PgBindRequest():
                yield from self._bind_moments(request)
            case PgDescribeRequest():
                yield from self._describe(request)
            case PgExecuteRequest():
                yield from self._execute(request)
            case PgCloseRequest():
                self._close(request)
            case PgFlushRequest():
                yield from self._run_kept()
                yield SendAnswers()
            case PgSyncRequest():
                yield from self._run_kept()
                self._end_series()
            case PgSecretAnswer():
                raise f.PgFatalFault(f.PROTOCOL_VIOLATION, "nobody has asked for a password")
            case _:
                pass  # Of a copy that was refused, or has failed: it is passed over.

    # ---- answers

    def _ready(self) -> None:
        self._say(answers.ready(self._state))

    def _end_series(self) -> None:
        self._skips_to_sync = False
        if self._state == IDLE:
            self._drop_portals(is_kept=True)
        self._ready()

    # ---- one text

    def _query(self, request: PgQuery) -> Steps:
        statements: tuple[PgStatement, ...] = yield TranslateQuery(request.sql)
        self._drop_portal("")
        if not statements:
            self._say(answers.EMPTY)
            return
        for statement in statements:
            if statement.words[:1] == ("COPY",) and len(statements) > 1:
                raise f.PgFault(f.NOT_SUPPORTED, "COPY is sent as a text of its own")
            if statement.parameter_count:
                raise f.PgFault("42P02", "there is no parameter $1 in a text without values")
        if self._state != IDLE or any(one.kind is PgStatementKind.TRANSACTION for one in statements):
            for statement in statements:
                self._check_not_failed(statement)
                yield from self._query_one(statement, is_kept=False)
                yield from self._run_kept()
            return
        writes = [place for place, one in enumerate(statements) if one.kind is PgStatementKind.WRITE]
        for place, statement in enumerate(statements):
            in_transaction = bool(writes) and writes[0] <= place <= writes[-1] and len(writes) > 1
            yield from self._query_one(statement, is_kept=in_transaction and statement.kind is PgStatementKind.READ)
            if writes and place == writes[-1]:
                yield from self._run_kept()

    def _query_one(self, statement: PgStatement, *, is_kept: bool) -> Steps:
        """Do one statement of a text, or keep it for its transaction."""
        if is_kept or statement.kind is PgStatementKind.WRITE:
            self._keep(statement, (), None)
        elif statement.kind in _READS:
            found: RowsRead = yield from self._read(statement, ())
            columns = columns_of(found.result)
            self._say(answers.columns(columns, (0,) * len(columns)))
            count: int = yield from self._send_all(found, columns)
            self._say(answers.done(tag_of_rows(statement, count)))
        else:
            yield from self._command(statement, is_text=True)

    def _read(
        self, statement: PgStatement, values: tuple[SqlValue, ...], *, is_beside: bool = False
    ) -> Generator[PgTask, TaskAnswer, RowsRead]:
        """Read the rows of a query, or the first of them; `is_beside` = not as a part of the open transaction."""
        is_system = statement.kind is PgStatementKind.SYSTEM
        if self._state == OPEN and not is_system and not is_beside:
            is_first = not self._has_begun
            try:
                (result,) = yield from self._step((SqlStatement(statement.sql, values),))
            except f.PgFault as fault:
                if not (is_first and self._has_begun and fault.code == f.TOO_LARGE):
                    raise
            else:
                return RowsRead(result, self.revision)
            yield EndTransaction(is_kept=False)
            self._has_begun, self._reads_beside = False, True
        settings = self.settings
        level = LINEARIZABLE if self._state == OPEN and not is_system else settings.level(self.revision)
        user, told = (settings.get("session_authorization"), tuple(settings.all())) if is_system else ("", ())
        found: RowsRead = yield ReadRows(
            statement.sql, values, level, is_system, user, told, self._is_shown_all, self._may_write
        )
        self.revision = max(self.revision, found.revision)
        return found

    # ---- COPY

    def _copy(self, statement: PgStatement) -> Steps:
        """Copy rows out, or begin to copy them in."""
        command = copy_command(statement.sql)
        asked: tuple[PgStatement, ...] = yield TranslateQuery(command.select)
        if len(asked) != 1 or asked[0].kind not in _READS:
            raise f.PgFault(f.SYNTAX, "COPY (…) TO STDOUT copies the rows of one query")
        if command.is_in:
            self._check_may_write()
            prepared = PreparedStatement(asked[0], ())
            yield from self._describe_statement(prepared)
            columns = prepared.columns or ()
            self._copying = CopyWriter(command, [column.type for column in columns])
            self._say(answers.copy_begins(len(columns), is_in=True, form=int(command.is_binary)))
            return
        found: RowsRead = yield from self._read(asked[0], ())
        columns = columns_of(found.result)
        out = CopyAnswers(command)
        self._say(answers.copy_begins(len(columns), is_in=False, form=out.form))
        if command.has_header:
            self._say(answers.copied(copied_row(command, [column.name.encode() for column in columns])))
        count: int = yield from self._send_all(found, columns, out.row, form=out.form)
        self._say(out.end())
        self._say(answers.done(f"COPY {count}"))

    def _copy_on(self, request: PgRequest) -> Steps:
        """Take a part of what is copied in."""
        copying = self._copying
        assert copying is not None
        if isinstance(request, PgFlushRequest | PgSyncRequest):
            return
        if not isinstance(request, PgCopyRequest):
            raise f.PgFault(f.PROTOCOL_VIOLATION, "a COPY was under way: it is given up")
        in_parts = self._state == OPEN or self.settings.get(COPY_AS) == "batches"
        is_due = copying.take_part(request, in_parts=in_parts)
        self._hold_copied(copying.held_bytes)
        if is_due:
            may_divide = in_parts and self._state != OPEN
            yield from copying.written(copying.take(), self._write_all, may_divide=may_divide)
        if request.is_end:
            self._end_copy()
            self._say(answers.done(f"COPY {copying.count}"))
            self._ready()

    def _hold_copied(self, size: int) -> None:
        self.held_bytes -= self._copying_bytes
        self._copying_bytes = 0
        self._hold(size)
        self._copying_bytes = size

    def _end_copy(self) -> None:
        self._copying = None
        self._hold_copied(0)

    # ---- statements that write, until they are done together

    def _run_kept(self) -> Steps:
        """Have what was kept done, as one transaction."""
        if not self._kept:
            return
        sent = tuple(kept.sent for kept in self._kept)
        self._answer_kept((yield from self._write_all(sent)))

    def _write_all(self, sent: tuple[SqlStatement, ...]) -> Generator[PgTask, TaskAnswer, tuple[SqlResult, ...]]:
        """Have statements done in the open transaction, or as one."""
        if not sent or self._state == OPEN:
            return (yield from self._step(sent)) if sent else ()
        done: WritesDone = yield RunWrites(sent)
        self.revision = max(self.revision, done.revision)
        return done.results

    # ---- a transaction that was begun

    def _step(self, statements: tuple[SqlStatement, ...]) -> Generator[PgTask, TaskAnswer, tuple[SqlResult, ...]]:
        """Run statements in the transaction that is open."""
        if self._reads_beside:
            raise f.PgFault(
                f.NOT_SUPPORTED,
                "a result of this transaction has more rows than a transaction may read, so it is read beside it, and "
                "the transaction does nothing else: COMMIT first, use another connection, or a cursor WITH HOLD",
            )
        if not self._has_begun:
            yield StartTransaction()
            self._has_begun = True
        results: tuple[SqlResult, ...] = yield RunStep(statements)
        return results

    def _transaction_command(self, statement: PgStatement) -> Steps:
        words = statement.words
        match words[0]:
            case "BEGIN" | "START":
                if self._state != IDLE:
                    self._say(answers.notice(f.HAS_TRANSACTION, "there is a transaction in progress already"))
                else:
                    self._state, self._has_begun, self._reads_beside = OPEN, False, False
                    self._is_read_only = "READ ONLY" in " ".join(statement.sql.upper().split())
                self._say(answers.done("BEGIN" if words[0] == "BEGIN" else "START TRANSACTION"))
            case "SAVEPOINT" | "RELEASE":
                yield from self._savepoint(statement, words[0])
            case "ROLLBACK" if "TO" in words:
                yield from self._savepoint(statement, "ROLLBACK")
            case "COMMIT" | "END" | "ROLLBACK" | "ABORT" if "PREPARED" not in words:
                yield from self._end_transaction(is_kept=words[0] in ("COMMIT", "END"))
            case _:
                raise f.PgFault(f.NOT_SUPPORTED, "transactions in two phases are not served")

    def _savepoint(self, statement: PgStatement, tag: str) -> Steps:
        if self._state == IDLE:
            raise f.PgFault(f.NO_TRANSACTION, f"{statement.words[0]} belongs into a transaction: BEGIN first")
        if self._state == FAILED and tag != "ROLLBACK":
            raise f.PgFault(f.ABORTED, "a statement of the transaction has failed: roll it back first")
        yield from self._step((SqlStatement(statement.sql),))
        self._state = OPEN
        if tag == "ROLLBACK":
            self._drop_cursors(is_all=False)  # They may show what is undone.
        self._say(answers.done(tag))

    def _end_transaction(self, *, is_kept: bool) -> Steps:
        if self._state == IDLE:
            self._say(answers.notice(f.NO_TRANSACTION, "there is no transaction in progress"))
            self._say(answers.done("COMMIT" if is_kept else "ROLLBACK"))
            return
        is_kept = is_kept and self._state == OPEN
        has_begun, self._state, self._is_read_only = self._has_begun, IDLE, False
        self._reads_beside = False
        if has_begun:
            try:
                revision: int = yield EndTransaction(is_kept)
            except f.PgFault:
                self._drop_portals(is_kept=False)
                raise
            self.revision = max(self.revision, revision)
        self._drop_portals(is_kept=is_kept)
        self._say(answers.done("COMMIT" if is_kept else "ROLLBACK"))

    def _alter(self, statement: PgStatement) -> Steps:
        """Alter a table as SQLite does not: by statements that make it anew, as one transaction."""
        self._check_may_write()
        yield from self._run_kept()
        yield from self._write_all((yield from altered(statement.sql, self._read, self._dropped)))
        self._say(answers.done("ALTER TABLE"))

    # ---- commands of the session

    def _command(self, statement: PgStatement, *, is_text: bool) -> Steps:
        """Carry out a statement that concerns the session alone."""
        words = statement.words
        if words[0] in CURSOR_WORDS:
            yield from self._cursor_command(statement, None)
            return
        if statement.kind in (PgStatementKind.TRANSACTION, PgStatementKind.ALTER):
            is_alter = statement.kind is PgStatementKind.ALTER
            yield from (self._alter(statement) if is_alter else self._transaction_command(statement))
            return
        match words[0]:
            case "SHOW":
                rows, columns = self._shown(statement)
                if is_text:
                    self._say(answers.columns(columns, (0,) * len(columns)))
                yield from self._send_rows(rows, columns, (0,) * len(columns))
                self._say(answers.done("SHOW"))
                return
            case "SET":
                found = set_of(statement.sql)
                if found is not None:
                    if found[1].upper() == "DEFAULT":
                        self._tell(self.settings.reset(found[0]))
                    else:
                        self._tell([name for name in [self.settings.set(*found)] if name])
            case "RESET":
                self._tell(self.settings.reset(name_of(statement.sql)))
            case "DISCARD":
                if words[1:2] == ("ALL",):
                    self._tell(self.settings.reset("all"))
                    self._drop_all()
                    self._drop_cursors(is_all=True)
            case "DEALLOCATE":
                self._deallocate(statement)
            case "COPY":
                if not is_text:
                    raise f.PgFault(f.NOT_SUPPORTED, "COPY is sent as a text of its own, not as a prepared statement")
                yield from self._copy(statement)
                return
            case "UNLISTEN" | "CHECKPOINT":
                pass
            case "GRANT" | "REVOKE":
                raise f.PgFault(f.NOT_SUPPORTED, RIGHTS_ARE_IN_A_FILE)
            case word:
                raise f.PgFault(f.NOT_SUPPORTED, f"{word} is not served here: see docs/sql.md")
        self._say(answers.done(" ".join(words[:2]) if words[0] == "DISCARD" else words[0]))

    # ---- cursors

    def _cursor_command(self, statement: PgStatement, portal: PgPortal | None) -> Steps:
        """Declare a cursor, have rows of it, or close it; `portal` = that of the command, if it has one."""
        match statement.words[0]:
            case "DECLARE":
                yield from self._declare(statement, () if portal is None else portal.values)
                self._say(answers.done("DECLARE CURSOR"))
            case "CLOSE":
                name = closed_cursor(statement.sql)
                if name:
                    self._cursor(name)
                    self._drop_portal(name)
                else:
                    self._drop_cursors(is_all=True)
                self._say(answers.done("CLOSE CURSOR" if name else "CLOSE CURSOR ALL"))
            case _:
                step = cursor_step(statement.sql)
                cursor = self._cursor(step.name)
                columns, formats = cursor.columns or (), None
                if not step.is_move:
                    formats = spread(() if portal is None else portal.formats, len(columns), "columns")
                    if portal is None:
                        self._say(answers.columns(columns, formats))
                count = yield from self._take_rows(cursor, step.rows_max, formats)
                self._say(answers.done(f"{statement.words[0]} {count}"))

    def _declare(self, statement: PgStatement, values: tuple[SqlValue, ...]) -> Steps:
        declared = declared_cursor(statement.sql)
        if self._state == IDLE and not declared.is_held:
            raise f.PgFault(f.NO_TRANSACTION, "a cursor lives in a transaction: BEGIN first, or declare it WITH HOLD")
        if declared.name in self._portals:
            raise f.PgFault(f.HAS_PORTAL, f"there is a cursor {declared.name!r} already: CLOSE it first")
        if sum(portal.is_cursor for portal in self._portals.values()) >= CURSORS_MAX:
            raise f.PgFault(f.MEMORY, f"a connection has at most {CURSORS_MAX} cursors: CLOSE some")
        asked: tuple[PgStatement, ...] = yield TranslateQuery(declared.query)
        if len(asked) != 1 or asked[0].kind not in _READS:
            raise f.PgFault(f.SYNTAX, "DECLARE … CURSOR FOR is followed by one query that only reads")
        portal = PgPortal(
            PreparedStatement(asked[0], ()), values, (),
            STATEMENT_BYTES + len(asked[0].sql) + len(declared.name) + sum(map(size_of, values)),
        )  # fmt: skip
        portal.is_cursor, portal.is_held, portal.is_of_none = True, declared.is_held, self._state == IDLE
        self._hold(portal.size)
        self._portals[declared.name] = portal
        try:
            # One that is held is read in slices, unless its transaction may have changed what it shows.
            yield from self._read_portal(portal, asked[0], is_beside=declared.is_held and not self._has_begun)
        except f.PgFault:
            self._drop_portal(declared.name)
            raise

    def _shown(self, statement: PgStatement) -> tuple[list[tuple[Any, ...]], tuple[PgColumn, ...]]:
        name = name_of(statement.sql)
        return [(self.settings.get(name),)], (PgColumn(name, TEXT),)

    def _tell(self, names: Sequence[str]) -> None:
        for name in names:
            self._say(answers.status(name, self.settings.get(name)))

    # ---- prepared statements and portals

    def _parse(self, request: PgParseRequest) -> Steps:
        statements: tuple[PgStatement, ...] = yield TranslateQuery(request.sql)
        self._check_not_failed(statements[0] if statements else None)
        if len(statements) > 1:
            raise f.PgFault(f.SYNTAX, "a prepared statement is one statement: this text has more")
        if request.name and request.name in self._statements:
            raise f.PgFault(f.HAS_STATEMENT, f"there is a prepared statement {request.name!r} already")
        self._drop_statement(request.name)
        if len(self._statements) >= STATEMENTS_MAX:
            raise f.PgFault(f.MEMORY, f"a session has at most {STATEMENTS_MAX} prepared statements: close some")
        prepared = PreparedStatement(statements[0] if statements else None, request.types)
        self._hold(prepared.size)
        self._statements[request.name] = prepared
        self._say(answers.PARSED)

    def _bind_moments(self, request: PgBindRequest) -> Steps:
        """Bind values, of which a column's type may say what is kept; see `zoned_moments`."""
        prepared = self._statement(request.statement)
        places = zoned_places(prepared.types, request.formats, request.values)
        if places and prepared.statement is not None:
            if prepared.column_types is None:
                prepared.column_types = yield from self._column_types(prepared.statement)
            values = list(request.values)
            for place in places:
                values[place] = without_zone(prepared.column_types.get(place, TEXT), values[place] or b"")
            request = msgspec.structs.replace(request, values=tuple(values))
        self._bind(request)

    def _column_types(self, statement: PgStatement) -> Generator[PgTask, TaskAnswer, dict[int, int]]:
        found = inserted_columns(statement.sql)
        if found is None:
            return {}
        asked = PreparedStatement(PgStatement(PgStatementKind.READ, found[0], ("SELECT",), 0, is_returning=False), ())
        yield from self._describe_statement(asked)
        types = [column.type for column in asked.columns or ()]
        return {number: types[place] for number, place in found[1].items() if place < len(types)}

    def _describe(self, request: PgDescribeRequest) -> Steps:
        if request.is_portal:
            portal = self._portal(request.name)
            columns = yield from self._portal_columns(portal)
            if columns is None:
                self._say(answers.NO_ROWS)
            else:
                self._say(answers.columns(columns, spread(portal.formats, len(columns), "columns")))
            return
        prepared = self._statement(request.name)
        yield from self._describe_statement(prepared)
        self._say(answers.parameters([kind or TEXT for kind in prepared.types]))
        if prepared.columns is None:
            self._say(answers.NO_ROWS)
        else:
            self._say(answers.columns(prepared.columns, (0,) * len(prepared.columns)))

    def _describe_statement(self, prepared: PreparedStatement) -> Steps:
        """Learn the columns of a statement before it has values."""
        statement = prepared.statement
        if statement is None or not statement.has_rows:
            return
        if statement.words[0] == "FETCH":
            prepared.columns = self._cursor(cursor_step(statement.sql).name).columns
            return
        if prepared.columns is not None:
            return
        if statement.kind is PgStatementKind.COMMAND:
            prepared.columns = self._shown(statement)[1]
            return
        is_system = statement.kind is PgStatementKind.SYSTEM
        found: tuple[tuple[str, str], ...]
        try:
            found = yield DescribeRows(statement.sql, is_system)
        except f.PgFault:
            if self._state != OPEN or statement.kind is not PgStatementKind.READ:
                raise
            # It may name what this transaction has made, of which nobody else knows.
            sql = f"SELECT * FROM ({statement.sql}\n) LIMIT 0"  # noqa: S608 - the client's own words
            asked = SqlStatement(sql, (None,) * statement.parameter_count)
            (result,) = yield from self._step((asked,))
            found = result.columns
        prepared.columns = tuple(PgColumn(name, declared_type(declared) or TEXT) for name, declared in found)

    def _portal_columns(self, portal: PgPortal) -> Generator[PgTask, TaskAnswer, tuple[PgColumn, ...] | None]:
        """Learn the columns of a portal: a query is done for it."""
        statement = portal.prepared.statement
        if statement is None or not statement.has_rows:
            return None
        if statement.kind in _READS:
            yield from self._read_portal(portal, statement)
        elif portal.columns is None or statement.words[0] == "FETCH":
            try:
                yield from self._describe_statement(portal.prepared)
                portal.columns = portal.prepared.columns
            except f.PgFault:
                if self._state != OPEN or statement.kind is not PgStatementKind.WRITE:
                    raise
                # It may name what this transaction has made, of which nobody else knows: it is done for its columns.
                self._check_may_write()
                yield from self._run_kept()
                (portal.result,) = yield from self._step((SqlStatement(statement.sql, portal.values),))
                portal.columns = columns_of(portal.result)
        return portal.columns

    def _read_portal(self, portal: PgPortal, statement: PgStatement, *, is_beside: bool = False) -> Steps:
        if portal.result is not None:
            return
        yield from self._run_kept()
        found: RowsRead = yield from self._read(statement, portal.values, is_beside=is_beside)
        portal.left = found.left
        self._fill(portal, found.result)
        if portal.columns is None:
            portal.columns = columns_of(found.result)
        elif len(portal.columns) != len(found.result.columns):
            raise f.PgFault(
                f.NOT_SUPPORTED, "the tables have changed since this statement was prepared: prepare it anew"
            )

    def _execute(self, request: PgExecuteRequest) -> Steps:
        portal = self._portal(request.portal)
        statement = portal.prepared.statement
        if statement is None:
            self._say(answers.EMPTY)
            return
        if statement.kind is PgStatementKind.WRITE:
            self._execute_write(request, portal, statement)
            return
        self._check_not_failed(statement)
        if portal.is_done:
            raise executed_already(request.portal)
        if statement.kind in _READS:
            yield from self._read_portal(portal, statement)
            yield from self._send_portal(portal, statement, request.rows_max)
        else:
            portal.is_done = True
            yield from self._run_kept()
            if statement.words[0] in CURSOR_WORDS:
                yield from self._cursor_command(statement, portal)
            else:
                yield from self._command(statement, is_text=False)

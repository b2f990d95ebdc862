"""An open interactive transaction: it reads one commit, and what it changes is its own.

    hold      the commit before its first statement, by a connection that reads
    read      as of that commit; by the other connection, once there is one
    write     by a connection on `OverlayFiles`, opened for the first statement that may write
    end       all of it is dropped; a COMMIT runs the statements again, on the leader's tables

Nobody waits for it, and it waits for nobody: what other transactions do meanwhile it does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import apsw

from rsm_spark.errors import CorruptLogError
from rsm_spark.sql.engine.catalog import SqlCatalog
from rsm_spark.sql.engine.connections import open_overlay, private_comment
from rsm_spark.sql.engine.faults import SqlFaultError, fault_of, is_statements_own
from rsm_spark.sql.engine.folding import RecordWriter
from rsm_spark.sql.engine.guard import StatementGuard
from rsm_spark.sql.engine.overlay import OverlayFiles
from rsm_spark.sql.engine.reader import SqlReader
from rsm_spark.sql.engine.running import SqlRunner
from rsm_spark.sql.engine.savepoints import SavepointStack
from rsm_spark.sql.engine.sequences import SequenceTable
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import SqlFault, SqlQuery, SqlResult, SqlStatement, StepOutcome, told_of
from rsm_spark.sql.statement_words import reads_only
from rsm_spark.sql.system_tables import SystemRows, system_names
from rsm_spark.sql.table_rights import TableRights


class HeldTransaction:
    """See the module. For one thread at a time; only `stop` may come from another.

    Args:
        path: Of the file.
        settings: Limits.
        clock_s: Monotonic seconds.
        wal_end: Bytes of the WAL up to its last commit, which is held from here on.

    Attributes:
        revision: Of the commit that it reads.
        has_written: It has changed rows, or the schema.
        rights: Tables that its client has; None = all. Set before its first step.

    """

    def __init__(self, path: Path, settings: SqlSettings, clock_s: Callable[[], float], wal_end: int) -> None:
        self._path = path.absolute()
        self._settings = settings
        self._clock_s = clock_s
        self._wal_end = wal_end
        self._is_stopped = False
        self._own: _OwnTables | None = None
        self._savepoints = SavepointStack()  # Until there are own tables.
        self.has_written = False
        self.rights: TableRights | None = None
        self._reader = SqlReader(path, settings, clock_s)
        try:
            self.revision = self._reader.hold()
        except apsw.Error:
            self._reader.close()
            raise

    def step(self, statements: Sequence[SqlStatement], system: SystemRows | None = None) -> list[StepOutcome]:
        """Run statements, up to the first that fails.

        Args:
            statements: In order.
            system: Rows of the system tables that they name; None = there are none.

        Raises:
            SqlFaultError: The transaction cannot go on.

        """
        outcomes: list[StepOutcome] = []
        for statement in statements:
            outcome = self._run(statement, system)
            outcomes.append(outcome)
            if outcome.fault is not None:
                break
        return outcomes

    def _run(self, statement: SqlStatement, system: SystemRows | None) -> StepOutcome:
        try:
            if system is not None and reads_only(statement.sql) and system_names(statement.sql):
                outcome = self._of_system(statement, system)
                if outcome is not None:
                    return outcome
            if self._own is None:
                outcome = self._without_own(statement)
                if outcome is not None:
                    return outcome
                self._own = _OwnTables(self._path, self._wal_end, self._settings, self._clock_s, self.rights)
                self._own.begin(self.revision + 1, self._savepoints)
                self._own.runner.is_stopped = self._is_stopped
            found = self._own.runner.step(statement, self._settings.read_ms_max / 1000)
        except Exception as error:  # noqa: BLE001 - the transaction ends with it, whatever it is
            self._fail(error)
        own = self._own
        self.has_written = self.has_written or own.has_written
        if isinstance(found, SqlFault):
            return StepOutcome(None, found, told_of(found))
        is_free = reads_only(statement.sql) and not own.has_read
        return StepOutcome(found, None, b"" if is_free else told_of(found))

    def _of_system(self, statement: SqlStatement, system: SystemRows) -> StepOutcome | None:
        """Read system tables, which a COMMIT does not look at again; None = it reads none."""
        if self._is_stopped:
            raise apsw.InterruptError("it was stopped")
        query = SqlQuery(statement.sql, statement.parameters)
        reply, has_read, has_read_system = self._reader.read_held(query, system, self.rights)
        if not has_read_system and (has_read or reply.fault is None):
            return None
        if has_read:
            text = "a transaction may read system tables, but not together with tables of the log: ask outside of it"
            return StepOutcome(None, SqlFault("refused", text))
        if reply.fault is not None and reply.fault.kind == "limit":
            raise SqlFaultError(reply.fault)
        fault = reply.fault or _unexpected(statement, reply.results[0])
        return StepOutcome(None, fault) if fault is not None else StepOutcome(reply.results[0])

    def _without_own(self, statement: SqlStatement) -> StepOutcome | None:
        """Run a statement on the shared tables; None = it may write."""
        savepoint = self._savepoints.sql_of(statement.sql)
        if savepoint:
            return StepOutcome(SqlResult(), None, told_of(SqlResult()))
        if not reads_only(statement.sql):
            return None
        if self._is_stopped:
            raise apsw.InterruptError("it was stopped")
        query = SqlQuery(statement.sql, statement.parameters)
        reply, has_read, _ = self._reader.read_held(query, rights=self.rights)
        fault = reply.fault
        if fault is not None and fault.kind == "refused":
            return None
        if fault is not None and fault.kind == "limit":
            raise SqlFaultError(fault)
        fault = fault or _unexpected(statement, reply.results[0])
        if fault is not None:
            return StepOutcome(None, fault, told_of(fault))
        (result,) = reply.results
        return StepOutcome(result, None, told_of(result) if has_read else b"")

    def _fail(self, error: Exception) -> NoReturn:
        if isinstance(error, SqlFaultError):
            raise error
        if self._is_stopped:
            raise SqlFaultError(SqlFault("aborted", "the transaction has ended")) from error
        if is_statements_own(error):
            own = self._own
            raise SqlFaultError(fault_of(error, "" if own is None else own.refusal, 0)) from error
        if isinstance(error, apsw.Error | CorruptLogError | OSError):
            text = f"the transaction ended with an error of its files: {type(error).__name__}: {error}"
            raise SqlFaultError(SqlFault("aborted", text)) from error
        raise error

    def stop(self) -> None:
        """Have what runs end soon; from any thread."""
        self._is_stopped = True
        self._reader.interrupt(self._reader.number)
        own = self._own
        if own is not None:
            own.runner.is_stopped = True

    def close(self) -> None:
        """Drop what it changed; nothing runs."""
        try:
            if self._own is not None:
                self._own.close()
        finally:
            self._reader.release()
            self._reader.close()


def _unexpected(statement: SqlStatement, result: SqlResult) -> SqlFault | None:
    seen = len(result.rows)
    if statement.expected is None or seen == statement.expected:
        return None
    return SqlFault("expected", f"{statement.expected} rows were expected, it has {seen}")


class _OwnTables:
    """The connection that changes, and what runs statements on it as on a leader."""

    def __init__(
        self,
        path: Path,
        wal_end: int,
        settings: SqlSettings,
        clock_s: Callable[[], float],
        rights: TableRights | None,
    ) -> None:
        self._files = OverlayFiles(path, wal_end)
        self._private = private_comment()
        try:
            self._connection = open_overlay(path, self._files.name)
        except BaseException:
            self._files.unregister()
            raise
        self._guard = StatementGuard(may_write=True)
        self._guard.rights = rights
        self._connection.authorizer = self._guard
        self._catalog = SqlCatalog(self.execute)
        self._sequences = SequenceTable(self.execute, self._catalog)
        self.runner = SqlRunner(
            self._connection,
            self.execute,
            self._guard,
            self._catalog,
            self._sequences,
            RecordWriter(self.execute, self.execute, self._catalog, self._sequences),
            clock_s,
            settings.result_bytes_max,
        )
        self._changes_before = self._connection.total_changes()

    def begin(self, number: int, savepoints: SavepointStack) -> None:
        """Begin, with savepoints that are open already."""
        self.execute("BEGIN")
        self._catalog.load()
        self._sequences.load()
        self.runner.begin(number, savepoints)

    @property
    def has_written(self) -> bool:
        return self.runner.has_made or self._connection.total_changes() != self._changes_before

    @property
    def has_read(self) -> bool:
        return self._guard.has_read

    @property
    def refusal(self) -> str:
        return self._guard.refusal

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Run a statement of the replica itself."""
        guard = self._guard
        was_on, guard.is_on = guard.is_on, False
        try:
            return self._connection.execute(self._private + sql, parameters)
        finally:
            guard.is_on = was_on

    def close(self) -> None:
        try:
            self._connection.close(force=True)
        finally:
            self._files.unregister()

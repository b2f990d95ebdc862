"""Runs the statements of clients on a leader's writing connection, and says what they changed as records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import apsw

from rsm_spark.core.machine import MachineDescription
from rsm_spark.sql.engine.bounded_rows import rows_within, told_columns
from rsm_spark.sql.engine.catalog import CatalogChange, SqlCatalog
from rsm_spark.sql.engine.connections import bound_values
from rsm_spark.sql.engine.faults import MORE_THAN_ONE, SqlRefusal, fault_of, is_survived
from rsm_spark.sql.engine.folding import RecordWriter
from rsm_spark.sql.engine.guard import StatementGuard
from rsm_spark.sql.engine.rights_check import RightsCheck
from rsm_spark.sql.engine.savepoints import SavepointStack
from rsm_spark.sql.engine.sequences import SequenceTable
from rsm_spark.sql.engine.shapes import Execute, TableShape, quoted
from rsm_spark.sql.engine.touched import MadeRecord, TouchedRows
from rsm_spark.sql.limits import STATEMENTS_MAX, VALUE_BYTES_MAX
from rsm_spark.sql.messages import SqlCommit, SqlFault, SqlResult, SqlStatement, told_of
from rsm_spark.sql.records import OLD_IMAGES_VERSION, SqlRecord
from rsm_spark.sql.statement_words import is_of_rows

_PROGRESS_STEPS = 10_000
_PLAIN_MAX = 1_000
_PLAIN_CHARS_MAX = 4_096


class SqlRunner:
    """Runs transactions of clients, one at a time.

    Args:
        connection: The one that writes.
        execute: Runs a statement of the replica itself on it.
        guard: Of that connection.
        catalog: Of the tables.
        sequences: Of AUTOINCREMENT.
        folding: Notes changes of the schema.
        clock_s: Monotonic seconds.
        result_bytes_max: Most bytes of the rows that a statement returns.

    Attributes:
        is_stopped: What runs is to end soon; set from any thread.

    """

    def __init__(
        self,
        connection: apsw.Connection,
        execute: Execute,
        guard: StatementGuard,
        catalog: SqlCatalog,
        sequences: SequenceTable,
        folding: RecordWriter,
        clock_s: Callable[[], float],
        result_bytes_max: int,
    ) -> None:
        self.is_stopped = False
        self._result_bytes_max = result_bytes_max
        self._savepoints = SavepointStack()
        self._is_caching = True
        self._connection = connection
        self._execute = execute
        self._guard = guard
        self._catalog = catalog
        self._sequences = sequences
        self._folding = folding
        self._clock_s = clock_s
        self._touched = TouchedRows(execute, catalog)
        self._check = RightsCheck(connection, execute, guard)
        self._checked: set[str] = set()  # Texts that were looked at, for the rights of this transaction.
        self._plain: set[str] = set()  # Texts that are one statement, which writes rows and returns none.
        self._deadline_s = float("inf")
        self._statements_seen = 0
        self._made: list[MadeRecord] = []
        self._number = 0
        self._rewritten = 0  # Number of the table that the statement drops, or whose column it drops.
        self._altered: TableShape | None = None
        connection.preupdate_hook(self._on_change)
        connection.set_progress_handler(self._is_over, _PROGRESS_STEPS)

    def follow(self, description: MachineDescription) -> None:
        """Make the records of a version of the machine, from here on."""
        self._touched.tells_old = description.version >= OLD_IMAGES_VERSION

    def run(
        self, statements: Sequence[SqlStatement], number: int, time_s: float, done: list[SqlResult]
    ) -> list[MadeRecord]:
        """Run statements; return the records of what they changed.

        Args:
            statements: In order. Where one fails nothing is undone: that is the caller's.
            number: Of a table that they make, greater than any before; each further one has the next.
            time_s: They may take so long.
            done: Gets the result of each.

        Raises:
            SqlRefusal: A statement is not allowed, or too large.
            apsw.Error: It failed.

        """
        self.begin(number)
        self._deadline_s = self._clock_s() + time_s
        try:
            if len(statements) > STATEMENTS_MAX:
                raise SqlRefusal("limit", f"a transaction has at most {STATEMENTS_MAX} statements")
            done.extend(map(self._run_one, statements))
            return self._finish()
        except apsw.InterruptError:
            raise self._interruption(time_s) from None
        finally:
            self._deadline_s = float("inf")
            self._touched.clear()

    def replay(self, commit: SqlCommit, number: int, time_s: float) -> list[MadeRecord]:
        """Run the statements of an interactive transaction; return the records of what they changed.

        Args:
            commit: Statements, and what the client was told of them.
            number: See `run`.
            time_s: They may take so long.

        Raises:
            SqlRefusal: A statement has another outcome than it had.
            apsw.Error: The file failed.

        """
        self.begin(number)
        self._deadline_s = self._clock_s() + time_s
        try:
            if len(commit.statements) > STATEMENTS_MAX:
                raise SqlRefusal("limit", f"a transaction has at most {STATEMENTS_MAX} statements")
            for place, (statement, told) in enumerate(zip(commit.statements, commit.told, strict=True)):
                if told_of(self._outcome(statement)) != told:
                    raise SqlRefusal(
                        "conflict", f"another transaction has changed what statement {place} read or wrote: begin again"
                    )
            return self._finish()
        except apsw.InterruptError:
            raise self._interruption(time_s) from None
        finally:
            self._deadline_s = float("inf")
            self._touched.clear()

    def begin(self, number: int, savepoints: SavepointStack | None = None) -> None:
        """Begin a transaction.

        Args:
            number: See `run`.
            savepoints: That it has already, elsewhere; they are opened. None = it has none.

        """
        self._made, self._number = [], number
        self._checked.clear()
        self._touched.clear()
        self._guard.begin()
        if savepoints is not None or self._savepoints.depth:
            self._savepoints = savepoints or SavepointStack()
            for sql in self._savepoints.opening:
                self._execute(sql)
        # An UPDATE tells the rowid that was inserted last: of this transaction.
        self._connection.set_last_insert_rowid(0)

    @property
    def has_made(self) -> bool:
        """The schema was changed, or rows before it."""
        return bool(self._made)

    def step(self, statement: SqlStatement, time_s: float) -> SqlResult | SqlFault:
        """Run one statement of an interactive transaction that `begin` began.

        Returns:
            Its result, or the fault with which the transaction goes on as if it had not been there.

        Raises:
            SqlRefusal, apsw.Error: The transaction cannot go on.

        """
        self._deadline_s = self._clock_s() + time_s
        self._is_caching = False  # The guard is to hear what each statement reads.
        try:
            return self._outcome(statement)
        except apsw.InterruptError:
            raise self._interruption(time_s) from None
        finally:
            self._deadline_s = float("inf")
            self._is_caching = True

    def _outcome(self, statement: SqlStatement) -> SqlResult | SqlFault:
        self._touched.read_all()  # What a statement has done may be undone by itself.
        try:
            own = self._savepoints.sql_of(statement.sql)
        except SqlRefusal as refusal:
            return fault_of(refusal, "", 0)
        if own:
            self._execute(own)
            return SqlResult()
        self._execute("SAVEPOINT _step")
        try:
            result = self._run_one(statement)
        except Exception as error:
            fault = fault_of(error, self._guard.refusal, 0)
            if not is_survived(error, fault) or self._guard.schema_action or not self._connection.in_transaction:
                raise
            self._execute("ROLLBACK TO _step")
            self._execute("RELEASE _step")
            self._touched.fault = None
            return fault
        self._execute("RELEASE _step")
        return result

    def _finish(self) -> list[MadeRecord]:
        self._made += self._take_records()
        if self._connection.status(apsw.SQLITE_DBSTATUS_DEFERRED_FKS)[0]:
            raise SqlRefusal("constraint", "FOREIGN KEY constraint failed: a deferred one, at the end")
        return self._made

    def _interruption(self, time_s: float) -> Exception:
        fault = self._touched.fault
        if fault is None or isinstance(fault, apsw.InterruptError):
            return SqlRefusal("limit", f"it takes longer than {time_s:g} s: do it in several transactions")
        return fault

    def _is_over(self) -> bool:
        return self.is_stopped or self._touched.fault is not None or self._clock_s() > self._deadline_s

    def _on_change(self, update: Any) -> None:
        if self._guard.is_on:
            self._touched.on_change(update)

    def _take_records(self) -> list[MadeRecord]:
        return self._touched.take_records() + self._sequences.take_records()

    def _run_one(self, statement: SqlStatement) -> SqlResult:
        connection, guard = self._connection, self._guard
        if guard.rights is not None and statement.sql not in self._checked:
            self._check.statement(statement.sql)
            self._checked.add(statement.sql)
        guard.begin()
        self._statements_seen = self._rewritten = 0
        self._altered = None
        changes_before, direct_before = connection.total_changes(), self._touched.direct_count
        columns, rows = self._carry_out(statement)
        if self._touched.fault is not None:
            raise self._touched.fault
        if guard.schema_action:
            self._after_schema_change(statement.sql)
        is_changed = connection.total_changes() != changes_before and not guard.schema_action
        count = connection.changes() if is_changed else 0
        if self._touched.direct_count - direct_before < count:
            raise SqlRefusal("refused", "it changed rows of which SQLite does not tell: that cannot be replicated")
        seen = len(rows) if columns else count
        if statement.expected is not None and seen != statement.expected:
            raise SqlRefusal("expected", f"{statement.expected} rows were expected, it has {seen}")
        return SqlResult(columns, rows, count, connection.last_insert_rowid() if is_changed else None)

    def _carry_out(self, statement: SqlStatement) -> tuple[tuple[tuple[str, str], ...], tuple[Any, ...]]:
        if self._is_caching and statement.sql in self._plain:
            self._carry_out_plain(statement)
            return (), ()
        cursor = self._connection.cursor()
        columns: tuple[tuple[str, str], ...] = ()

        def _on_statement(_cursor: Any, _sql: str, _bindings: Any) -> bool:
            nonlocal columns
            columns = tuple((name, kind or "") for name, kind in cursor.get_description())
            self._before_statement()
            return True

        cursor.exec_trace = _on_statement
        bound_values(self._connection, VALUE_BYTES_MAX)
        self._guard.is_on = True
        try:
            # The guard hears of a statement when it is prepared: of one that changes the schema it must each time.
            can_cache = self._is_caching and is_of_rows(statement.sql)
            found = cursor.execute(statement.sql, statement.parameters, can_cache=can_cache)
            if columns:
                columns = told_columns(cursor, columns)
            rows = rows_within(found, self._result_bytes_max)
        except KeyError as error:
            raise SqlRefusal("sql", f"the parameter {error} has no value") from None
        finally:
            self._guard.is_on = False
            bound_values(self._connection, None)
            cursor.close(force=True)
        if can_cache and self._statements_seen == 1 and not columns and len(statement.sql) <= _PLAIN_CHARS_MAX:
            if len(self._plain) >= _PLAIN_MAX:
                self._plain.clear()
            self._plain.add(statement.sql)
        return columns, rows

    def _carry_out_plain(self, statement: SqlStatement) -> None:
        """Run a statement that is known to be one, to leave the schema alone, and to return no rows."""
        bound_values(self._connection, VALUE_BYTES_MAX)
        self._guard.is_on = True
        try:
            self._connection.execute(statement.sql, statement.parameters)
        except KeyError as error:
            raise SqlRefusal("sql", f"the parameter {error} has no value") from None
        finally:
            self._guard.is_on = False
            bound_values(self._connection, None)

    def _before_statement(self) -> None:
        """Hear of a statement that is prepared and about to run."""
        self._statements_seen += 1
        if self._statements_seen > 1:
            raise SqlRefusal("sql", MORE_THAN_ONE)
        if not self._guard.schema_action:
            return
        if self._savepoints.depth:
            raise SqlRefusal("refused", f"{self._guard.schema_action} while a savepoint is open: release it first")
        self._guard.is_on = False
        try:
            self._before_schema_change()
        finally:
            self._guard.is_on = True

    def _before_schema_change(self) -> None:
        """Take the records of the statements before, and look at the rows that go with a table or a column."""
        guard, objects = self._guard, self._catalog.objects
        self._made += self._take_records()
        name = next((one for one in objects if one.lower() == guard.target.lower()), "")
        if name and objects[name].kind == "table" and (guard.schema_action == "DROP TABLE" or guard.is_column_drop):
            self._rewritten = objects[name].number
            self._touched.touch_all(self._catalog.shape(name))
        if name and guard.schema_action == "ALTER TABLE":
            self._altered = self._catalog.shape(name)

    def _after_schema_change(self, sql: str) -> None:
        """Log what a statement changed: rows that went with it, itself, the schema, then rows that are there now."""
        catalog = self._catalog
        changes = catalog.difference(is_rename=self._guard.is_rename, number=self._number)
        self._checked.clear()
        self._check.schema(changes)
        if not changes:
            self._made += self._take_records()
            return
        self._number += 1
        if self._rewritten:
            self._made += self._touched.take_all_gone(self._rewritten, are_back=self._guard.is_column_drop)
        if not self._guard.is_column_drop:
            self._made += self._touched.take_records()
        self._made.append(MadeRecord(SqlRecord.STATEMENT_RUN, (sql,), None))
        self._made += [self._folding.note(change) for change in changes]
        for change in changes:
            if change.new is not None and change.new.kind == "table":
                self._check_table(change)

    def _check_table(self, change: CatalogChange) -> None:
        """Check that a table that was made or altered can be replicated.

        Raises:
            SqlRefusal: It cannot.

        """
        name, execute = change.name, self._execute
        shape = self._catalog.shape(name)
        if change.old is None and not self._guard.is_rename:
            if execute(f"SELECT 1 FROM {quoted(name)} LIMIT 1").fetchall():
                raise SqlRefusal(
                    "refused", f"CREATE TABLE {name} AS SELECT: make the table first, then INSERT INTO {name} SELECT …"
                )
            return
        altered = self._altered
        if altered is not None and shape.number == altered.number and len(shape.columns) > len(altered.columns):
            # A column was added: rows of before must read its default, which is left out of their images.
            row = execute(f"{shape.scan} LIMIT 1").fetchone()
            values = () if row is None else row[len(shape.key) :]
            if row is not None and shape.image(values) != altered.image(values[: len(altered.columns)]):
                text = f"ALTER TABLE {name}: this default cannot be added to a table that has rows"
                raise SqlRefusal("refused", text)

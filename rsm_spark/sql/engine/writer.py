"""The file's one writing connection: its transaction is what was folded since the last confirmed entry.

    BEGIN                     at the first thing that is folded after a commit
      SAVEPOINT command       a client's statements, left in place until the kernel folds their records
      RELEASE                 folded: they belong to the entry
      ROLLBACK TO             dropped: the decision did not fit its entry
    COMMIT                    the entry is confirmed, with the mark
    ROLLBACK                  it is not

SQLite rolls the whole transaction back on some errors of one statement (OR ROLLBACK, an interrupt, a full disk). What
the entry holds already is then written again, by key.
"""

# Longer than 400 lines: one connection, and everything that may be in its transaction.

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import msgspec

from rsm_spark.core.durable import KernelChange, StateMark
from rsm_spark.core.machine import MachineDescription, Row, RowChange
from rsm_spark.errors import CorruptLogError, NoRoomError
from rsm_spark.sql.engine.catalog import CATALOG_TABLE, SqlCatalog
from rsm_spark.sql.engine.catalog_history import CatalogHistory
from rsm_spark.sql.engine.connections import open_writer, private_comment
from rsm_spark.sql.engine.faults import SqlFaultError, SqlRefusal, fault_of, is_full, is_statements_own
from rsm_spark.sql.engine.folding import RecordWriter
from rsm_spark.sql.engine.guard import INTERNAL_PREFIX, StatementGuard
from rsm_spark.sql.engine.running import SqlRunner
from rsm_spark.sql.engine.sequences import SequenceTable
from rsm_spark.sql.engine.shapes import quoted
from rsm_spark.sql.engine.touched import MadeRecord, decode_values
from rsm_spark.sql.limits import ENTRY_S, SqlSettings
from rsm_spark.sql.messages import SqlCommit, SqlResult, SqlStatement
from rsm_spark.sql.records import CATALOG
from rsm_spark.sql.table_rights import TableRights

MARK_TABLE = f"{INTERNAL_PREFIX}mark"
KERNEL_TABLE = f"{INTERNAL_PREFIX}kernel"
_PUT_MARK = f"INSERT OR REPLACE INTO {MARK_TABLE} VALUES (1, ?, ?)"
_PUT_ROW = f"INSERT OR REPLACE INTO {KERNEL_TABLE} VALUES (?, ?, ?, ?)"
_REMOVE_ROW = f"DELETE FROM {KERNEL_TABLE} WHERE name = ? AND key = ?"
_MIB = 1024 * 1024
_CHECKPOINT_PAGES = 1000
_WAL_HEAD_BYTES = 32
_FRAME_HEAD_BYTES = 24
_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE_MARK = msgspec.msgpack.Decoder(StateMark).decode


class SqlWriter:
    """See the module. For one thread at a time.

    Args:
        path: Of the file; made if there is none.
        settings: Limits.
        clock_s: Monotonic seconds, for the time limit of a transaction.

    Attributes:
        revision: Of the last commit; 0 before the first.
        wal_pages: Pages of SQLite's WAL that a connection which reads the last commit needs; None before the first.
        catalog: Of the tables, as they are now.
        history: Of them, as they were.

    Raises:
        SnapshotError: The file cannot be opened, or is none of SQLite.

    """

    def __init__(self, path: Path, settings: SqlSettings, clock_s: Callable[[], float]) -> None:
        self.revision = 0
        self.wal_pages: int | None = None
        self._settings = settings
        self._clock_s = clock_s
        self._connection = open_writer(path, settings.cache_mib)
        self._guard = StatementGuard(may_write=True)
        self._connection.authorizer = self._guard
        self._private = private_comment()
        self._savepoint, self._release = f"{self._private}SAVEPOINT command", f"{self._private}RELEASE command"
        self._page_bytes = int(self.execute("PRAGMA page_size").fetchall()[0][0])
        self._connection.set_wal_hook(self._on_wal)
        self.catalog = SqlCatalog(self.execute)
        self.history = CatalogHistory(self.execute, self.catalog)
        self._sequences = SequenceTable(self.execute, self.catalog)
        self._folding = RecordWriter(self.execute, self._execute_logged, self.catalog, self._sequences)
        self._runner = SqlRunner(
            self._connection,
            self.execute,
            self._guard,
            self.catalog,
            self._sequences,
            self._folding,
            clock_s,
            settings.result_bytes_max,
        )
        self._is_leading: bool | None = None
        # Records of the decision whose savepoint is open, and how many of them were folded.
        self._pending: list[MadeRecord] = []
        self._folded_count = 0
        self._folded: list[tuple[int, tuple[Any, ...]]] = []  # Since the last commit.
        self._broken: Exception | None = None
        self._spent_s = 0.0  # By transactions since the last commit.
        self._path = path
        try:
            self._make_tables()
            self.rollback()
        except apsw.Error as error:
            raise self._no_room(error) from error

    def _no_room(self, error: Exception) -> Exception:
        """Return what an error of SQLite means, if it is that the disk is full; else itself."""
        if not is_full(error):
            return error
        return NoRoomError(
            f"{self._path}: the disk is full, and the tables cannot be written: {error}. Make room: what was "
            "confirmed is in the log, and nothing of it is lost"
        )

    def _make_tables(self) -> None:
        self.catalog.make()
        self.history.make()
        self.execute(f"CREATE TABLE IF NOT EXISTS {MARK_TABLE} (one INTEGER PRIMARY KEY, revision INTEGER, mark BLOB)")
        self.execute(
            f"CREATE TABLE IF NOT EXISTS {KERNEL_TABLE} (name TEXT, key BLOB, row BLOB, revision INTEGER, "
            "PRIMARY KEY (name, key)) WITHOUT ROWID"
        )

    def close(self) -> None:
        """Close the file; what is not committed is gone."""
        self._connection.close()

    def _on_wal(self, connection: apsw.Connection, _name: str, pages: int) -> int:
        """Hear of a commit; have pages written back into the file, as SQLite does by itself without this."""
        self.wal_pages = pages
        if pages >= _CHECKPOINT_PAGES:
            # The commit itself stands in the WAL: that the file cannot grow now is no failure of it.
            with contextlib.suppress(apsw.FullError):
                known, written = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                if known == written:
                    self.wal_pages = 0  # The file has all, and the WAL may begin anew at any time.
        return apsw.SQLITE_OK

    @property
    def wal_end(self) -> int | None:
        """Bytes of the WAL that a connection which reads the last commit needs."""
        pages = self.wal_pages
        return pages and _WAL_HEAD_BYTES + pages * (_FRAME_HEAD_BYTES + self._page_bytes)

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Run a statement of the replica itself."""
        guard = self._guard
        was_on, guard.is_on = guard.is_on, False
        try:
            return self._connection.execute(self._private + sql, parameters)
        finally:
            guard.is_on = was_on

    def _execute_logged(self, sql: str) -> None:
        """Run a schema change that the log holds, under the rules of clients: the log may have been forged.

        Raises:
            CorruptLogError: No leader of this kind has logged it.
            apsw.Error: It failed.

        """
        guard = self._guard
        statements_seen = 0

        def _on_statement(_cursor: Any, _sql: str, _bindings: Any) -> bool:
            nonlocal statements_seen
            statements_seen += 1
            # The guard has heard what it does by now, and not one step of it was run.
            return statements_seen == 1 and bool(guard.schema_action)

        cursor = self._connection.cursor()
        cursor.exec_trace = _on_statement
        guard.begin()
        guard.is_on = True
        try:
            cursor.execute(sql, can_cache=False).fetchall()
            if not statements_seen:
                raise CorruptLogError("the log has an empty statement")
        except (apsw.AuthError, apsw.ExecTraceAbort) as error:
            reason = guard.refusal or "it is not one change of the schema"
            raise CorruptLogError(f"the log has a statement that no leader logs, {sql[:200]!r}: {reason}") from error
        finally:
            guard.is_on = False
            cursor.close(force=True)

    def follow(self, description: MachineDescription) -> None:
        """Make and fold records as described, from here on.

        Raises:
            MachineVersionError: They cannot be folded here.

        """
        self._folding.follow(description)
        self._runner.follow(description)

    # ---- a client's transaction, on a leader

    @property
    def is_spent(self) -> bool:
        """True if transactions have taken a pause's time since the last commit."""
        return self._spent_s >= ENTRY_S

    def run(
        self, statements: Sequence[SqlStatement] | SqlCommit, number: int, rights: TableRights | None = None
    ) -> tuple[list[MadeRecord], list[SqlResult]]:
        """Run statements, and leave what they did in place until their records are folded, or dropped.

        Args:
            statements: All or none; of an interactive transaction they must have the outcomes that they had.
            number: Of a table that they make; greater than any before.
            rights: Tables that their client has; None = all.

        Returns:
            The records to log, and a result for each statement; none for an interactive transaction.

        Raises:
            SqlFaultError: A statement failed: nothing was done.
            apsw.Error: The file failed: this replica must stop, and does so at the next commit.

        """
        self._begin(is_leading=True)
        size_max = self._settings.file_mib_max * _MIB
        used_before = self._used_bytes() if size_max else 0
        self._connection.execute(self._savepoint)  # The guard is not on.
        results: list[SqlResult] = []
        began_s, time_s = self._clock_s(), self._settings.command_ms_max / 1000
        self._guard.rights = rights
        try:
            if isinstance(statements, SqlCommit):
                made = self._runner.replay(statements, number, time_s)
            else:
                made = self._runner.run(statements, number, time_s, results)
            if size_max and used_before < self._used_bytes():
                self._check_size(size_max)
        except Exception as error:
            fault = fault_of(error, self._guard.refusal, len(results))
            self._undo()
            if is_statements_own(error):
                raise SqlFaultError(fault) from error
            raise
        finally:
            self._guard.rights = None
            self._spent_s += self._clock_s() - began_s
        self._pending, self._folded_count = made, 0
        if not made:
            self._connection.execute(self._release)
        return made, results

    def _used_bytes(self) -> int:
        pages, free, size = (
            self.execute(f"PRAGMA {name}").fetchall()[0][0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def _check_size(self, size_max: int) -> None:
        if self._used_bytes() > size_max:
            raise SqlRefusal("limit", f"the tables have more than {size_max // _MIB} MiB: delete rows first")

    def _undo(self) -> None:
        """Go back to before the command."""
        try:
            if self._connection.in_transaction:
                self.execute("ROLLBACK TO command")
                self.execute("RELEASE command")
                self._load()
            else:
                self._write_again()
        except Exception as error:
            self._broken = error
            raise

    def _write_again(self) -> None:
        """Bring back what the entry holds already: SQLite has rolled it back with a statement that failed."""
        self._load()
        self._is_leading = None
        folded, self._folded = self._folded, []
        if folded:
            self._begin(is_leading=False)
        for record_type, fields in folded:
            self._folding.write(record_type, fields)
        self._folded = folded

    def _drop_pending(self) -> None:
        """Undo a decision whose records were not folded."""
        if self._pending:
            self._pending, self._folded_count = [], 0
            self._undo()

    def _load(self) -> None:
        self.catalog.load()
        self._sequences.load()

    # ---- what is folded

    def fold(self, record_type: int, fields: tuple[Any, ...], revision: int = 0) -> RowChange | None:
        """Fold a record: of the decision that was made last, whose rows are there, or of the log.

        Args:
            record_type: Its type.
            fields: Its fields.
            revision: Its revision; 0 = it is made of a row of a snapshot.

        Raises:
            CorruptLogError: It is none that can be written here.
            NoRoomError: The disk is full.
            apsw.Error: The file failed.

        """
        pending = self._pending
        if pending and pending[self._folded_count].fields is fields:
            change = self._fold_pending(record_type, fields)
        else:
            change = self._fold(record_type, fields)
        if change is not None and change.table == CATALOG:
            self.history.note(revision, change)
        return change

    def _fold_pending(self, record_type: int, fields: tuple[Any, ...]) -> RowChange | None:
        """Take note that a record of the last decision belongs to its entry."""
        made = self._pending[self._folded_count]
        assert made.type == record_type
        self._folded_count += 1
        if self._folded_count == len(self._pending):
            self._connection.execute(self._release)
            self._pending = []
        self._folded.append((record_type, fields))
        return made.change

    def _fold(self, record_type: int, fields: tuple[Any, ...]) -> RowChange | None:
        self._begin(is_leading=False)
        try:
            change = self._folding.write(record_type, fields)
        except (apsw.FullError, apsw.IOError) as error:
            raise self._no_room(error) from error
        except (CorruptLogError, apsw.NoMemError, apsw.CorruptError):
            raise
        except (apsw.Error, TypeError, ValueError, msgspec.MsgspecError) as error:
            raise CorruptLogError(f"a record of type {record_type} cannot be written: {error}") from error
        self._folded.append((record_type, fields))
        return change

    def _begin(self, *, is_leading: bool) -> None:
        """Be in a transaction, with triggers, foreign keys and checks as it takes."""
        if self._broken is not None:
            raise self._broken
        self._drop_pending()
        connection = self._connection
        if not connection.in_transaction:
            self.execute("BEGIN IMMEDIATE")
        if self._is_leading is not is_leading:
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, int(is_leading))
            connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, int(is_leading))
            self.execute(f"PRAGMA ignore_check_constraints = {'OFF' if is_leading else 'ON'}")
            self._is_leading = is_leading

    def commit(self, mark: StateMark, changes: Iterable[KernelChange]) -> None:
        """Keep what was folded, rows of the kernel and the mark, in one step.

        Raises:
            NoRoomError: The disk is full: the file stands at the commit before.
            apsw.Error: The file failed: it stands at the commit before.

        """
        try:
            self._commit(mark, changes)
        except apsw.Error as error:
            raise self._no_room(error) from error

    def _commit(self, mark: StateMark, changes: Iterable[KernelChange]) -> None:
        if self._broken is not None:
            raise self._broken
        self._drop_pending()
        if not self._connection.in_transaction:
            self.execute("BEGIN IMMEDIATE")
        for table, key, row in changes:
            if row is None:
                self.execute(_REMOVE_ROW, (table, key))
            else:
                self.execute(_PUT_ROW, (table, key, row.row, row.revision))
        self.history.commit(mark.revision)
        self.execute(_PUT_MARK, (mark.revision, _ENCODE(mark)))
        self.execute("COMMIT")
        self.revision = mark.revision
        self._folded, self._spent_s = [], 0.0

    def rollback(self) -> StateMark | None:
        """Go back to the last commit; return its mark, None if there is none."""
        if self._connection.in_transaction:
            self.execute("ROLLBACK")
        self._pending, self._folded, self._broken, self._is_leading = [], [], None, None
        self._spent_s = 0.0
        self._load()
        found = self.execute(f"SELECT mark FROM {MARK_TABLE}").fetchall()
        mark = _DECODE_MARK(found[0][0]) if found else None
        self.revision = 0 if mark is None else mark.revision
        self.history.load(self.revision)
        return mark

    def kernel_rows(self) -> Iterator[Row]:
        """Iterate over the rows of the kernel."""
        rows = self.execute(f"SELECT name, key, row, revision FROM {KERNEL_TABLE} ORDER BY name, key").fetchall()
        return (Row(*row) for row in rows)

    # ---- another state

    def forget_folded(self) -> None:
        """Forget what was folded: a restore has no commands that might fail among it."""
        self._folded = []

    def insert(self, number: int, key: bytes, image: bytes) -> None:
        """Write a row of another state, which its table does not have yet.

        Raises:
            LookupError: There is no such table.
            apsw.Error: SQLite does not take it.

        """
        shape = self.catalog.shape_of(number)
        self.execute(shape.insert, (*decode_values(key), *shape.filled(decode_values(image))))

    def hold_sequences(self) -> None:
        """Have the ids that AUTOINCREMENT gives begin where the log says, whatever rows were written."""
        for number in self.catalog.tables:
            shape = self.catalog.shape_of(number)
            if shape.is_counted:
                self._sequences.hold(shape)

    def keep_part(self) -> None:
        """Keep what of another state is there so far: a file without a mark, of which no boot takes anything."""
        self.execute("COMMIT")
        self.execute("BEGIN IMMEDIATE")

    def clear(self) -> None:
        """Remove all, the mark too; like everything else it is kept with the next commit, or `keep_part`."""
        self.rollback()
        self._begin(is_leading=False)
        for kind in ("view", "trigger", "table"):
            for name, row in list(self.catalog.objects.items()):
                if row.kind == kind:
                    self.execute(f"DROP {kind} IF EXISTS {quoted(name)}")
        for table in (MARK_TABLE, KERNEL_TABLE, CATALOG_TABLE):
            self.execute(f"DELETE FROM {table}")
        self._load()
        self.history.begin_anew()

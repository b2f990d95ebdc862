"""The state machine of replicated SQL tables; see docs/decisions/0024-a-machine-may-keep-its-own-state.md.

    machine = SqlMachine(Path("/var/lib/shop-a/tables.db"))

A command is a `SqlTransaction`, or the `SqlCommit` of an interactive one; of a client who has some tables it is within
its rights (`rsm_spark.sql.table_rights`). A query is answered with nothing: it is the
moment that counts. What a client reads it reads on a connection of its own, once its query was
answered (`rsm_spark.sql.service`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from rsm_spark.core.durable import KernelChange, StateMark
from rsm_spark.core.machine import Decision, DeclinedDecision, MachineDescription, Row, RowChange
from rsm_spark.core.records import REPLY_BYTES_MAX
from rsm_spark.errors import CorruptLogError, InvalidCommandError, NotReadyError
from rsm_spark.sql.engine.copying import committed_rows, restore_rows
from rsm_spark.sql.engine.faults import SqlFaultError
from rsm_spark.sql.engine.held_transaction import HeldTransaction
from rsm_spark.sql.engine.lake_rows import SqlRowTables
from rsm_spark.sql.engine.writer import SqlWriter
from rsm_spark.sql.limits import SqlSettings
from rsm_spark.sql.messages import (
    SqlCommit,
    SqlFault,
    SqlReply,
    SqlResult,
    decode_commit,
    decode_transaction,
    encode,
    encode_results,
    is_of_transaction,
)
from rsm_spark.sql.records import DESCRIPTION, CatalogRow
from rsm_spark.sql.table_rights import opened


class SqlMachine:
    """See the module.

    Args:
        path: Of SQLite's file; its folder is there.
        settings: Limits.
        clock_s: Monotonic seconds, for the time limit of a transaction.

    Attributes:
        path: The same.
        settings: The same.

    Raises:
        SnapshotError: The file is none of SQLite, or cannot be opened.

    """

    description: ClassVar[MachineDescription] = DESCRIPTION
    is_evolving: ClassVar[bool] = True

    def __init__(
        self, path: Path, settings: SqlSettings | None = None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = path
        self.settings = settings or SqlSettings()
        self._clock_s = clock_s
        self._writer = SqlWriter(path, self.settings, clock_s)

    @property
    def revision(self) -> int:
        """Revision of the last commit: what a connection that reads sees at least."""
        return self._writer.revision

    @property
    def is_spent(self) -> bool:
        """True if the transactions of this entry have taken their time; see `PacedMachine`."""
        return self._writer.is_spent

    @property
    def wal_pages(self) -> int:
        """Pages of SQLite's WAL."""
        return self._writer.wal_pages or 0

    def catalog_at(self, revision: int) -> dict[str, CatalogRow] | None:
        """Return the tables, indexes, views and triggers as they were right after a confirmed revision.

        None = this file does not go back so far.
        """
        return self._writer.history.at(revision)

    def hold(self) -> HeldTransaction:
        """Begin an interactive transaction on the last commit.

        Raises:
            NotReadyError: There was none since this process began.

        """
        wal_end = self._writer.wal_end
        if wal_end is None:
            raise NotReadyError("no entry of the log was confirmed here since this replica began")
        return HeldTransaction(self.path, self.settings, self._clock_s, wal_end)

    def follow(self, description: MachineDescription) -> None:
        """Log and fold records as described, from here on; see `EvolvingMachine`.

        Raises:
            MachineVersionError: A newer version describes it, whose records cannot be folded here.

        """
        self._writer.follow(description)

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:  # noqa: ARG002 - as `StateMachine` has it
        """Run a transaction; its rows are in place already when its records are folded."""
        try:
            rights, payload = opened(command)
            wanted = decode_commit(payload) if is_of_transaction(payload) else decode_transaction(payload)
            statements = wanted if isinstance(wanted, SqlCommit) else wanted.statements
            made, results = self._writer.run(statements, revision, rights)
        except InvalidCommandError as error:
            return _failed(SqlFault("sql", str(error)))
        except SqlFaultError as error:
            return _failed(error.fault)
        reply = encode_results(results, wanted)
        if len(reply) > REPLY_BYTES_MAX:
            return _failed(_too_large(results, len(reply)))
        return Decision([(one.type, one.fields) for one in made], reply)

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        """Fold a record; see `SqlWriter.fold`."""
        try:
            return self._writer.fold(record_type, fields, revision)
        except CorruptLogError as error:
            raise CorruptLogError(f"revision {revision}: {error}") from error

    def query(self, query: bytes, revision: int) -> bytes:  # noqa: ARG002 - as `StateMachine` has it
        """Answer nothing; see the module."""
        return b""

    def rows(self) -> Iterator[Row]:
        """Iterate over the rows of the last commit."""
        return committed_rows(self.path, self.settings.cache_mib)

    def row_tables(self) -> SqlRowTables:
        """Return the tables of a state as the lake has them; see `TabledMachine`."""
        return SqlRowTables()

    def restore(self, rows: Iterable[Row]) -> None:
        """Replace the state; kept with the next commit."""
        restore_rows(self._writer, rows)

    def resume(self) -> StateMark | None:
        """Go back to the last commit."""
        return self._writer.rollback()

    def kernel_rows(self) -> Iterator[Row]:
        """Iterate over the kernel's rows."""
        return self._writer.kernel_rows()

    def commit(self, mark: StateMark, changes: Sequence[KernelChange]) -> None:
        """Keep what was folded."""
        self._writer.commit(mark, changes)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def _too_large(results: Sequence[SqlResult], size: int) -> SqlFault:
    """Return the fault of a transaction whose reply has no room for what it returns: it is undone."""
    if not any(one.rows for one in results):
        return SqlFault(
            "limit",
            f"what {len(results)} statements did, their numbers of rows and row ids, takes {size} bytes of a reply, "
            f"which has at most {REPLY_BYTES_MAX}: ask for no row ids, or do them in several transactions",
            len(results) - 1,
        )
    sizes = [len(encode(one.rows)) if one.rows else 0 for one in results]
    most = max(range(len(results)), key=lambda place: sizes[place])
    rows = len(results[most].rows)
    of = f"{rows} rows of {sizes[most]} bytes" if len(results) == 1 else (
        f"{sum(sizes)} bytes of rows, most of them by its statement {most + 1}: {rows} rows of {sizes[most]} bytes"
    )  # fmt: skip
    return SqlFault(
        "limit",
        f"the transaction returns {of}, a reply has at most {REPLY_BYTES_MAX} bytes: nothing was written. Write fewer "
        f"rows at once (here about {max(1, rows * REPLY_BYTES_MAX // (2 * size))}), return fewer columns, or write "
        "without RETURNING and read the rows by a query",
        most,
    )


def _failed(fault: SqlFault) -> Decision:
    return DeclinedDecision((), encode(SqlReply((), fault)))

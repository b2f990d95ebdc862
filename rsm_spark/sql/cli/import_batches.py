"""Rows of a file into a table, in transactions of some thousand, each row once however often it is begun.

How far an import is stands in the tables themselves, in `rsm_imports`, and is written by the transaction that inserts
the rows. So one that was killed goes on behind the last rows that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, NoReturn

from ledger.errors import UsageError
from rsm_spark.sql.cli.column_values import quoted_word
from rsm_spark.sql.cli.file_rows import FileRows
from rsm_spark.sql.client.client import SqlClient
from rsm_spark.sql.client.statements import Statement
from rsm_spark.sql.errors import SqlError
from rsm_spark.sql.messages import SqlValue

BATCH_ROWS_MAX: Final = 10_000
"""Rows of one transaction."""
_BATCH_BYTES: Final = 1024 * 1024
_STATEMENT_ROWS: Final = 100
_STATEMENT_VALUES: Final = 2_000
_STATEMENTS: Final = 500
"""Of one transaction: leaders that do not know of brief replies answer so many."""
_PROGRESS_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS rsm_imports (name TEXT NOT NULL, target TEXT NOT NULL, content TEXT NOT NULL, "
    "rows_done INTEGER NOT NULL, rows_all INTEGER NOT NULL, PRIMARY KEY (name, target))"
)
_ADVANCE: Final = "UPDATE rsm_imports SET rows_done = ? WHERE name = ? AND target = ? AND rows_done = ?"

Row = tuple[SqlValue, ...]


class ImportPlan(NamedTuple):
    """Rows and where they go.

    Attributes:
        table: Target.
        columns: Of it, for each column of the file.
        types: Their declared types.
        name: Of the import: the same name goes on where it was.
        content: SHA-256 of the file.
        skip_rows: Rows of the file that are left out at its beginning.

    """

    table: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    name: str
    content: str
    skip_rows: int


class ImportOutcome(NamedTuple):
    """Outcome of an import.

    Attributes:
        rows: Inserted now.
        rows_before: Inserted by the same import when it was begun before.
        transactions: Of some rows each.

    """

    rows: int
    rows_before: int
    transactions: int


async def table_columns(client: SqlClient, table: str) -> list[tuple[str, str]]:
    """Return name and declared type of the columns of a table that are written; none = there is no such table."""
    found = await client.query("SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,))
    return [(str(name), str(kind)) for name, kind in found.rows]


def matched(file: FileRows, columns: Sequence[tuple[str, str]], table: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return names and types of the columns of a table that a file has.

    Raises:
        UsageError: The table lacks one.

    """
    known = {name.lower(): (name, kind) for name, kind in columns}
    missing = [name for name in file.columns if name.lower() not in known]
    if missing:
        raise UsageError(
            f"the table {table} has no column {', '.join(missing)}: it has {', '.join(name for name, _ in columns)}"
        )
    found = [known[name.lower()] for name in file.columns]
    return tuple(name for name, _ in found), tuple(kind for _, kind in found)


class ImportRunner:
    """One import; see the module.

    Args:
        client: Connected.
        plan: What goes where.
        rows_all: Rows of the file.
        batch_rows: Rows of one transaction at most.
        progress: Told how many rows are in the table.
        check: Raises if the file has changed since it was looked at.

    """

    def __init__(
        self,
        client: SqlClient,
        plan: ImportPlan,
        rows_all: int,
        batch_rows: int,
        progress: Callable[[int], None],
        check: Callable[[], None],
    ) -> None:
        self._client = client
        self._plan = plan
        self._rows_all = rows_all
        self._statement_rows = max(1, min(_STATEMENT_ROWS, _STATEMENT_VALUES // len(plan.columns)))
        self._batch_rows = min(batch_rows, _STATEMENTS * self._statement_rows)
        self._progress = progress
        self._check = check
        self._transactions = 0
        names = ", ".join(map(quoted_word, plan.columns))
        self._head = f"INSERT INTO {quoted_word(plan.table)} ({names}) VALUES "
        self._one = f"({', '.join('?' * len(plan.columns))})"

    async def begin(self) -> int:
        """Have it noted; return how many rows of the file are done."""
        plan = self._plan
        await self._client.transaction([
            _PROGRESS_TABLE,
            (
                "INSERT INTO rsm_imports VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (plan.name, plan.table, plan.content, plan.skip_rows, self._rows_all),
            ),
        ])  # fmt: skip
        found = await self._client.query(
            "SELECT content, rows_done FROM rsm_imports WHERE name = ? AND target = ?", (plan.name, plan.table)
        )
        ((content, done),) = found.rows
        if content != plan.content:
            raise UsageError(
                f"the import {plan.name} into {plan.table} was of another file: give this one another --name. "
                f"{done!s} rows of that are done"
            )
        assert isinstance(done, int)
        return done

    async def run(self, rows: Iterator[Row], done: int) -> ImportOutcome:
        """Insert the rows behind those that are done.

        Args:
            rows: Of the file, all.
            done: How many to pass over.

        Raises:
            UsageError: A row breaks a rule of the table: those before it are done; says which one.
            SqlError: Another process runs the same import.

        """
        before = done
        left = islice(rows, done, None)
        waiting: list[Row] = []
        while True:
            waiting += islice(left, max(0, self._batch_rows - len(waiting)))
            if not waiting:
                return ImportOutcome(done - before, before - self._plan.skip_rows, self._transactions)
            self._check()
            batch = self._fitting(waiting)
            try:
                await self._insert(batch, done, self._statement_rows)
            except SqlError as error:
                if error.kind == "limit" and len(batch) > 1:
                    self._batch_rows = max(1, len(batch) // 2)  # Nothing was done; so large it cannot be.
                    continue
                await self._explain(error, batch, done)
            self._transactions += 1
            done += len(batch)
            del waiting[: len(batch)]
            self._progress(done)

    def _fitting(self, waiting: Sequence[Row]) -> Sequence[Row]:
        room = _BATCH_BYTES
        for place, row in enumerate(waiting[: self._batch_rows]):
            room -= sum(len(value) if isinstance(value, str | bytes) else 9 for value in row)
            if room < 0:
                return waiting[: max(1, place)]
        return waiting[: self._batch_rows]

    async def _insert(self, batch: Sequence[Row], done: int, statement_rows: int) -> None:
        plan = self._plan
        statements: list[Statement] = [(_ADVANCE, (done + len(batch), plan.name, plan.table, done), 1)]
        for at in range(0, len(batch), statement_rows):
            rows = batch[at : at + statement_rows]
            values = [value for row in rows for value in row]
            statements.append((self._head + ", ".join([self._one] * len(rows)), values))
        await self._client.transaction(statements)

    async def _explain(self, error: SqlError, batch: Sequence[Row], done: int) -> NoReturn:
        """Insert the rows before the one at which a transaction fails.

        Raises:
            UsageError: Of that row.
            SqlError: Another process runs the same import; or it fails no more.

        """
        if error.kind == "expected":
            raise SqlError(
                f"another process has written rows of the import {self._plan.name} meanwhile: begin again when it "
                "has ended", kind="expected"
            ) from None  # fmt: skip
        step = self._statement_rows
        group = max(0, error.statement - 1) * step
        if group:
            await self._insert(batch[:group], done, step)
        done += group
        few = batch[group : group + step]
        try:
            await self._insert(few, done, 1)
        except SqlError as again:
            before = max(0, again.statement - 1)
            if before:
                await self._insert(few[:before], done, 1)
            raise UsageError(self._words(done + before, again)) from None
        raise error

    def _words(self, done: int, error: SqlError) -> str:
        return (
            f"row {done + 1} of the file: {error}. {done} rows of it are done: mend the others, and import them with "
            f"--skip-rows {done} under another --name"
        )

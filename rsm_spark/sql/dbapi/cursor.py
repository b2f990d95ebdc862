"""Cursors of the DB-API: those of programs with an event loop, for programs that block."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from ledger.blocking_base import BlockingCalls
from rsm_spark.sql.dbapi.async_cursor import AsyncDatabaseCursor, Description
from rsm_spark.sql.dbapi.values import Parameters

if TYPE_CHECKING:
    # Two halves of one thing: a connection makes its cursors, and runs their statements.
    from rsm_spark.sql.dbapi.connection import DatabaseConnection


class DatabaseCursor(BlockingCalls[AsyncDatabaseCursor]):
    """A cursor; made by `DatabaseConnection.cursor`. See `AsyncDatabaseCursor` for what its calls do.

    Args:
        connection: Whose it is.

    Attributes:
        connection: The same.

    """

    def __init__(self, connection: DatabaseConnection) -> None:
        super().__init__(connection.thread, connection.asynchronous.cursor())
        self.connection = connection

    @property
    def arraysize(self) -> int:
        """Rows that `fetchmany` returns if it is not told."""
        return self.asynchronous.arraysize

    @arraysize.setter
    def arraysize(self, value: int) -> None:
        self.asynchronous.arraysize = value

    @property
    def description(self) -> tuple[Description, ...] | None:
        """Of the columns of the last statement; None = it returned none."""
        return self.asynchronous.description

    @property
    def rowcount(self) -> int:
        """Rows that the last statement changed or returned.

        -1 = there was none, or its rows are read in slices and there are more.
        """
        return self.asynchronous.rowcount

    @property
    def lastrowid(self) -> int | None:
        """Of the row that was inserted last; None = none was."""
        return self.asynchronous.lastrowid

    def execute(self, operation: str, parameters: Parameters = ()) -> Self:
        """Run one statement.

        Args:
            operation: SQL.
            parameters: Values of ``?`` in order, or of ``:name`` by name.

        Raises:
            Error: It failed; see `rsm_spark.sql.dbapi.errors`.

        """
        self._check_open()
        self.thread.run(self.asynchronous.execute(operation, parameters))
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Self:
        """Run one statement, which returns no rows, for each of many parameters.

        Raises:
            Error: One failed.

        """
        self._check_open()
        # What gives the parameters may block, and is not for the thread of the loop.
        self.thread.run(self.asynchronous.executemany(operation, list(seq_of_parameters)))
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None.

        Raises:
            ProgrammingError: No statement has returned rows.

        """
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows, at most `size`; None = `arraysize`.

        Raises:
            ProgrammingError: No statement has returned rows.

        """
        inner = self.asynchronous
        wanted = inner.arraysize if size is None else size
        fetched = inner.take(wanted)
        if len(fetched) < wanted and inner.has_rows_left:
            fetched += self.thread.run(inner.fetchmany(wanted - len(fetched)))
        return fetched

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left.

        Raises:
            ProgrammingError: No statement has returned rows.

        """
        return self.fetchmany(sys.maxsize)

    def fetch_arrow_table(self) -> Any:
        """Return the rows that are left as a table of Arrow, with the types that `arrow_table` says; needs pyarrow.

        Raises:
            ProgrammingError: No statement has returned rows.
            DataError: A column has values of several types.

        """
        return self.thread.run(self.asynchronous.fetch_arrow_table())

    def fetch_df(self) -> Any:
        """Return the rows that are left as a data frame of pandas; see `fetch_arrow_table`."""
        return self.thread.run(self.asynchronous.fetch_df())

    def fetch_polars(self) -> Any:
        """Return the rows that are left as a data frame of polars; see `fetch_arrow_table`."""
        return self.thread.run(self.asynchronous.fetch_polars())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Return itself."""
        return self

    def __next__(self) -> tuple[Any, ...]:
        """Return the next row."""
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def _check_open(self) -> None:
        """Raise InterfaceError on a thread that is there in any case: that of a closed connection is not."""
        self.asynchronous.check_open()

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing; of the DB-API."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing; of the DB-API."""

    def close(self) -> None:
        """Close it."""
        if self.asynchronous.has_rows_left and not self.connection.asynchronous.is_closed:
            self.thread.run(self.asynchronous.drop())
        self.asynchronous.end()

    def __enter__(self) -> Self:
        """Return the cursor."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

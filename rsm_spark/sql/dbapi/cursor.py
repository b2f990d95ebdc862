"""Cursors of the DB-API: a statement, and the rows that it returned."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

from rsm_spark.sql.client.blocking import BlockingSqlRowStream
from rsm_spark.sql.dbapi.errors import InterfaceError, ProgrammingError, translated
from rsm_spark.sql.dbapi.frames import arrow_table, polars_frame
from rsm_spark.sql.dbapi.values import Parameters, sent
from rsm_spark.sql.messages import SqlResult

if TYPE_CHECKING:
    # Two halves of one thing: a connection makes its cursors, and runs their statements.
    from rsm_spark.sql.dbapi.connection import DatabaseConnection

Description = tuple[str, str, None, None, None, None, None]
"""Name and declared type of a column; the rest is not known."""


class DatabaseCursor:
    """A cursor; made by `DatabaseConnection.cursor`.

    Args:
        connection: Whose it is.

    Attributes:
        connection: The same.
        arraysize: Rows that `fetchmany` returns if it is not told.
        description: Of the columns of the last statement; None = it returned none.
        rowcount: Rows that the last statement changed or returned; -1 = there was none, or its rows are read in slices
            and there are more.
        lastrowid: Of the row that was inserted last; None = none was.

    """

    def __init__(self, connection: DatabaseConnection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.description: tuple[Description, ...] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self._rows: Sequence[tuple[Any, ...]] | None = None  # That were received.
        self._next = 0
        self._left: BlockingSqlRowStream | None = None  # Has those behind them.
        self._is_closed = False

    def execute(self, operation: str, parameters: Parameters = ()) -> Self:
        """Run one statement.

        Args:
            operation: SQL.
            parameters: Values of ``?`` in order, or of ``:name`` by name.

        Raises:
            Error: It failed; see `rsm_spark.sql.dbapi.errors`.

        """
        self._begin()
        values = sent(parameters)
        self._left = self.connection.rows_of(operation, values)
        if self._left is None:
            (result,) = self.connection.run(operation, [values])
            self._take(result)
        else:
            self._describe(self._left.columns)
            self._rows = ()
            self._receive()
            self.rowcount = len(self._rows) if self._left is None else -1
        return self

    def _receive(self) -> bool:
        """Have the next rows sent; return whether there are any."""
        if self._left is None:
            return False
        with translated():
            self._rows, self._next = self._left.next_rows(), 0
        if self._left.is_last:
            self._left = None
        return bool(self._rows)

    def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Self:
        """Run one statement, which returns no rows, for each of many parameters.

        Raises:
            Error: One failed.

        """
        self._begin()
        results = self.connection.run(operation, [sent(parameters) for parameters in seq_of_parameters])
        if any(result.columns for result in results):
            raise ProgrammingError("executemany takes no statement that returns rows: use execute")
        if results:
            self._take(results[-1])
        self.rowcount = sum(result.row_count for result in results)
        return self

    def _begin(self) -> None:
        self._check_open()
        self._drop()
        self.description, self._rows, self._next, self.rowcount = None, None, 0, -1

    def _drop(self) -> None:
        """Read no more of the statement before."""
        left, self._left = self._left, None
        if left is not None:
            with translated():
                left.close()

    def _describe(self, columns: Sequence[tuple[str, str]]) -> None:
        self.description = tuple((name, kind, None, None, None, None, None) for name, kind in columns)

    def _take(self, result: SqlResult) -> None:
        if result.columns:
            self._describe(result.columns)
            self._rows = result.rows
            self.rowcount = len(result.rows)
        else:
            self.rowcount = result.row_count
        if result.last_rowid is not None:
            self.lastrowid = result.last_rowid

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
        self._check_fetchable()
        wanted = self.arraysize if size is None else size
        fetched: list[tuple[Any, ...]] = []
        while len(fetched) < wanted and (self._next < len(self._rows or ()) or self._receive()):
            rows = self._rows or ()
            first, self._next = self._next, min(len(rows), self._next + wanted - len(fetched))
            fetched += rows[first : self._next]
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
        rows = self.fetchall()
        return arrow_table([(one[0], one[1]) for one in self.description or ()], rows)

    def fetch_df(self) -> Any:
        """Return the rows that are left as a data frame of pandas; see `fetch_arrow_table`."""
        return self.fetch_arrow_table().to_pandas()

    def fetch_polars(self) -> Any:
        """Return the rows that are left as a data frame of polars; see `fetch_arrow_table`."""
        return polars_frame(self.fetch_arrow_table())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Return itself."""
        return self

    def __next__(self) -> tuple[Any, ...]:
        """Return the next row."""
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def _check_fetchable(self) -> None:
        self._check_open()
        if self._rows is None:
            raise ProgrammingError("there are no rows: no statement, or none that returns rows, was executed")

    def _check_open(self) -> None:
        if self._is_closed:
            raise InterfaceError("the cursor is closed")
        self.connection.check_open()

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing; of the DB-API."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing; of the DB-API."""

    def close(self) -> None:
        """Close it."""
        self._drop()
        self._is_closed = True
        self._rows = None

    def __enter__(self) -> Self:
        """Return the cursor."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

"""Cursors of the DB-API for programs with an event loop: a statement, and the rows that it returned.

Those of programs that block are made of these: see `rsm_spark.sql.dbapi.cursor`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from rsm_spark.sql.client.row_stream import SqlRowStream
from rsm_spark.sql.dbapi.errors import InterfaceError, ProgrammingError, translated
from rsm_spark.sql.dbapi.frames import arrow_table, polars_frame
from rsm_spark.sql.dbapi.values import Parameters, sent
from rsm_spark.sql.messages import SqlResult

if TYPE_CHECKING:
    # Two halves of one thing: a connection makes its cursors, and runs their statements.
    from rsm_spark.sql.dbapi.async_connection import AsyncDatabaseConnection

Description = tuple[str, str, None, None, None, None, None]
"""Name and declared type of a column; the rest is not known."""


class AsyncDatabaseCursor:
    """A cursor; made by `AsyncDatabaseConnection.cursor`.

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

    def __init__(self, connection: AsyncDatabaseConnection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.description: tuple[Description, ...] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self._rows: Sequence[tuple[Any, ...]] | None = None  # That were received.
        self._next = 0
        self._left: SqlRowStream | None = None  # Has those behind them.
        self._is_closed = False

    async def execute(self, operation: str, parameters: Parameters = ()) -> Self:
        """Run one statement.

        Args:
            operation: SQL.
            parameters: Values of ``?`` in order, or of ``:name`` by name.

        Raises:
            Error: It failed; see `rsm_spark.sql.dbapi.errors`.

        """
        await self._begin()
        values = sent(parameters)
        self._left = await self.connection.rows_of(operation, values)
        if self._left is None:
            (result,) = await self.connection.run(operation, [values])
            self._take(result)
        else:
            self._describe(self._left.columns)
            self._rows = ()
            await self._receive()
            self.rowcount = len(self._rows) if self._left is None else -1
        return self

    async def _receive(self) -> bool:
        """Have the next rows sent; return whether there are any."""
        if self._left is None:
            return False
        with translated():
            self._rows, self._next = await self._left.next_rows(), 0
        if self._left.is_last:
            self._left = None
        return bool(self._rows)

    async def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Self:
        """Run one statement, which returns no rows, for each of many parameters.

        Raises:
            Error: One failed.

        """
        await self._begin()
        results = await self.connection.run(operation, [sent(parameters) for parameters in seq_of_parameters])
        if any(result.columns for result in results):
            raise ProgrammingError("executemany takes no statement that returns rows: use execute")
        if results:
            self._take(results[-1])
        self.rowcount = sum(result.row_count for result in results)
        return self

    async def _begin(self) -> None:
        self.check_open()
        await self.drop()
        self.description, self._rows, self._next, self.rowcount = None, None, 0, -1

    async def drop(self) -> None:
        """Read no more of the statement before."""
        left, self._left = self._left, None
        if left is not None:
            with translated():
                await left.close()

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

    @property
    def has_rows_left(self) -> bool:
        """The replica may have more rows than `take` has."""
        return self._left is not None

    def take(self, size: int) -> list[tuple[Any, ...]]:
        """Return rows that were received already, at most `size`.

        Raises:
            ProgrammingError: No statement has returned rows.

        """
        self.check_open()
        if self._rows is None:
            raise ProgrammingError("there are no rows: no statement, or none that returns rows, was executed")
        first, self._next = self._next, min(len(self._rows), self._next + size)
        return list(self._rows[first : self._next])

    async def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None.

        Raises:
            ProgrammingError: No statement has returned rows.

        """
        rows = await self.fetchmany(1)
        return rows[0] if rows else None

    async def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows, at most `size`; None = `arraysize`.

        Raises:
            ProgrammingError: No statement has returned rows.

        """
        wanted = self.arraysize if size is None else size
        fetched = self.take(wanted)
        while len(fetched) < wanted and await self._receive():
            fetched += self.take(wanted - len(fetched))
        return fetched

    async def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left.

        Raises:
            ProgrammingError: No statement has returned rows.

        """
        return await self.fetchmany(sys.maxsize)

    async def fetch_arrow_table(self) -> Any:
        """Return the rows that are left as a table of Arrow, with the types that `arrow_table` says; needs pyarrow.

        Raises:
            ProgrammingError: No statement has returned rows.
            DataError: A column has values of several types.

        """
        rows = await self.fetchall()
        return arrow_table([(one[0], one[1]) for one in self.description or ()], rows)

    async def fetch_df(self) -> Any:
        """Return the rows that are left as a data frame of pandas; see `fetch_arrow_table`."""
        return (await self.fetch_arrow_table()).to_pandas()

    async def fetch_polars(self) -> Any:
        """Return the rows that are left as a data frame of polars; see `fetch_arrow_table`."""
        return polars_frame(await self.fetch_arrow_table())

    async def __aiter__(self) -> AsyncIterator[tuple[Any, ...]]:
        """Iterate over the rows that are left."""
        while (row := await self.fetchone()) is not None:
            yield row

    def check_open(self) -> None:
        """Raise InterfaceError if it, or its connection, is closed."""
        if self._is_closed:
            raise InterfaceError("the cursor is closed")
        self.connection.check_open()

    async def close(self) -> None:
        """Close it."""
        await self.drop()
        self.end()

    def end(self) -> None:
        """Take no more calls; nothing is left to be read."""
        self._is_closed = True
        self._rows = self._left = None

    async def __aenter__(self) -> Self:
        """Return the cursor."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

"""Connections of the DB-API for programs with an event loop: each has a client of its own, and at most one transaction.

Those of programs that block are made of these: see `rsm_spark.sql.dbapi.connection`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ledger.errors import UsageError
from rsm_spark.client.service_calls import TIMEOUT_S
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.sql.client.client import SqlClient
from rsm_spark.sql.client.row_stream import SqlRowStream
from rsm_spark.sql.client.statements import Statement
from rsm_spark.sql.client.transaction import InteractiveTransaction
from rsm_spark.sql.dbapi import errors
from rsm_spark.sql.dbapi.async_cursor import AsyncDatabaseCursor
from rsm_spark.sql.dbapi.values import Parameters
from rsm_spark.sql.messages import SqlParameters, SqlResult
from rsm_spark.sql.statement_words import TransactionWord, reads_only, transaction_word
from rsm_spark.transport.security import Security


async def connect_async(
    uri: str | None = None,
    *,
    log: str,
    autocommit: bool = False,
    timeout_s: float = TIMEOUT_S,
    security: Security | None = None,
    rsm_root: str = DEFAULT_RSM_ROOT,
) -> AsyncDatabaseConnection:
    """Connect to the SQL tables of a log; the arguments are those of `rsm_spark.sql.dbapi.connect`.

    Raises:
        Error: See `rsm_spark.sql.dbapi.errors`.

    """
    with errors.translated():
        client = await SqlClient.connect(log, uri, timeout_s=timeout_s, security=security, rsm_root=rsm_root)
    return AsyncDatabaseConnection(client, autocommit=autocommit)


class AsyncDatabaseConnection:
    """A connection; made by `connect_async`. For one task at a time.

    The first statement begins a transaction, which `commit` or `rollback` ends. A transaction that has ended by itself
    is to be rolled back: until then every statement fails.

    Args:
        client: Its own; closed with it.
        autocommit: See `rsm_spark.sql.dbapi.connect`.

    Attributes:
        is_closed: It takes no more calls.

    """

    def __init__(self, client: SqlClient, *, autocommit: bool = False) -> None:
        self._client = client
        self._autocommit = autocommit
        self._transaction: InteractiveTransaction | None = None
        self.is_closed = False

    @property
    def autocommit(self) -> bool:
        """Each statement is a transaction of its own. It can be set while no transaction is open."""
        return self._autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        if self._transaction is not None:
            raise errors.InterfaceError("autocommit: a transaction is open: commit it, or roll it back, first")
        self._autocommit = value

    @property
    def in_transaction(self) -> bool:
        """A transaction is open."""
        return self._transaction is not None

    def cursor(self) -> AsyncDatabaseCursor:
        """Return a new cursor; the cursors of a connection share its transaction."""
        self.check_open()
        return AsyncDatabaseCursor(self)

    async def execute(self, operation: str, parameters: Parameters = ()) -> AsyncDatabaseCursor:
        """Run one statement on a new cursor, and return that."""
        return await self.cursor().execute(operation, parameters)

    async def run(self, operation: str, many: Sequence[SqlParameters]) -> list[SqlResult]:
        """Run a statement for each of many parameters, in the transaction, which begins if there is none; for cursors.

        Raises:
            Error: One failed.

        """
        self.check_open()
        with errors.translated():
            word = transaction_word(operation)
            if word is not TransactionWord.NOTHING:
                return await self._end_or_begin(word)
            statements: list[Statement] = [(operation, parameters) for parameters in many]
            if not self._autocommit and self._transaction is None:
                self._transaction = await self._client.begin()
            if self._transaction is not None:
                return await self._transaction.execute_all(statements)
            # A cursor tells the last row id alone.
            return list((await self._client.transaction(statements, row_ids=False)).results)

    async def rows_of(self, operation: str, parameters: SqlParameters) -> SqlRowStream | None:
        """Return the rows of a statement, to be read in slices; None = it is to be `run`.

        Raises:
            Error: It failed.

        """
        self.check_open()
        is_alone = self._autocommit and self._transaction is None
        if not is_alone or transaction_word(operation) is not TransactionWord.NOTHING or not reads_only(operation):
            return None
        with errors.translated():
            return await self._client.rows(operation, parameters)

    async def _end_or_begin(self, word: TransactionWord) -> list[SqlResult]:
        if word is TransactionWord.COMMIT:
            await self.commit()
        elif word is TransactionWord.ROLLBACK:
            await self.rollback()
        elif self._transaction is not None:
            raise UsageError("BEGIN: a transaction is open already")
        else:
            self._transaction = await self._client.begin()
        return [SqlResult()]

    async def commit(self) -> None:
        """Commit the transaction, if one is open; whatever comes of it, it is over.

        Raises:
            RetryableTransactionError: Others were first: nothing was done.
            Error: It failed.

        """
        self.check_open()
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            with errors.translated():
                await transaction.commit()

    async def rollback(self) -> None:
        """Drop what the transaction did, if one is open."""
        self.check_open()
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            with errors.translated():
                await transaction.rollback()

    def check_open(self) -> None:
        """Raise InterfaceError if it is closed."""
        if self.is_closed:
            raise errors.InterfaceError("the connection is closed")

    async def close(self) -> None:
        """Roll back, and disconnect.

        Raises:
            InterfaceError: It is closed already.

        """
        try:
            await self.rollback()
        finally:
            if not self.is_closed:
                self.is_closed = True
                await self._client.close()

    async def __aenter__(self) -> Self:
        """Return the connection."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Commit, or roll back if the block has raised; the connection stays open."""
        if kind is None:
            await self.commit()
        else:
            await self.rollback()

"""Connections of the DB-API: each has a client of its own, and at most one open transaction."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import ClassVar, Self

from ledger.errors import UsageError
from rsm_spark.client.service_calls import TIMEOUT_S
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.sql.client.blocking import BlockingInteractiveTransaction, BlockingSqlClient, BlockingSqlRowStream
from rsm_spark.sql.client.statements import Statement
from rsm_spark.sql.dbapi import errors
from rsm_spark.sql.dbapi.cursor import DatabaseCursor
from rsm_spark.sql.dbapi.values import Parameters
from rsm_spark.sql.messages import SqlParameters, SqlResult
from rsm_spark.sql.statement_words import TransactionWord, reads_only, transaction_word
from rsm_spark.transport.security import Security


def connect(
    uri: str | None = None,
    *,
    log: str,
    autocommit: bool = False,
    timeout_s: float = TIMEOUT_S,
    security: Security | None = None,
    rsm_root: str = DEFAULT_RSM_ROOT,
) -> DatabaseConnection:
    """Connect to the SQL tables of a log.

    Args:
        uri: Where everything is found; default `RSM_METADATA_URI`, else the local ZooKeeper.
        log: Name of the log.
        autocommit: Each statement is a transaction of its own; else the first one begins a transaction.
        timeout_s: Time limit of each call.
        security: TLS and token; None = as the environment says.
        rsm_root: Root of the logs in ZooKeeper.

    Raises:
        Error: See `rsm_spark.sql.dbapi.errors`.

    """
    with errors.translated():
        client = BlockingSqlClient.connect(log, uri, timeout_s=timeout_s, security=security, rsm_root=rsm_root)
    return DatabaseConnection(client, autocommit=autocommit)


class DatabaseConnection:
    """A connection; made by `connect`. For one thread at a time.

    The first statement begins a transaction, which `commit` or `rollback` ends. A transaction that has ended by itself
    is to be rolled back: until then every statement fails.

    Args:
        client: Its own; closed with it.
        autocommit: See `connect`.

    """

    Warning: ClassVar = errors.Warning
    Error: ClassVar = errors.Error
    InterfaceError: ClassVar = errors.InterfaceError
    DatabaseError: ClassVar = errors.DatabaseError
    DataError: ClassVar = errors.DataError
    OperationalError: ClassVar = errors.OperationalError
    IntegrityError: ClassVar = errors.IntegrityError
    InternalError: ClassVar = errors.InternalError
    ProgrammingError: ClassVar = errors.ProgrammingError
    NotSupportedError: ClassVar = errors.NotSupportedError

    def __init__(self, client: BlockingSqlClient, *, autocommit: bool = False) -> None:
        self._client = client
        self._autocommit = autocommit
        self._transaction: BlockingInteractiveTransaction | None = None
        self._is_closed = False

    @property
    def autocommit(self) -> bool:
        """Each statement is a transaction of its own. To set it commits what is open."""
        return self._autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self.commit()
        self._autocommit = value

    @property
    def in_transaction(self) -> bool:
        """A transaction is open."""
        return self._transaction is not None

    def cursor(self) -> DatabaseCursor:
        """Return a new cursor; the cursors of a connection share its transaction."""
        self.check_open()
        return DatabaseCursor(self)

    def execute(self, operation: str, parameters: Parameters = ()) -> DatabaseCursor:
        """Run one statement on a new cursor, and return that."""
        return self.cursor().execute(operation, parameters)

    def run(self, operation: str, many: Sequence[SqlParameters]) -> list[SqlResult]:
        """Run a statement for each of many parameters, in the transaction, which begins if there is none; for cursors.

        Raises:
            Error: One failed.

        """
        self.check_open()
        with errors.translated():
            word = transaction_word(operation)
            if word is not TransactionWord.NOTHING:
                return self._end_or_begin(word)
            statements: list[Statement] = [(operation, parameters) for parameters in many]
            if not self._autocommit and self._transaction is None:
                self._transaction = self._client.begin()
            if self._transaction is not None:
                return self._transaction.execute_all(statements)
            return list(self._client.transaction(statements).results)

    def rows_of(self, operation: str, parameters: SqlParameters) -> BlockingSqlRowStream | None:
        """Return the rows of a statement, to be read in slices; None = it is to be `run`.

        Raises:
            Error: It failed.

        """
        self.check_open()
        is_alone = self._autocommit and self._transaction is None
        if not is_alone or transaction_word(operation) is not TransactionWord.NOTHING or not reads_only(operation):
            return None
        with errors.translated():
            return self._client.rows(operation, parameters)

    def _end_or_begin(self, word: TransactionWord) -> list[SqlResult]:
        if word is TransactionWord.COMMIT:
            self.commit()
        elif word is TransactionWord.ROLLBACK:
            self.rollback()
        elif self._transaction is not None:
            raise UsageError("BEGIN: a transaction is open already")
        else:
            self._transaction = self._client.begin()
        return [SqlResult()]

    def commit(self) -> None:
        """Commit the transaction, if one is open; whatever comes of it, it is over.

        Raises:
            RetryableTransactionError: Others were first: nothing was done.
            Error: It failed.

        """
        self.check_open()
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            with errors.translated():
                transaction.commit()

    def rollback(self) -> None:
        """Drop what the transaction did, if one is open."""
        self.check_open()
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            with errors.translated():
                transaction.rollback()

    def check_open(self) -> None:
        """Raise InterfaceError if it is closed."""
        if self._is_closed:
            raise errors.InterfaceError("the connection is closed")

    def close(self) -> None:
        """Roll back, and disconnect.

        Raises:
            InterfaceError: It is closed already.

        """
        try:
            self.rollback()
        finally:
            if not self._is_closed:
                self._is_closed = True
                self._client.close()

    def __enter__(self) -> Self:
        """Return the connection."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Commit, or roll back if the block has raised; the connection stays open."""
        if kind is None:
            self.commit()
        else:
            self.rollback()

"""Connections of the DB-API: those of programs with an event loop, for programs that block."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, Self

from ledger.blocking_base import BlockingCalls
from rsm_spark.client.service_calls import TIMEOUT_S
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.sql.client.blocking import BlockingSqlClient
from rsm_spark.sql.dbapi import errors
from rsm_spark.sql.dbapi.async_connection import AsyncDatabaseConnection
from rsm_spark.sql.dbapi.cursor import DatabaseCursor
from rsm_spark.sql.dbapi.values import Parameters
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


class DatabaseConnection(BlockingCalls[AsyncDatabaseConnection]):
    """A connection; made by `connect`. For one thread at a time. See `AsyncDatabaseConnection` for what its calls do.

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
        super().__init__(client.thread, AsyncDatabaseConnection(client.asynchronous, autocommit=autocommit))
        self._client = client

    @property
    def autocommit(self) -> bool:
        """Each statement is a transaction of its own. To set it commits what is open."""
        return self.asynchronous.autocommit

    @autocommit.setter
    def autocommit(self, value: bool) -> None:
        self.commit()
        self.asynchronous.autocommit = value

    @property
    def in_transaction(self) -> bool:
        """A transaction is open."""
        return self.asynchronous.in_transaction

    def cursor(self) -> DatabaseCursor:
        """Return a new cursor; the cursors of a connection share its transaction."""
        return DatabaseCursor(self)

    def execute(self, operation: str, parameters: Parameters = ()) -> DatabaseCursor:
        """Run one statement on a new cursor, and return that."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Commit the transaction, if one is open; whatever comes of it, it is over.

        Raises:
            RetryableTransactionError: Others were first: nothing was done.
            Error: It failed.

        """
        self.asynchronous.check_open()
        if self.asynchronous.in_transaction:
            self.thread.run(self.asynchronous.commit())

    def rollback(self) -> None:
        """Drop what the transaction did, if one is open."""
        self.asynchronous.check_open()
        if self.asynchronous.in_transaction:
            self.thread.run(self.asynchronous.rollback())

    def close(self) -> None:
        """Roll back, and disconnect.

        Raises:
            InterfaceError: It is closed already.

        """
        try:
            self.rollback()
        finally:
            if not self.asynchronous.is_closed:
                self.asynchronous.is_closed = True
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

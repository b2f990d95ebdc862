"""Replicated SQL tables: SQLite on each replica, changed rows in the log. See docs/sql.md.

The names of the DB-API 2.0 (PEP 249) are here too: `connect`, `Error`, `STRING` and so on; see `rsm_spark.sql.dbapi`.
"""

from rsm_spark.core.freshness import Freshness
from rsm_spark.sql.client.blocking import BlockingInteractiveTransaction, BlockingSqlClient, BlockingSqlRowStream
from rsm_spark.sql.client.blocking_retry import retry
from rsm_spark.sql.client.changes import SqlChangeStream
from rsm_spark.sql.client.client import SqlClient, SqlOutcome, SqlRows
from rsm_spark.sql.client.row_stream import SqlRowStream
from rsm_spark.sql.client.transaction import InteractiveTransaction
from rsm_spark.sql.dbapi import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    AsyncDatabaseConnection,
    AsyncDatabaseCursor,
    Binary,
    DatabaseConnection,
    DatabaseCursor,
    DatabaseError,
    DataError,
    Date,
    DateFromTicks,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    RetryableTransactionError,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    Warning,  # noqa: A004 - the DB-API's name
    apilevel,
    connect,
    connect_async,
    paramstyle,
    threadsafety,
)
from rsm_spark.sql.errors import SqlAbortedError, SqlConflictError, SqlError, SqlRetryableError
from rsm_spark.sql.feed.events import SqlChange
from rsm_spark.sql.messages import SqlResult, SqlStatement

__all__ = [
    "AsyncDatabaseConnection",
    "AsyncDatabaseCursor",
    "BINARY",
    "Binary",
    "BlockingInteractiveTransaction",
    "BlockingSqlClient",
    "BlockingSqlRowStream",
    "DATETIME",
    "DataError",
    "DatabaseConnection",
    "DatabaseCursor",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "Freshness",
    "IntegrityError",
    "InteractiveTransaction",
    "InterfaceError",
    "InternalError",
    "NUMBER",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "ROWID",
    "RetryableTransactionError",
    "STRING",
    "SqlAbortedError",
    "SqlChange",
    "SqlChangeStream",
    "SqlClient",
    "SqlConflictError",
    "SqlError",
    "SqlOutcome",
    "SqlResult",
    "SqlRetryableError",
    "SqlRowStream",
    "SqlRows",
    "SqlStatement",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "connect_async",
    "paramstyle",
    "retry",
    "threadsafety",
]

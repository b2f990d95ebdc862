"""DB-API 2.0 (PEP 249) on SQL tables; `rsm_spark.sql` has the same names. See docs/sql.md."""

from rsm_spark.sql.dbapi.async_connection import AsyncDatabaseConnection, connect_async
from rsm_spark.sql.dbapi.async_cursor import AsyncDatabaseCursor
from rsm_spark.sql.dbapi.connection import DatabaseConnection, connect
from rsm_spark.sql.dbapi.cursor import DatabaseCursor
from rsm_spark.sql.dbapi.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    RetryableTransactionError,
    Warning,  # noqa: A004 - the DB-API's name
)
from rsm_spark.sql.dbapi.values import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"
sqlite_version_info = (3, 46, 0)
"""Oldest version of SQLite that replicas have; programs that know SQLite ask for it."""

__all__ = [
    "AsyncDatabaseConnection",
    "AsyncDatabaseCursor",
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "DataError",
    "DatabaseConnection",
    "DatabaseCursor",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "RetryableTransactionError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "connect_async",
    "paramstyle",
    "sqlite_version_info",
    "threadsafety",
]

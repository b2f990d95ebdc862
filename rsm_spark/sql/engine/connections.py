"""Connections to the file of the tables: how each is set up, and what SQLite itself bounds."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from rsm_spark.errors import SnapshotError
from rsm_spark.sql import limits

_STATEMENT_CACHE = 256
_BUSY_MS = 10_000
_OVERLAY_CACHE_MIB = 2
_UNBOUNDED_BYTES = 512 * 1024 * 1024

_LIMITS = {
    apsw.SQLITE_LIMIT_SQL_LENGTH: limits.STATEMENT_BYTES_MAX,
    apsw.SQLITE_LIMIT_COLUMN: limits.COLUMNS_MAX,
    apsw.SQLITE_LIMIT_EXPR_DEPTH: limits.EXPRESSION_DEPTH_MAX,
    apsw.SQLITE_LIMIT_COMPOUND_SELECT: limits.COMPOUND_SELECTS_MAX,
    apsw.SQLITE_LIMIT_VDBE_OP: limits.OPCODES_MAX,
    apsw.SQLITE_LIMIT_FUNCTION_ARG: limits.ARGUMENTS_MAX,
    apsw.SQLITE_LIMIT_VARIABLE_NUMBER: limits.PARAMETERS_MAX,
    apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: limits.PATTERN_BYTES_MAX,
    apsw.SQLITE_LIMIT_TRIGGER_DEPTH: limits.TRIGGER_DEPTH_MAX,
    apsw.SQLITE_LIMIT_ATTACHED: 0,
    apsw.SQLITE_LIMIT_WORKER_THREADS: 0,
}


def open_writer(path: Path, cache_mib: int) -> apsw.Connection:
    """Open the one connection that writes; makes the file if there is none.

    Raises:
        SnapshotError: It is no file of SQLite, or cannot be opened.

    """
    try:
        connection = apsw.Connection(str(path), statementcachesize=_STATEMENT_CACHE)
        _set_up(connection, cache_mib)
        connection.execute("PRAGMA journal_mode = WAL")
        # The log is what is durable: a file whose last commits were lost with the power is brought forward by it.
        connection.execute("PRAGMA synchronous = NORMAL")
    except apsw.Error as error:
        raise SnapshotError(
            f"{path}: SQLite cannot open it: {error}. If it is damaged move it away, with its -wal and -shm: the "
            "replica then boots from a snapshot and the log"
        ) from error
    return connection


def open_reader(path: Path, cache_mib: int) -> apsw.Connection:
    """Open a connection that cannot write."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOMUTEX
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=_STATEMENT_CACHE)
    _set_up(connection, cache_mib)
    connection.execute("PRAGMA query_only = ON")
    bound_values(connection, limits.VALUE_BYTES_MAX)
    return connection


def open_overlay(path: Path, files: str) -> apsw.Connection:
    """Open a connection whose changes nobody else sees, on the file system with this name; see `OverlayFiles`."""
    connection = apsw.Connection(str(path), vfs=files, statementcachesize=_STATEMENT_CACHE)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    # First of all: the index of the WAL is then kept in memory, not beside the shared file.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.wal_autocheckpoint(0)
    _set_up(connection, _OVERLAY_CACHE_MIB)
    connection.execute("PRAGMA synchronous = OFF")
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, 1)
    return connection


def open_scratch() -> apsw.Connection:
    """Open a connection in memory, for tables of others' schemas that have no rows."""
    connection = apsw.Connection(":memory:")
    _set_up(connection, 1)
    return connection


def _set_up(connection: apsw.Connection, cache_mib: int) -> None:
    connection.set_busy_timeout(_BUSY_MS)
    for name, value in _LIMITS.items():
        connection.limit(name, value)
    for name, value in (
        (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
        (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        (apsw.SQLITE_DBCONFIG_DQS_DML, 0),
        (apsw.SQLITE_DBCONFIG_DQS_DDL, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0),
    ):
        connection.config(name, value)
    connection.execute(f"PRAGMA cache_size = {-1024 * cache_mib}")


def private_comment() -> str:
    """Return what the replica's own statements begin with, on one connection.

    apsw keeps prepared statements by their text. No client knows this one: else a client's could be one that was
    prepared for the replica itself, without the guard.
    """
    return f"/*{os.urandom(16).hex()}*/ "


def bound_values(connection: apsw.Connection, bytes_max: int | None) -> None:
    """Bound values and rows from here on; None = only far away: the kernel's own rows may be larger than a client's."""
    connection.limit(apsw.SQLITE_LIMIT_LENGTH, bytes_max or _UNBOUNDED_BYTES)

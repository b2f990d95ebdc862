"""The index in SQLite: no dependency beyond Python itself, pages in a cache of its own, slower look-ups.

Kept beside the default (LMDB) as the second implementation of the port: both pass the same conformance suite.
"""

from __future__ import annotations

import errno
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ledger.store.index import CorruptIndexError
from ledger.store.index_rows import KeyValueIndex, Table

__all__ = ["SqliteIndex"]

_FILE_NAME = "index.sqlite"
_CACHE_KIB = 4096
_NAMES = [table.name.lower() for table in Table]
_GET = [f"SELECT value FROM {name} WHERE key = ?" for name in _NAMES]  # noqa: S608  names of our own
_UP = [f"SELECT key, value FROM {name} WHERE key >= ? ORDER BY key" for name in _NAMES]  # noqa: S608
_DOWN = [f"SELECT key, value FROM {name} WHERE key < ? ORDER BY key DESC" for name in _NAMES]  # noqa: S608
_PUT = [f"INSERT OR REPLACE INTO {name} VALUES (?, ?)" for name in _NAMES]  # noqa: S608
_DELETE = [f"DELETE FROM {name} WHERE key = ?" for name in _NAMES]  # noqa: S608


class SqliteIndex(KeyValueIndex):
    """See `ledger.store.index.Index`.

    Args:
        path: A folder of its own.
        fsync: False keeps nothing over a power cut.

    Raises:
        CorruptIndexError: What is there is no such index.

    """

    def __init__(self, path: str, *, fsync: bool = True) -> None:
        super().__init__(_Maps(path, fsync=fsync), path)


class _Maps:
    """One connection a thread: a look in one never waits for a change in another (write-ahead log)."""

    def __init__(self, path: str, *, fsync: bool) -> None:
        Path(path).mkdir(parents=True, exist_ok=True)
        self._path = f"{path}/{_FILE_NAME}"
        self._is_fsync = fsync
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        with self.write() as txn:
            for name in _NAMES:
                txn.connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {name} (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID"
                )

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=60)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._is_fsync else 'OFF'}")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._local.connection = connection
            self._opened.append(connection)
        return connection

    @contextmanager
    def read(self) -> Iterator[_Transaction]:
        try:
            yield _Transaction(self._connection())
        except sqlite3.Error as error:
            raise _translated(error, self._path) from error

    @contextmanager
    def write(self) -> Iterator[_Transaction]:
        try:
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield _Transaction(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise _translated(error, self._path) from error

    def close(self) -> None:
        for connection in self._opened:
            connection.close()


class _Transaction:
    __slots__ = ("connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def get(self, table: Table, key: bytes) -> bytes | None:
        row = self.connection.execute(_GET[table], (key,)).fetchone()
        return None if row is None else row[0]

    def ascend(self, table: Table, first: bytes) -> Iterator[tuple[bytes, bytes]]:
        yield from self._scan(_UP[table], first)

    def descend(self, table: Table, below: bytes) -> Iterator[tuple[bytes, bytes]]:
        yield from self._scan(_DOWN[table], below)

    def _scan(self, statement: str, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        cursor = self.connection.execute(statement, (key,))
        try:
            yield from cursor
        finally:
            cursor.close()

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        self.connection.execute(_PUT[table], (key, value))

    def put_all(self, table: Table, rows: Sequence[tuple[bytes, bytes]]) -> None:
        self.connection.executemany(_PUT[table], rows)

    def delete(self, table: Table, key: bytes) -> None:
        self.connection.execute(_DELETE[table], (key,))


def _translated(error: sqlite3.Error, path: str) -> Exception:
    """Tell no room (try again), an error of the disk (stop) and damage (rebuild) apart."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return OSError(errno.ENOSPC, f"index {path}: no room: {error}")
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_BUSY):
        return OSError(errno.EIO, f"index {path}: {error}")
    return CorruptIndexError(f"index {path} cannot be used: {error}")

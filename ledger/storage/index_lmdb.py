"""The index in LMDB: memory-mapped B+ trees, one writer, readers without locks."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lmdb

from ledger.storage.index import CorruptIndexError
from ledger.storage.index_rows import IndexTable, KeyValueIndex

_libc = ctypes.CDLL(None)

_MAP_BYTES = 1 << 36
"""Room in the address space; the file grows only as rows come."""
_MAP_RESIDENT_BYTES = 32 << 20
"""A file beyond this size is unmapped page by page now and then …"""
_LOOKS_MAX = 2000
"""… after so many looks, or a change: what was read stays in the kernel's cache, not in this process."""
_MADV_DONTNEED = 4
_FORMAT = b".2"
"""Behind the name of each map. Maps of another format are not seen: the index is rebuilt from the segments."""


class LmdbIndex(KeyValueIndex):
    """See `ledger.storage.index.Index`.

    Args:
        path: A folder of its own.
        fsync: False keeps nothing over a power cut.
        map_bytes: Largest size of the file.
        is_read_only: Look at it while no process has it open; change nothing.

    Raises:
        CorruptIndexError: What is there is no such index.

    """

    def __init__(
        self, path: str, *, fsync: bool = True, map_bytes: int = _MAP_BYTES, is_read_only: bool = False
    ) -> None:
        super().__init__(_Maps(path, fsync=fsync, map_bytes=map_bytes, is_read_only=is_read_only), path)
        if not is_read_only:
            self.count_ledgers()


class _Maps:
    def __init__(self, path: str, *, fsync: bool, map_bytes: int, is_read_only: bool) -> None:
        self._path = path
        try:
            self._env = lmdb.open(
                path,
                map_size=map_bytes,
                max_dbs=8,
                sync=fsync,
                metasync=fsync,
                readahead=False,
                max_readers=16,
                readonly=is_read_only,
                lock=not is_read_only,
            )
            self._databases = [self._open(table) for table in IndexTable]
        except lmdb.Error as error:
            raise _translated(error, path) from error
        self._look_count = 0
        self._range = _mapped_range(f"{path}/data.mdb")

    def _open(self, table: IndexTable) -> Any:
        """Open a map; None where nothing may be made, and it was never written."""
        try:
            return self._env.open_db(table.name.lower().encode() + _FORMAT)
        except (lmdb.NotFoundError, lmdb.ReadonlyError):
            return None

    @contextmanager
    def read(self) -> Iterator[_Transaction]:
        try:
            with self._env.begin() as txn:
                yield _Transaction(txn, self._databases)
        except lmdb.Error as error:
            raise _translated(error, self._path) from error
        self._look_count += 1  # Readers race: an approximate count will do.
        if self._look_count > _LOOKS_MAX:
            self._release_pages()

    @contextmanager
    def write(self) -> Iterator[_Transaction]:
        try:
            with self._env.begin(write=True) as txn:
                yield _Transaction(txn, self._databases)
        except lmdb.Error as error:
            raise _translated(error, self._path) from error
        self._release_pages()

    def _release_pages(self) -> None:
        """Take the file's pages out of this process's memory; the next look finds them in the kernel's cache."""
        self._look_count = 0
        if self._range is not None and Path(self._path, "data.mdb").stat().st_size > _MAP_RESIDENT_BYTES:
            address, byte_count = self._range
            _libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(byte_count), _MADV_DONTNEED)

    def close(self) -> None:
        self._env.close()


class _Transaction:
    __slots__ = ("_databases", "_txn")

    def __init__(self, txn: Any, databases: list[Any]) -> None:
        self._txn = txn
        self._databases = databases

    def get(self, table: IndexTable, key: bytes) -> bytes | None:
        if self._databases[table] is None:
            return None
        value: bytes | None = self._txn.get(key, db=self._databases[table])
        return value

    def ascend(self, table: IndexTable, first: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self._databases[table] is None:
            return
        with self._txn.cursor(self._databases[table]) as cursor:
            here = cursor.set_range(first) if first else cursor.first()
            while here:
                yield cursor.item()
                here = cursor.next()

    def descend(self, table: IndexTable, below: bytes) -> Iterator[tuple[bytes, bytes]]:
        if self._databases[table] is None:
            return
        with self._txn.cursor(self._databases[table]) as cursor:
            here = cursor.prev() if cursor.set_range(below) else cursor.last()
            while here:
                yield cursor.item()
                here = cursor.prev()

    def put(self, table: IndexTable, key: bytes, value: bytes) -> None:
        self._txn.put(key, value, db=self._databases[table])

    def put_all(self, table: IndexTable, rows: Sequence[tuple[bytes, bytes]]) -> None:
        with self._txn.cursor(self._databases[table]) as cursor:
            cursor.putmulti(rows)

    def delete(self, table: IndexTable, key: bytes) -> None:
        self._txn.delete(key, db=self._databases[table])


def _mapped_range(path: str) -> tuple[int, int] | None:
    """Return address and bytes of the mapping of a file in this process, or None where it cannot be told."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return None
    real = str(Path(path).resolve())
    for line in maps.read_text().splitlines():
        place, _, _, _, _, *name = line.split(maxsplit=5)
        if name == [real]:
            start, end = (int(part, 16) for part in place.split("-"))
            return start, end - start
    return None


def _translated(error: lmdb.Error, path: str) -> Exception:
    """Tell no room (try again), an error of the disk (stop) and damage (rebuild) apart."""
    text = str(error)
    if isinstance(error, lmdb.MapFullError) or os.strerror(errno.ENOSPC) in text or os.strerror(errno.EDQUOT) in text:
        return OSError(errno.ENOSPC, f"index {path}: no room: {error}")
    if os.strerror(errno.EIO) in text:
        return OSError(errno.EIO, f"index {path}: {error}")
    return CorruptIndexError(f"index {path} cannot be used: {error}")

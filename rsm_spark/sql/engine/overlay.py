"""A file system for SQLite in which one connection changes a database and nobody else can tell.

    tables.db      read, as it is; never written
    tables.db-wal  read as far as it went at one commit; what the connection writes goes into a file of its own

Somebody else must hold that commit by a read transaction: until it ends SQLite neither writes pages after that commit
back into the file nor begins its WAL anew. What the connection writes is gone with it.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path
from typing import Any

import apsw

from rsm_spark.sql.limits import OWN_BYTES_MAX

_NUMBERS = itertools.count()
_SECTOR_BYTES = 4096


class _SharedFile(apsw.VFSFile):
    """The database, which is only read. Locks are those of the connection that holds the commit."""

    def __init__(self, name: Any) -> None:
        super().__init__("", name, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's
        raise apsw.ReadOnlyError(f"{len(data)} bytes at {offset}: what is shared is not written")

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        raise apsw.ReadOnlyError(f"to {newsize} bytes: what is shared is not written")

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Do nothing."""

    def xLock(self, level: int) -> None:  # noqa: N802
        """Do nothing."""

    def xUnlock(self, level: int) -> None:  # noqa: N802
        """Do nothing."""

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0

    def xFileControl(self, op: int, ptr: int) -> bool:  # noqa: ARG002, N802
        return False


class _OwnWal:
    """The WAL up to one commit, and behind it the connection's own pages.

    Args:
        path: Of the shared WAL.
        end: Bytes of it that count.
        folder: For the connection's own file, which has no name.

    """

    def __init__(self, path: Path, end: int, folder: Path) -> None:
        self._shared = os.open(path, os.O_RDONLY) if end else -1
        self._folder = folder
        self._own: Any = None
        self._begin = end  # Of what is its own.
        self._size = end

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        if self._own is not None and offset >= self._begin:
            return os.pread(self._own.fileno(), amount, offset - self._begin)
        amount = min(amount, self._begin - offset)
        return os.pread(self._shared, amount, offset) if amount > 0 and self._shared >= 0 else b""

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if offset < self._begin:
            raise apsw.ReadOnlyError(f"{len(data)} bytes at {offset}: what is shared is not written")
        if offset - self._begin + len(data) > OWN_BYTES_MAX:
            raise apsw.FullError(f"an open transaction changes more than {OWN_BYTES_MAX} bytes of pages")
        if self._own is None:
            self._own = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed by xClose
        os.pwrite(self._own.fileno(), data, offset - self._begin)
        self._size = max(self._size, offset + len(data))

    def xFileSize(self) -> int:  # noqa: N802
        return self._size

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._size = max(self._begin, min(self._size, size))

    def xSync(self, flags: int) -> None:  # noqa: N802
        """Do nothing."""

    def xLock(self, level: int) -> None:  # noqa: N802
        """Do nothing."""

    def xUnlock(self, level: int) -> None:  # noqa: N802
        """Do nothing."""

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return _SECTOR_BYTES

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return 0

    def xFileControl(self, op: int, ptr: int) -> bool:  # noqa: ARG002, N802
        return False

    def xClose(self) -> None:  # noqa: N802
        if self._shared >= 0:
            os.close(self._shared)
            self._shared = -1
        if self._own is not None:
            self._own.close()
            self._own = None


class OverlayFiles(apsw.VFS):
    """The files of one connection; see the module.

    Args:
        path: Of the database.
        wal_end: Bytes of its WAL up to the commit that is held; 0 = the database itself has all of it.

    Attributes:
        name: By which the connection is told to use it.

    """

    def __init__(self, path: Path, wal_end: int) -> None:
        self.name = f"rsm-overlay-{next(_NUMBERS)}"
        self._wal = Path(f"{path}-wal")
        self._wal_end = wal_end
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            flags[1] = flags[0]
            return _SharedFile(name)
        if flags[0] & apsw.SQLITE_OPEN_WAL:
            flags[1] = flags[0]
            return _OwnWal(self._wal, self._wal_end, self._wal.parent)
        if name:
            raise apsw.CantOpenError(f"{name}: an open transaction has no other file")
        return super().xOpen(name, flags)  # Of a sort, or of a statement that may be undone.

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        """Do nothing: what has a name is shared."""

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: ARG002, N802
        return pathname.endswith("-wal")

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name

"""A session that commands of one user keep in a file, so that the next one need not open its own.

    kept = KeptSession.of_user("orders", None)
    kept.take()               # (session, number), or None: open one
    kept.give_back(used)      # what the next command goes on with

A file is used by one process at a time; who finds all of a log's files in use opens a session as if there were none.

1. No number is used twice, whatever becomes of the file: each process begins above the clock's nanoseconds, and above
   what the file says was used. A copy, an older file, or a lost lock cannot make a command look like one of before.
2. The number up to which this process may go is in the file before its first command leaves. Whoever comes after one
   that was killed begins above it, and so says that its commands, should they still be on their way, were given up.
3. A session in which a command has no known end is not kept.
4. A file counts only if it is this user's, and nobody else's to read or write. Whatever is wrong with it, or with its
   folder, costs a session of the command's own, never the command.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from hashlib import blake2b
from pathlib import Path
from typing import Final, Self

import msgspec

from ledger.decoding import json_decoder
from ledger.private_files import FILE_MODE, make_private, state_folder
from rsm_spark.core.chain import DEFAULT_RSM_ROOT
from rsm_spark.transport.codec import SESSION_BYTES
from rsm_spark.transport.security import Security

FILES: Final = 8
"""Files of one log and caller: as many commands at once share sessions."""
RESERVED: Final = 1 << 20
"""Numbers that a process may use: a millisecond of the clock, far less than it lives."""
_NUMBER_MAX: Final = 1 << 62
_FILE_BYTES_MAX: Final = 1_000
_FORGOTTEN_S: Final = 86_400.0
"""A file that no command has used for so long is removed: its session has ended."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class _Kept(msgspec.Struct, frozen=True):
    """Content of a file, as JSON: a session that was opened, and a number that none of its commands has exceeded."""

    session: str
    number: int


class KeptSession:
    """See the module. For one connection.

    Args:
        folder: Of the files, made when it is missing; None = there is no place for any.
        name: What the session is for: the same for commands that may share it.

    """

    def __init__(self, folder: Path | None, name: str) -> None:
        self._folder = folder
        self._name = name
        self._file: int | None = None
        self._is_taken = False

    @classmethod
    def of_user(cls, log: str, metadata_uri: str | None, rsm_root: str = DEFAULT_RSM_ROOT) -> Self:
        """Return the one of this user, for a log and the credentials that the environment names."""
        security = Security.from_environment()
        parts = (metadata_uri or "", rsm_root, log, security.token_file or "", security.tls_cert or "")
        name = blake2b("\0".join(parts).encode(errors="surrogateescape"), digest_size=16).hexdigest()
        folder: Path | None = None
        with contextlib.suppress(RuntimeError):  # This user has no home.
            folder = state_folder() / "sessions"
        return cls(folder, name)

    def take(self) -> tuple[bytes, int] | None:
        """Return an open session, and the number that the first command is to exceed; None if there is none.

        Without one, the session that the command opens is what may be kept.
        """
        if self._is_taken:
            return None
        self._is_taken = True
        # A full disk, a home that cannot be written: the command needs none of it.
        with contextlib.suppress(OSError):
            self._file = None if self._folder is None else self._locked_file(self._folder)
        if self._file is None:
            return None
        with contextlib.suppress(OSError):
            found = _read(self._file)
            if found is not None:
                session, used = found
                number = max(used, time.time_ns())
                _write(self._file, session, number + RESERVED)
                return session, number
        return None

    def give_back(self, used: tuple[bytes, int] | None) -> None:
        """Leave a session to the next command: itself and its highest number; None = it is not to be used again."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            with contextlib.suppress(OSError):
                if used is None:
                    os.ftruncate(file, 0)
                else:
                    _write(file, *used)
        finally:
            os.close(file)

    def _locked_file(self, folder: Path) -> int | None:
        """Open and lock the first file that no other process uses."""
        if not _is_own_place(folder):
            return None
        make_private(folder)
        for place in range(FILES):
            path = folder / f"{self._name}-{place}"
            is_new = not path.exists()
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, FILE_MODE)
            try:
                if _is_own_file(os.fstat(file)) and _lock(file):
                    if is_new:
                        _remove_forgotten(folder)
                    return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)
        return None


def _remove_forgotten(folder: Path) -> None:
    """Remove files that nobody has written for long; a command that uses one goes on without it."""
    before_s = time.time() - _FORGOTTEN_S
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < before_s:
                path.unlink()


def _is_own_place(folder: Path) -> bool:
    """Return whether a folder, or where it would be made, is this user's: not of whom `sudo` was called by."""
    for place in (folder, *folder.parents):
        with contextlib.suppress(FileNotFoundError):
            found = place.stat()
            return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return False


def _is_own_file(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(file: int) -> tuple[bytes, int] | None:
    """Return what a file holds; None if that is no session."""
    try:
        kept = json_decoder(_Kept).decode(os.pread(file, _FILE_BYTES_MAX, 0))
        session = bytes.fromhex(kept.session)
    except (msgspec.MsgspecError, ValueError):
        return None
    if len(session) != SESSION_BYTES or not 0 <= kept.number < _NUMBER_MAX:
        return None
    return session, kept.number


def _write(file: int, session: bytes, number: int) -> None:
    text = msgspec.json.encode(_Kept(session.hex(), number))
    os.ftruncate(file, os.pwrite(file, text, 0))

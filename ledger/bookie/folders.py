"""The directories of a bookie: made, held for one process alone, and refused where they keep nothing."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ledger.errors import UsageError
from ledger.private_files import make_private

_LOCK_FILE = "LOCK"
_MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")


def absolute(path: str) -> str:
    """Return a path as it is written into the cookie."""
    return str(Path(path).absolute())


def prepare(folders: Sequence[str], *, is_fsync: bool) -> None:
    """Make directories where they are missing.

    Raises:
        UsageError: Two are one, or one lies in memory though the bookie is to keep what it acknowledges.
        OSError: One cannot be made.

    """
    seen: dict[str, str] = {}
    for folder in folders:
        make_private(folder)
        other = seen.setdefault(str(Path(folder).resolve()), folder)
        if other is not folder:
            raise UsageError(f"{folder} and {other} are one directory; name each once")
        if is_fsync:
            _refuse_memory(folder)


def lock_mark(folder: str) -> str:
    """Return what tells a directory from every copy of it, until the machine is booted again.

    It stands for the lock that `locked` holds: whoever registered with this mark held the same lock, and has ended.
    """
    state = (Path(folder) / _LOCK_FILE).stat()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return hashlib.sha256(f"{boot_id} {state.st_dev} {state.st_ino}".encode()).hexdigest()[:32]


@contextlib.contextmanager
def locked(folders: Sequence[str]) -> Iterator[None]:
    """Hold directories for this process alone; the kernel lets go when the process ends.

    Raises:
        UsageError: Another process holds one.

    """
    with contextlib.ExitStack() as files:
        for folder in folders:
            file = files.enter_context((Path(folder) / _LOCK_FILE).open("w"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"{folder} is in use by another bookie process; stop it first") from None
        yield


@contextlib.contextmanager
def locked_as_they_are(folders: Sequence[str]) -> Iterator[None]:
    """Hold directories of a bookie that does not run, and write nothing into them.

    A directory without a lock file was never served from: nothing holds it.

    Raises:
        UsageError: A bookie runs there, or another command looks at it.

    """
    with contextlib.ExitStack() as files:
        for folder in folders:
            path = Path(folder) / _LOCK_FILE
            if not path.exists():
                continue
            file = files.enter_context(path.open("rb"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"{folder} is in use by a bookie that runs; stop it first") from None
        yield


def _refuse_memory(folder: str) -> None:
    """Refuse a file system that lives in memory: an fsync there keeps nothing."""
    path = str(Path(folder).resolve())
    found, found_type = "", ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split(" ")
        mount = mount.replace("\\040", " ")
        if (path + "/").startswith(mount.rstrip("/") + "/") and len(mount) >= len(found):
            found, found_type = mount, kind
    if found_type in _MEMORY_FILE_SYSTEMS:
        raise UsageError(
            f"{folder} lies on {found_type} ({found}), which a power cut empties; choose a directory on a disk, or "
            "say --no-fsync for a bookie whose data may be lost"
        )

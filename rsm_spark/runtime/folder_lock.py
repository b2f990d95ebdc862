"""One process a folder: two replicas on one folder would prune each other's snapshots."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from ledger.errors import UsageError
from ledger.private_files import FILE_MODE, make_private


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process while the block runs; make it when missing.

    Raises:
        UsageError: Another process holds it.

    """
    make_private(folder)
    descriptor = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, FILE_MODE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"{folder}: another replica runs on this folder: give each its own --data-dir") from error
        yield
    finally:
        os.close(descriptor)

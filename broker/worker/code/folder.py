"""The folder in which a worker unpacks code and has programs run: private, gone with the worker, however that ended.

A lock in it says that somebody lives who needs it: the worker, or a process that has inherited the lock's descriptor
and outlives it. What nobody has locked any more, the next worker removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
from pathlib import Path

_PREFIX = "rsm-code-"
_LOCK = "lock"


class PoolFolder:
    """Makes folders in a folder of its own. All calls block, and may come from any thread.

    Args:
        place: Where that is made; None = in the system's place for temporary folders. Folders that dead workers have
            left there are removed.

    """

    def __init__(self, place: Path | None) -> None:
        self._place = place if place is not None else Path(tempfile.gettempdir())
        self._folder: Path | None = None
        self._lock = -1
        self._count = 0
        # Several pools are installed at once, in threads.
        self._making = threading.Lock()

    def make(self) -> Path:
        """Return a new folder that only this user reads, with `code`, `home` and `root` in it.

        Raises:
            OSError: It cannot be made.

        """
        with self._making:
            if self._folder is None:
                self._place.mkdir(parents=True, exist_ok=True)
                self._sweep()
                self._folder = self._claim()
            self._count += 1
            made = self._folder / str(self._count)
        for folder in (made, made / "code", made / "home", made / "root"):
            folder.mkdir(mode=0o700)
        return made

    def discard(self, made: Path) -> None:
        """Remove a folder that `make` has returned."""
        shutil.rmtree(made, ignore_errors=True)

    @property
    def lock(self) -> int:
        """Descriptor of the lock on all of them, for processes that outlive this one; there is one since `make`."""
        return self._lock

    def remove(self) -> None:
        """Remove all of them."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            os.close(self._lock)
            self._folder = None

    def _claim(self) -> Path:
        """Return a new folder that is locked for this process."""
        while True:
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._place))
            # Another worker that sweeps may come between making it and locking it.
            with contextlib.suppress(FileNotFoundError, BlockingIOError):
                lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if (folder / _LOCK).exists():
                        self._lock, lock = lock, -1
                        return folder
                finally:
                    if lock >= 0:
                        os.close(lock)

    def _sweep(self) -> None:
        """Remove what killed workers have left: nobody has it locked any more. The lock itself goes last."""
        for folder in self._place.glob(f"{_PREFIX}*"):
            with contextlib.suppress(OSError):
                lock = os.open(folder / _LOCK, os.O_RDWR)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    for made in folder.iterdir():
                        if made.name != _LOCK:
                            shutil.rmtree(made)
                    shutil.rmtree(folder)
                finally:
                    os.close(lock)

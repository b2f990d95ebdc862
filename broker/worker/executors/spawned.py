"""Starts processes of the system, beside gRPC, on any event loop.

Not `asyncio.create_subprocess_exec`: under uvloop that forks, and in the child, before the other program is there, run
the handlers that gRPC has registered for forks; now and then they crash. Python's own `subprocess` uses vfork, which
runs none. The end of a process is awaited by its pidfd: no signal handler, no thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence


class SpawnedProcess:
    """A process in a session and group of its own. Used on one loop; made by `start`, which blocks for a millisecond.

    Attributes:
        pid: Process id, and of its group.
        returncode: Exit code, or minus the signal that killed it; None while it lives.

    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.pid = process.pid
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except OSError:
            # The system knows no pidfds, or a sandbox forbids them.
            threading.Thread(target=self._wait_blocking, name=f"rsm-wait-{self.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._on_exit)

    @classmethod
    def start(
        cls,
        words: Sequence[str],
        *,
        stdin: int,
        stdout: int | None = None,
        stderr: int | None = None,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> SpawnedProcess:
        """Start a process.

        Raises:
            OSError: It cannot be started.

        """
        return cls(
            subprocess.Popen(
                list(words),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=tuple(pass_fds),
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        )

    async def wait(self) -> int:
        """Wait until it has ended; it is reaped then, and its group was killed."""
        return await asyncio.shield(self._ended)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it and all that it has started, if it lives."""
        # A number that was reaped may be somebody else's.
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        # What it started ends with it. Before it is reaped: until then its number is nobody else's.
        self.signal(signal.SIGKILL)
        self._set_ended(self._process.wait())

    def _wait_blocking(self) -> None:
        # Waits without reaping, for the same reason.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self.signal(signal.SIGKILL)
        code = self._process.wait()
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self._set_ended, code)

    def _set_ended(self, code: int) -> None:
        self.returncode = code
        self._ended.set_result(code)

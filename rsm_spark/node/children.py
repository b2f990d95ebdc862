"""Starts processes that end with this one, however it ends, and hears when they are ready and when they have ended."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_LINE_BYTES_MAX = 1 << 20


class ChildListener(Protocol):
    """Hears of a process."""

    def on_line(self, name: str, line: str) -> None:
        """Hear a line of its standard output."""

    def on_end(self, name: str, how: str, code: int) -> None:
        """Hear that it has ended, how, and with which exit code; below 0 = by that signal."""


class NodeChild:
    """One process; standard error goes where that of this process goes.

    Args:
        name: What it is called.
        command: Program and arguments.
        environment: All of its variables.
        listener: Hears of it, on the running loop.

    Raises:
        OSError: It cannot be started.

    """

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], listener: ChildListener
    ) -> None:
        self._name = name
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        # A session of its own: a ctrl-C here reaches this process alone, which then ends the others in their order.
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=_dies_with(os.getpid()),  # noqa: PLW1509 - one call of the C library, loaded before the fork
        )
        self.pid = self._process.pid
        self._end = os.pidfd_open(self.pid)
        self._loop.add_reader(self._end, self._has_ended)
        assert self._process.stdout is not None
        self._reading = self._loop.create_task(self._read(self._process.stdout))

    def send(self, number: int) -> None:
        """Send it a signal; one that has ended is passed over."""
        self._process.send_signal(number)

    async def _read(self, pipe: object) -> None:
        reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
        await self._loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        while True:
            try:
                line = await reader.readline()
            except ValueError:  # Longer than anybody reads.
                continue
            if not line:
                return
            self._listener.on_line(self._name, line.decode(errors="replace").rstrip("\n"))

    def _has_ended(self) -> None:
        self._loop.remove_reader(self._end)
        os.close(self._end)
        code = self._process.wait()
        self._listener.on_end(self._name, _words_of(code), code)


def rsm_command(words: Sequence[str]) -> list[str]:
    """Return the command that runs `rsm` with these words, by this interpreter."""
    return [sys.executable, "-P", "-m", "rsm_spark", *words]


def _dies_with(parent: int) -> Callable[[], None]:
    """Return what a child does before it becomes another program: it asks to be killed when its parent is gone."""

    def ask() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # It is gone already.
            os._exit(1)

    return ask


def _words_of(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"

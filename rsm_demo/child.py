"""A process of the demonstration that tells about itself in JSON lines.

* `RsmError`
    * `ChildFailedError`   it ended, or did not say in time what was waited for
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ledger.dev.errors import ClusterError
from ledger.dev.process import hold, identify
from rsm_spark.errors import RsmError

_LINE_BYTES_MAX = 64 * 1024 * 1024
_LOG_TAIL_LINES = 8


class ChildFailedError(RsmError):
    """A process of the demonstration ended on its own."""


class Child:
    """One started process: its JSON lines on standard output, its log in a file.

    Attributes:
        name: For messages and the log's file name.
        said: Every key that its lines have named so far, with the newest value.

    """

    def __init__(self, name: str, process: asyncio.subprocess.Process, log_file: Path) -> None:
        self.name = name
        self.said: dict[str, Any] = {}
        self._process = process
        self._log_file = log_file
        self._changed = asyncio.Condition()
        self._reader = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def start(
        cls, name: str, command: Sequence[str], *, log_dir: Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Start `command` in a process group of its own, so that a ctrl-C reaches only the conductor."""
        log_file = log_dir / f"{name}.log"
        with log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **(environment or {})},
                limit=_LINE_BYTES_MAX,
                start_new_session=True,
            )
        with contextlib.suppress(ClusterError):  # It has ended already, and `until` says why.
            hold(identify(process.pid))
        return cls(name, process, log_file)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True if it has not ended yet."""
        return self._process.returncode is None

    async def until(self, holds: Callable[[dict[str, Any]], object], *, timeout_s: float, what: str) -> None:
        """Wait until `holds(said)`.

        Raises:
            ChildFailedError: It ended, or took longer than `timeout_s`.

        """
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                while not holds(self.said):
                    if self._reader.done():
                        raise ChildFailedError(f"{self.name} ended before {what}: {self._log_tail()}")
                    await self._changed.wait()
        except TimeoutError:
            raise ChildFailedError(
                f"{self.name}: {what} took longer than {timeout_s:.0f} s: {self._log_tail()}"
            ) from None

    async def tell(self, message: Mapping[str, Any]) -> None:
        """Write one JSON line to its standard input."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it has ended: whoever waits for its answer hears so
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self, *, grace_s: float = 15) -> int:
        """SIGTERM, and SIGKILL to the whole group after the grace; return the exit code.

        SIGTERM is for the process alone: a Spark job whose JVM has ended before it cannot end in good order. What it
        leaves of its group has no owner any more.
        """
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(grace_s):
                    await self._process.wait()
            except TimeoutError:
                self._signal(signal.SIGKILL)
        code = await self._process.wait()
        self._signal(signal.SIGTERM)
        await self._reader
        return code

    async def wait(self) -> int:
        """Wait for its end; return the exit code."""
        code = await self._process.wait()
        await self._reader
        return code

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # a library's own words
            if isinstance(message, dict):
                async with self._changed:
                    self.said.update(message)
                    self._changed.notify_all()
        async with self._changed:
            self._changed.notify_all()

    def _log_tail(self) -> str:
        lines = self._log_file.read_text(errors="replace").strip().splitlines()[-_LOG_TAIL_LINES:]
        return f"its log {self._log_file} " + (f"ends with: {' | '.join(lines)}" if lines else "is empty")

"""A running spark-submit or warm server as its worker sees it: a keeper, what it writes, and the way to end it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence

import msgspec

from broker.worker.executors.command import read_end, write_end
from broker.worker.executors.spawned import SpawnedProcess
from broker.worker.jail.reading import jail_path
from broker.worker.submit.keeper import KeeperPlan

_MAIN = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from broker.worker.submit.keeper import main; main()"
_READ_BYTES = 64 * 1024
_LAST_WORDS_S = 5.0
KILLED = 128 + signal.SIGKILL
"""Exit code of a keeper that was to end."""


class KeptSubmission:
    """See the module; `start` makes one. Used on one loop.

    Args:
        process: The keeper.
        hand: Its standard input.
        readings: Tasks that read what it writes.

    """

    def __init__(
        self, process: SpawnedProcess, hand: asyncio.StreamWriter, readings: Sequence[asyncio.Task[None]]
    ) -> None:
        self._process = process
        self._hand = hand
        self._readings = readings

    @classmethod
    async def start(
        cls, plan: KeeperPlan, on_output: Callable[[bytes], None], on_log: Callable[[bytes], None]
    ) -> KeptSubmission:
        """Start one.

        Args:
            plan: What.
            on_output: Hears what comes on standard output.
            on_log: Hears what comes on standard error.

        Raises:
            OSError: It cannot be started.

        """
        pipes = [os.pipe() for _ in range(3)]
        (their_in, our_in), (our_out, their_out), (our_err, their_err) = pipes
        try:
            process = SpawnedProcess.start(
                [sys.executable, "-I", "-B", "-c", _MAIN, json.dumps(jail_path())],
                stdin=their_in,
                stdout=their_out,
                stderr=their_err,
                pass_fds=(plan.lock,) if plan.lock >= 0 else (),
                environment={"LANG": "C.UTF-8"},
                folder="/",
            )
        except BaseException:
            for fd in (our_in, our_out, our_err):
                os.close(fd)
            raise
        finally:
            for fd in (their_in, their_out, their_err):
                os.close(fd)
        loop = asyncio.get_running_loop()
        hand = await write_end(our_in)
        readings = [
            loop.create_task(_read(await read_end(fd), hear), name=f"rsm-kept-{process.pid}")
            for fd, hear in ((our_out, on_output), (our_err, on_log))
        ]
        made = cls(process, hand, readings)
        made.say(msgspec.json.encode(plan))
        return made

    def remember(self, command: Sequence[str]) -> None:
        """Have the keeper run this command when it ends what it keeps: of what runs elsewhere it ends that first."""
        self.say(msgspec.json.encode(list(command)))

    def end(self) -> None:
        """Have it end: soon, and without asking what it keeps."""
        if not self._hand.is_closing():
            self._hand.close()

    def kill(self) -> None:
        """End it by force; it carries out no command then."""
        self._process.signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait until it has ended and all that it wrote was heard; return its exit code."""
        code = await self._process.wait()
        self.end()
        # What has left its group may hold a pipe open for a moment longer.
        await asyncio.wait(self._readings, timeout=_LAST_WORDS_S)
        for reading in self._readings:
            reading.cancel()
        return code

    def say(self, line: bytes) -> None:
        """Have the keeper read a line; see `broker.worker.submit.keeper`."""
        with contextlib.suppress(OSError, RuntimeError):  # It is gone.
            self._hand.write(line + b"\n")


async def _read(stream: asyncio.StreamReader, hear: Callable[[bytes], None]) -> None:
    while chunk := await stream.read(_READ_BYTES):
        hear(chunk)

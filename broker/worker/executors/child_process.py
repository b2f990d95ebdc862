"""One child process as its worker sees it: started, spoken to, killed, and known to be gone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import msgspec

from broker.worker.executors.child_messages import ChildMessage, FrameReader, ParentMessage, encode_frame
from broker.worker.executors.spawned import SpawnedProcess
from broker.worker.jail.output import JailOutput
from broker.worker.jail.plan import JailPlan
from broker.worker.jail.reading import jail_path

_MAIN = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from broker.worker.executors.child import main; main(int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])"
)
_HINTS = {
    "SIGKILL": "; if nobody did it, the system may have been short of memory",
    "SIGXCPU": "; it has used up its seconds of processor (--code-cpu-s of the worker)",
}
_MESSAGES: msgspec.msgpack.Decoder[ChildMessage] = msgspec.msgpack.Decoder(ChildMessage)
_ENDING_S = 1.0
"""Time that a jail may take to end after the process in it has hung up."""
_LAST_WORDS_S = 1.0
"""For what a dead child has said to arrive; something that it started elsewhere may hold its end of the pipe open."""


class ChildProcess(asyncio.Protocol):
    """A child; `start` makes one.

    Args:
        on_message: Hears what it says.
        on_gone: Called once, when the process has ended and was reaped.
        jail: To which it goes; None = it may do what this process may.

    Attributes:
        pid: Process id, and of its process group.
        exit_code: Below 0: minus the signal that killed it; None while it lives.

    """

    def __init__(
        self,
        on_message: Callable[[ChildProcess, ChildMessage], None],
        on_gone: Callable[[ChildProcess], None],
        jail: JailPlan | None = None,
    ) -> None:
        self.pid = 0
        self.exit_code: int | None = None
        self._on_message = on_message
        self._on_gone = on_gone
        self._jail = jail
        self._frames = FrameReader()
        self._transport: asyncio.WriteTransport | None = None
        self._process: SpawnedProcess | None = None
        self._reaper: asyncio.Task[None] | None = None
        # What it is told before it is there.
        self._early: list[bytes] = []
        self._is_killed = False
        self._hung_up = asyncio.Event()

    async def start(self, environment: Mapping[str, str] | None, folder: str | None) -> None:
        """Start the process.

        Args:
            environment: Its variables; None = this process's.
            folder: Its working directory; None = this process's.

        Raises:
            OSError: The system has no room for another process.

        """
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)  # noqa: FBT003
        said, output = os.pipe() if self._jail is not None else (None, None)
        try:
            self._process = SpawnedProcess.start(
                self._words(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs.fileno(),),
                environment=environment,
                folder=folder,
            )
        except BaseException:
            ours.close()
            if said is not None:
                os.close(said)
            raise
        finally:
            theirs.close()
            if output is not None:
                os.close(output)
        if said is not None:
            name = f"code process {self._process.pid}"
            await loop.connect_read_pipe(lambda: JailOutput(name), os.fdopen(said, "rb", 0))
        self.pid = self._process.pid
        self._reaper = loop.create_task(self._reap(self._process), name=f"rsm-child-{self.pid}")
        await loop.connect_accepted_socket(lambda: self, ours)
        if self._is_killed:
            self.kill()

    def _words(self, fd: int) -> list[str]:
        own = str(os.getpid())
        if self._jail is None:
            path = [path or str(Path.cwd()) for path in sys.path]
            return [sys.executable, "-P", "-c", _MAIN, json.dumps(path), str(fd), own]
        # Isolated: what other code has left in a home folder is not run when this starts.
        plan = msgspec.json.encode(self._jail).decode()
        return [sys.executable, "-I", "-B", "-c", _MAIN, json.dumps(jail_path()), str(fd), own, plan]

    def send(self, message: ParentMessage) -> None:
        """Say something to the child; it reaches it when it has started."""
        text = encode_frame(message)
        if self._transport is None:
            self._early.append(text)
        else:
            self._transport.write(text)

    def kill(self) -> None:
        """Kill it, and all that it has started."""
        self._is_killed = True
        if self._process is not None:
            self._process.signal(signal.SIGKILL)

    async def wait_gone(self) -> None:
        """Wait until it was reaped."""
        if self._reaper is not None:
            await asyncio.wait([self._reaper])

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say what has waited."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.writelines(self._early)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        """Hand on what the child says; one that says nonsense is killed."""
        try:
            for text in self._frames.feed(data):
                self._on_message(self, _MESSAGES.decode(text))
        except (ValueError, msgspec.MsgspecError):
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever it was, it is over
        """Kill what has hung up but lives on: it is of no use."""
        self._hung_up.set()
        if self._jail is None:
            self.kill()
        else:
            # In a jail the code's process is not the one that was started here: that is about to say how it ended.
            asyncio.get_running_loop().call_later(_ENDING_S, self.kill)

    async def _reap(self, process: SpawnedProcess) -> None:
        self.exit_code = await process.wait()
        # What it said last is still to be read.
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._hung_up.wait()
        except TimeoutError:
            # A loop that was held up may look at its clock before it reads: give it the turns to read.
            for _ in range(3):
                await asyncio.sleep(0)
        if self._transport is not None:
            self._transport.close()
        self._on_gone(self)


def exit_words(exit_code: int | None) -> str:
    """Return how a process ended."""
    if exit_code is None:
        return "cannot be reached"
    if exit_code >= 0:
        return f"ended by itself with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"was killed by {name}{_HINTS.get(name, '')}"

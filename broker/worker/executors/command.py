"""A command as a process with its own process group, which ends with it: nothing that it started is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence

from broker.worker.executors.spawned import SpawnedProcess

_READ_BYTES = 64 * 1024


class CommandProcess:
    """A running command; made by `start`.

    Args:
        process: Started with the other ends of these pipes.
        stdin: Its standard input.
        stdout: Its standard output.
        stderr: Its standard error.

    """

    def __init__(
        self,
        process: SpawnedProcess,
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
    ) -> None:
        self._process = process
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = stderr

    @classmethod
    async def start(cls, words: Sequence[str], environment: Mapping[str, str]) -> CommandProcess:
        """Start a command.

        Raises:
            OSError: It cannot be started.

        """
        their_in, our_in = os.pipe()
        our_out, their_out = os.pipe()
        our_err, their_err = os.pipe()
        try:
            process = SpawnedProcess.start(
                words, stdin=their_in, stdout=their_out, stderr=their_err, environment=environment
            )
        except BaseException:
            for fd in (our_in, our_out, our_err):
                os.close(fd)
            raise
        finally:
            for fd in (their_in, their_out, their_err):
                os.close(fd)
        return cls(process, await write_end(our_in), await read_end(our_out), await read_end(our_err))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the command and all that it has started."""
        self._process.signal(number)

    async def talk(self, payload: bytes, *, output_bytes_max: int, error_bytes: int) -> tuple[int, bytes | None, bytes]:
        """Give it its input, and wait until it has ended.

        Args:
            payload: Its input; it need not read it.
            output_bytes_max: One that writes more is killed.
            error_bytes: So much is returned of the end of its standard error.

        Returns:
            (exit code, output or None if it is too much, end of standard error).

        """
        loop = asyncio.get_running_loop()
        feeding = loop.create_task(self._feed(payload))
        reading = loop.create_task(self._read(output_bytes_max))
        noting = loop.create_task(self._note(error_bytes))
        try:
            code = await self._process.wait()
            return code, await reading, await noting
        finally:
            self.signal(signal.SIGKILL)
            for task in (feeding, reading, noting):
                task.cancel()
            await asyncio.wait([feeding, reading, noting])
            self._stdin.close()

    async def _feed(self, payload: bytes) -> None:
        with contextlib.suppress(OSError):
            self._stdin.write(payload)
            await self._stdin.drain()
        self._stdin.close()

    async def _read(self, bytes_max: int) -> bytes | None:
        chunks: list[bytes] = []
        size = 0
        while chunk := await self._stdout.read(_READ_BYTES):
            chunks.append(chunk)
            size += len(chunk)
            if size > bytes_max:
                self.signal(signal.SIGKILL)
                return None
        return b"".join(chunks)

    async def _note(self, bytes_max: int) -> bytes:
        kept = b""
        while chunk := await self._stderr.read(_READ_BYTES):
            kept = (kept + chunk)[-bytes_max:]
        return kept


async def read_end(fd: int) -> asyncio.StreamReader:
    """Return a reader of a pipe."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", 0))
    return reader


async def write_end(fd: int) -> asyncio.StreamWriter:
    """Return a writer to a pipe."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(fd, "wb", 0))
    return asyncio.StreamWriter(transport, protocol, None, loop)

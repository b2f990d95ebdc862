"""The one stream of a worker: writes what its protocol has to say, reads what the broker says, until it is over.

Everything that has gathered while a message was being written goes out in the next one. The old stream has ended
before another one is opened: nothing that still lies in it is heeded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from broker.worker.core.effects import Effect
from broker.worker.core.protocol import WorkerProtocol
from broker.worker.stream import WorkerStream
from rsm_spark.errors import AccessDeniedError, ConnectionLostError
from rsm_spark.transport.security import Security

_GOODBYE_S = 3.0
"""Time that a broker may take to end the stream of a worker that has left."""


class BrokerLink:
    """See the module.

    Args:
        protocol: Decides what is said and heeded.
        security: TLS and token.
        apply: Carries effects out.
        on_served: Called with the address of a broker when it serves the worker.

    """

    def __init__(
        self,
        protocol: WorkerProtocol,
        security: Security,
        apply: Callable[[list[Effect]], None],
        on_served: Callable[[str], None],
    ) -> None:
        self._protocol = protocol
        self._security = security
        self._apply = apply
        self._on_served = on_served
        self._loop = asyncio.get_running_loop()
        self._stream: WorkerStream | None = None
        self._stream_id = 0
        self._is_served = False
        # Done when the present stream is to be used no more; its result says why.
        self._over: asyncio.Future[str] | None = None
        self._wake: asyncio.Future[None] | None = None

    @property
    def is_open(self) -> bool:
        """True if there is a stream, served or not."""
        return self._stream is not None

    @property
    def served(self) -> WorkerStream | None:
        """The stream, if the broker serves it."""
        return self._stream if self._is_served else None

    async def use(self, address: str, framed: str = "") -> str:
        """Use one broker until it is to be used no more.

        Args:
            address: "host:port" of gRPC, which names the broker.
            framed: The same of its framed port; "" = over gRPC.

        Returns:
            Why it is over; "" if the worker has left.

        Raises:
            UsageError: A file of the security settings cannot be used.

        """
        stream = WorkerStream(address, self._security, framed)
        self._stream_id += 1
        self._stream = stream
        self._over = over = self._loop.create_future()
        self._protocol.opened(self._stream_id, monotonic_ms())
        writer = self._loop.create_task(self._write(stream, self._stream_id), name=f"rsm-worker-writer-{address}")
        try:
            await asyncio.wait([over, writer], return_when=asyncio.FIRST_COMPLETED)
            if not over.done() and not writer.cancelled():
                writer.result()
        finally:
            self._protocol.lost(self._stream_id)
            self._is_served = False
            self._stream = self._over = None
            writer.cancel()
            await asyncio.wait([writer])
            await stream.close()
        if self._protocol.has_left:
            return ""
        return over.result() if over.done() else "the stream was broken off"

    def end(self, why: str) -> None:
        """Use the present stream no more."""
        self._end(self._stream_id, why)

    def wake_up(self) -> None:
        """Ask the protocol whether there is something to say."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _write(self, stream: WorkerStream, stream_id: int) -> None:
        """Send whatever there is to say; the first message opens the stream, then its answers are read."""
        reader: asyncio.Task[None] | None = None
        try:
            while True:
                message = self._protocol.compose(stream_id, monotonic_ms())
                if message is None:
                    self._wake = self._loop.create_future()
                    await self._wake
                    continue
                await stream.send(message)
                if reader is None:
                    reader = self._loop.create_task(self._read(stream, stream_id))
                if self._protocol.has_left:
                    # The broker reads the last message before the stream is broken off.
                    await stream.finish()
                    await asyncio.wait([reader], timeout=_GOODBYE_S)
                    return
        except ConnectionLostError as error:
            self._end(stream_id, _in_words(error))
        finally:
            if reader is not None:
                reader.cancel()
                await asyncio.wait([reader])
                if not reader.cancelled():
                    reader.result()

    async def _read(self, stream: WorkerStream, stream_id: int) -> None:
        try:
            while True:
                message = await stream.receive()
                self._apply(self._protocol.received(stream_id, message, monotonic_ms()))
                if message.welcome is not None and self._protocol.is_served(stream_id):
                    self._is_served = True
                    self._on_served(stream.address)
                # Acknowledged ends may let a draining worker leave; a welcome lets it speak at all.
                self.wake_up()
        except ConnectionLostError as error:
            self._end(stream_id, _in_words(error))
        finally:
            self._end(stream_id, "the stream was broken off")

    def _end(self, stream_id: int, why: str) -> None:
        if stream_id == self._stream_id and self._over is not None and not self._over.done():
            self._over.set_result(why)


def monotonic_ms() -> int:
    """Return the time of a clock that goes on while the process is paused, and never back."""
    return time.monotonic_ns() // 1_000_000


def _in_words(error: ConnectionLostError) -> str:
    if not isinstance(error, AccessDeniedError):
        return str(error)
    return f"{error}. A worker shows who it is by --token-file, or by a certificate (--tls-cert)"

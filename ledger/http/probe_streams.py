"""Streams of the small HTTP server: answers that go on until one side leaves.

1. So many are open, and so many of one caller, that half of the server's seats are left for pages.
2. A reader holds one piece of its stream: the next one is made when that was taken. Who takes nothing is cut.
3. The pieces of all readers have at most `HELD_BYTES_MAX`: beyond, the reader that holds most is cut.
4. Who loses its right loses its streams, within seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final

import h11

from ledger.http.routes import ProbeStream

STREAMS_MAX: Final = 32
OWN_STREAMS_MAX: Final = 8
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
_LOGGER = logging.getLogger(__name__)
_WRITE_BYTES: Final = 64 * 1024
_WRITE_S_MAX: Final = 30.0
"""In which a reader has to take that much: 2 KiB a second."""
_KERNEL_BYTES: Final = 256 * 1024
"""Of a stream that the kernel holds; without a word it would hold some MiB."""
_LOOK_S: Final = 1.0


class StreamDesk:
    """See the module. For one event loop.

    Attributes:
        open_count: Streams that are open.
        cut_count: Readers that were cut, since they took nothing or held most.

    """

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()
        # Streams that write -> bytes of the piece that they hold; the sum is `_held_bytes`.
        self._held: dict[asyncio.WriteTransport, int] = {}
        self._held_bytes = 0
        self._is_closed = False
        self.open_count = 0
        self.cut_count = 0

    @contextlib.contextmanager
    def seat(self, owner: str) -> Iterator[bool]:
        """Have a stream count for its owner while the block runs; False = there are too many."""
        has_room = self.open_count < STREAMS_MAX and self._of[owner] < OWN_STREAMS_MAX
        if not has_room:
            yield False
            return
        self._of[owner] += 1
        self.open_count += 1
        try:
            yield True
        finally:
            self.open_count -= 1
            self._of[owner] -= 1
            if not self._of[owner]:
                del self._of[owner]

    def close(self) -> None:
        """Have all streams end: the server stops."""
        self._is_closed = True

    async def run(
        self,
        stream: ProbeStream,
        http: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        is_allowed: Callable[[], bool],
    ) -> None:
        """Send a stream, until it ends, its reader leaves or takes nothing, or its caller may not have it any more.

        Args:
            stream: To send; closed at the end.
            http: Of the connection, whose request has been read.
            reader: Of the connection: who says anything more, leaves.
            writer: Of the connection.
            is_allowed: Says whether the caller may still have it; asked now and then.

        Raises:
            TimeoutError, OSError: The reader takes nothing, or has gone.

        """
        connected = writer.get_extra_info("socket")
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BYTES)
        loop = asyncio.get_running_loop()
        leaves = loop.create_task(reader.read(1))
        coming: asyncio.Task[bytes | None] | None = None
        try:
            writer.write(_head(http, stream))
            while is_allowed() and not self._is_closed:
                if coming is None:
                    coming = loop.create_task(_next(stream))
                await asyncio.wait({coming, leaves}, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if leaves.done():
                    return
                if coming.done():
                    piece, coming = coming.result(), None
                    if piece is None:
                        break
                    await self._write(piece, http, writer)
            writer.write(http.send(h11.EndOfMessage()))
            await _taken(writer)
        finally:
            for waiting in (leaves, coming):
                if waiting is not None:
                    waiting.cancel()
                    await asyncio.wait([waiting])
                    _ = waiting.cancelled() or waiting.exception()
            await stream.pieces.aclose()

    async def _write(self, piece: bytes, http: h11.Connection, writer: asyncio.StreamWriter) -> None:
        transport = writer.transport
        self._held[transport] = len(piece)
        self._held_bytes += len(piece)
        try:
            while self._held_bytes > HELD_BYTES_MAX:
                most = max(self._held, key=lambda one: self._held[one])
                self._held_bytes -= self._held.pop(most)
                self.cut_count += 1
                most.abort()
            view = memoryview(piece)
            for start in range(0, len(view), _WRITE_BYTES):
                writer.write(http.send(h11.Data(data=bytes(view[start : start + _WRITE_BYTES]))))
                await _taken(writer)
        except TimeoutError:
            self.cut_count += 1
            transport.abort()
            raise
        finally:
            self._held_bytes -= self._held.pop(transport, 0)


async def _next(stream: ProbeStream) -> bytes | None:
    """Return the next piece; None = there is no more."""
    try:
        return await anext(stream.pieces)
    except StopAsyncIteration:
        return None
    except Exception:
        _LOGGER.exception("a stream could not go on")
        return None


async def _taken(writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(_WRITE_S_MAX):
        await writer.drain()


def _head(http: h11.Connection, stream: ProbeStream) -> bytes:
    return http.send(
        h11.Response(
            status_code=200,
            reason=HTTPStatus.OK.phrase,
            headers=[("Content-Type", stream.content_type), ("Connection", "close"), ("Cache-Control", "no-store"),
                     ("X-Content-Type-Options", "nosniff"), ("X-Accel-Buffering", "no")],
        )
    )  # fmt: skip

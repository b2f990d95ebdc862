"""HTTP/1.1 connections on asyncio's streams: kept alive, used again, bounded in what they read.

* `NotSentError(OSError)`   there is no connection; it never leaves `broker.client`
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from broker.client.errors import BadAnswerError
from broker.client.http_wire import HEAD_BYTES_MAX, Head, Origin, parse_head, request_bytes

__all__ = ["BODY_BYTES_MAX", "ConnectionPool", "NotSentError", "Response"]

BODY_BYTES_MAX = 32 * 1024 * 1024
"""Of one whole response: above any page, result or archive of a broker."""
_IDLE_PER_ORIGIN_MAX = 64
_CONNECT_S_MAX = 5.0
_PIECE_BYTES = 64 * 1024
_CHUNK_LENGTH = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?\Z", re.DOTALL)


class NotSentError(OSError):
    """There is no connection: certainly nothing was done."""


class Response(NamedTuple):
    """A whole response."""

    head: Head
    body: bytes


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def is_usable(self) -> bool:
        """Whether the server has not ended it meanwhile."""
        return not self._reader.at_eof() and self._reader.exception() is None and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    def send(self, request: bytes) -> None:
        self._writer.write(request)

    async def drain(self) -> None:
        await self._writer.drain()

    async def head(self) -> Head:
        """Read the head of a response; those of 1xx are passed over."""
        while True:
            try:
                text = await self._reader.readuntil(b"\r\n\r\n")
            except asyncio.LimitOverrunError:
                raise BadAnswerError(f"the head of a response is longer than {HEAD_BYTES_MAX} bytes") from None
            head = parse_head(text)
            if head.status >= 200:
                return head

    async def pieces(self, head: Head) -> AsyncIterator[bytes]:
        """Iterate over the body as it comes."""
        if head.is_chunked:
            async for piece in self._chunks():
                yield piece
            return
        left = head.content_length
        if head.status in {204, 304}:
            left = 0
        while left is None or left > 0:
            piece = await self._reader.read(_PIECE_BYTES if left is None else min(left, _PIECE_BYTES))
            if not piece:
                if left is None:
                    return
                raise asyncio.IncompleteReadError(b"", left)
            left = None if left is None else left - len(piece)
            yield piece

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            line = await self._line()
            matched = _CHUNK_LENGTH.match(line)
            size = int(matched[1], 16) if matched is not None else BODY_BYTES_MAX + 1
            if size > BODY_BYTES_MAX:
                raise BadAnswerError(f"not the length of a chunk, or too large a one: {line[:40]!r}")
            if size == 0:
                while await self._line():
                    pass
                return
            yield await self._reader.readexactly(size)
            await self._reader.readexactly(2)

    async def _line(self) -> bytes:
        try:
            return (await self._reader.readuntil(b"\r\n"))[:-2]
        except asyncio.LimitOverrunError:
            raise BadAnswerError("a line of a response that does not end") from None


class ConnectionPool:
    """Connections by server; any number of tasks may use it at once.

    Args:
        tls: For servers that are called by https; None = as the system trusts.

    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        # Those that wait for their next request, the last one used at the end.
        self._idle: dict[Origin, list[_Connection]] = {}
        self._is_closed = False

    def close(self) -> None:
        """Close what is idle, and the rest as soon as it is."""
        self._is_closed = True
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def forget(self, origin: Origin) -> None:
        """Close the idle connections of a server that did not answer."""
        for connection in self._idle.pop(origin, []):
            connection.close()

    async def request(
        self, origin: Origin, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Response:
        """Send a request and return its whole response.

        Raises:
            NotSentError: There is no connection.
            OSError, EOFError: It broke off after something was sent.
            BadAnswerError: What came is no HTTP, or is too large.

        """
        request = request_bytes(origin, method, target, headers, body)
        connection = await self._take(origin)
        is_whole = False
        try:
            connection.send(request)
            await connection.drain()
            head = await connection.head()
            response = Response(head, await self._whole(connection, head))
            is_whole = True
        finally:
            if is_whole and not head.is_last:
                self._give_back(origin, connection)
            else:
                connection.close()
        return response

    @contextlib.asynccontextmanager
    async def stream(
        self, origin: Origin, target: str, headers: Mapping[str, str]
    ) -> AsyncIterator[tuple[Head, AsyncIterator[bytes]]]:
        """Get something whose body has no end; the connection is used for nothing else.

        Raises:
            NotSentError: There is no connection.
            OSError, EOFError: It broke off.
            BadAnswerError: What came is no HTTP.

        """
        connection = await self._connect(origin)
        try:
            connection.send(request_bytes(origin, "GET", target, headers, None))
            head = await connection.head()
            async with contextlib.aclosing(connection.pieces(head)) as pieces:  # type: ignore[type-var]
                yield head, pieces
        finally:
            connection.close()

    async def _whole(self, connection: _Connection, head: Head) -> bytes:
        pieces: list[bytes] = []
        length = 0
        async for piece in connection.pieces(head):
            length += len(piece)
            if length > BODY_BYTES_MAX:
                raise BadAnswerError(f"a response of more than {BODY_BYTES_MAX} bytes")
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _take(self, origin: Origin) -> _Connection:
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return await self._connect(origin)

    def _give_back(self, origin: Origin, connection: _Connection) -> None:
        idle = self._idle.setdefault(origin, [])
        if self._is_closed or len(idle) >= _IDLE_PER_ORIGIN_MAX or not connection.is_usable:
            connection.close()
        else:
            idle.append(connection)

    async def _connect(self, origin: Origin) -> _Connection:
        if origin.is_tls and self._tls is None:
            self._tls = ssl.create_default_context()
        try:
            async with asyncio.timeout(_CONNECT_S_MAX):
                reader, writer = await asyncio.open_connection(
                    origin.host, origin.port, ssl=self._tls if origin.is_tls else None, limit=HEAD_BYTES_MAX
                )
        except (OSError, TimeoutError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
            raise NotSentError(f"{origin}: {why}") from error
        return _Connection(reader, writer)

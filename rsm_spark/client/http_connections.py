"""HTTP/1.1 connections on asyncio's streams: kept alive, used again, bounded in what they read.

* `NotSentError(OSError)`   there is no connection; clients of services ask the next server
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

import h11

from rsm_spark.client.http_wire import BadResponseError, Head, Origin, head_of, request_event, request_head

BODY_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of one whole response: above any page, result or archive of a server."""
HEAD_BYTES_MAX = 32 * 1024
_IDLE_PER_ORIGIN_MAX = 64
_CONNECT_S_MAX = 5.0
_PIECE_BYTES = 64 * 1024
_END = h11.EndOfMessage()


class NotSentError(OSError):
    """There is no connection: certainly nothing was done."""


class Response(NamedTuple):
    """A whole response."""

    head: Head
    body: bytes


class _Connection:
    """One connection: h11 between the bytes of a socket and what they mean."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._is_ended = False

    @property
    def is_usable(self) -> bool:
        """True if the server has not ended it meanwhile."""
        return not self._reader.at_eof() and self._reader.exception() is None and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    def send(self, method: str, head: bytes, body: bytes | None) -> None:
        # h11 keeps the state of the connection; what is sent is made by `request_head`.
        self._http.send(request_event(method))
        self._http.send(_END)
        self._writer.write(head + body if body else head)

    async def drain(self) -> None:
        await self._writer.drain()

    async def head(self) -> Head:
        """Read the head of a response; those of 1xx are passed over."""
        left = HEAD_BYTES_MAX - await self._read(HEAD_BYTES_MAX)
        while True:
            event = self._event()
            if isinstance(event, h11.Response):
                return head_of(event)
            if event is h11.NEED_DATA:
                # Never more than a head may have: h11 looks at its bound only when a head is not whole.
                if left <= 0:
                    raise BadResponseError(f"the head of a response is longer than {HEAD_BYTES_MAX} bytes")
                left -= await self._read(left)
            else:
                assert isinstance(event, h11.InformationalResponse), event
                left = HEAD_BYTES_MAX - len(self._http.trailing_data[0])

    async def body(self) -> bytes:
        """Read the whole body."""
        pieces: list[bytes] = []
        length = 0
        while True:
            piece = self._piece()
            if piece is None:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if piece:
                length += len(piece)
                if length > BODY_BYTES_MAX:
                    raise BadResponseError(f"a response of more than {BODY_BYTES_MAX} bytes")
                pieces.append(piece)
            else:
                await self._read(_PIECE_BYTES)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Iterate over the body as it comes."""
        while (piece := self._piece()) is not None:
            if piece:
                yield piece
            else:
                await self._read(_PIECE_BYTES)

    def _piece(self) -> bytes | None:
        """Return what is here of the body; b"" = more has to be read, None = it is whole."""
        event = self._event()
        if isinstance(event, h11.Data):
            return event.data
        if event is h11.NEED_DATA:
            return b""
        assert isinstance(event, h11.EndOfMessage), event
        return None

    def renew(self) -> bool:
        """Return whether another request may follow the response that is whole now."""
        http = self._http
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE or http.trailing_data[0]:
            return False
        http.start_next_cycle()
        return self.is_usable

    def _event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            if self._is_ended:
                raise EOFError(f"the connection ended: {error}") from error
            raise BadResponseError(f"not an HTTP/1.1 response: {error}") from None

    async def _read(self, bytes_max: int) -> int:
        data = await self._reader.read(bytes_max)
        self._is_ended = not data
        self._http.receive_data(data)
        return len(data)


class HttpConnectionPool:
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
            BadResponseError: What came is no HTTP, or is too large.

        """
        head = request_head(origin, method, target, headers, body)
        connection = await self._take(origin)
        is_whole = False
        try:
            connection.send(method, head, body)
            if body is not None and len(body) > _PIECE_BYTES:  # What is less fits a socket's buffer.
                await connection.drain()
            response = Response(await connection.head(), await connection.body())
            is_whole = True
        finally:
            if is_whole and connection.renew():
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
            BadResponseError: What came is no HTTP.

        """
        connection = await self._connect(origin)
        try:
            connection.send("GET", request_head(origin, "GET", target, headers, None), None)
            head = await connection.head()
            async with contextlib.aclosing(connection.pieces()) as pieces:  # type: ignore[type-var]
                yield head, pieces
        finally:
            connection.close()

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
        if self._is_closed or len(idle) >= _IDLE_PER_ORIGIN_MAX:
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

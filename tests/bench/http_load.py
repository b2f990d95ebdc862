"""A lean HTTP/1.1 load: connections with one request outstanding each, whose bytes are ready beforehand."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

from tests.bench.figure import percentile

__all__ = ["HttpFeed", "HttpLoad", "call", "drive_http", "request_bytes"]

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class HttpLoad(NamedTuple):
    """What a load came to."""

    per_s: float
    p50_ms: float
    p99_ms: float
    answers: list[bytes]


def request_bytes(method: str, path: str, address: str, body: Any = None, *, tenant: str = "bench") -> bytes:
    """Return a whole request."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {address}\r\nX-Tenant: {tenant}\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(content) + content


class _Connection(asyncio.Protocol):
    """Sends the next request as soon as the answer to the one before is whole."""

    def __init__(
        self,
        requests: Iterator[bytes],
        is_over: Callable[[], bool],
        on_free: Callable[[_Connection], None] | None = None,
    ) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.latencies_s: list[float] = []
        self.answers: list[bytes] = []
        self._requests = requests
        self._is_over = is_over
        self._on_free = on_free  # Instead of taking the next request itself.
        self._buffer = b""
        self._wanted = -1
        self._began = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._wanted < 0:
            end = self._buffer.find(_HEAD_END)
            if end < 0:
                return
            head = self._buffer[:end].lower()
            at = head.find(_LENGTH)
            length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self._wanted = end + len(_HEAD_END) + length
        if len(self._buffer) < self._wanted:
            return
        if not self._buffer.startswith(b"HTTP/1.1 2"):
            self.done.set_exception(RuntimeError(self._buffer[:600].decode(errors="replace")))
            self._transport.close()
            return
        self.latencies_s.append(time.perf_counter() - self._began)
        self.answers.append(self._buffer[self._buffer.find(_HEAD_END) + len(_HEAD_END) :])
        self._buffer, self._wanted = b"", -1
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server closed the connection"))

    def _next(self) -> None:
        if self._on_free is not None:
            self._on_free(self)
            return
        request = None if self._is_over() else next(self._requests, None)
        if request is None:
            self.end()
        else:
            self.send(request)

    def send(self, request: bytes) -> None:
        """Send a request; none is outstanding."""
        self._began = time.perf_counter()
        self._transport.write(request)

    def end(self) -> None:
        """Send no more."""
        if not self.done.done():
            self.done.set_result(None)
        self._transport.close()


async def drive_http(
    address: str, requests: Callable[[int], Iterator[bytes]], *, connections: int, seconds: float = float("inf")
) -> HttpLoad:
    """Send requests over so many connections until the time is over, or each has sent all of its own.

    Args:
        address: "host:port".
        requests: Called with the number of a connection.
        connections: How many.
        seconds: Of the load.

    Raises:
        RuntimeError: An answer was no success.

    """
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    end = began + seconds
    made = [
        (await loop.create_connection(
            lambda number=number: _Connection(requests(number), lambda: time.perf_counter() >= end), host, int(port)
        ))[1]
        for number in range(connections)
    ]  # fmt: skip
    await asyncio.gather(*(one.done for one in made))
    took = time.perf_counter() - began
    latencies = [latency for one in made for latency in one.latencies_s]
    answers = [answer for one in made for answer in one.answers]
    return HttpLoad(
        len(latencies) / took, percentile(latencies, 0.5) * 1000, percentile(latencies, 0.99) * 1000, answers
    )


class HttpFeed:
    """Connections that stay open; what is put in is sent in order, as soon as one of them is free.

    Args:
        address: "host:port".
        connections: How many.

    """

    def __init__(self, address: str, connections: int) -> None:
        self._host, _, self._port = address.rpartition(":")
        self._count = connections
        self._waiting: deque[bytes] = deque()
        self._free: list[_Connection] = []
        self._made: list[_Connection] = []
        self._is_ending = False

    async def __aenter__(self) -> Self:
        """Connect."""
        loop = asyncio.get_running_loop()
        for _ in range(self._count):
            _, made = await loop.create_connection(
                lambda: _Connection(iter(()), lambda: True, self._on_free), self._host, int(self._port)
            )
            self._made.append(made)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait for what is outstanding; disconnect."""
        self._is_ending = True
        for connection in self._free:
            connection.end()
        await asyncio.gather(*(connection.done for connection in self._made))

    def put(self, request: bytes) -> None:
        """Have a request sent."""
        if self._free:
            self._free.pop().send(request)
        else:
            self._waiting.append(request)

    def _on_free(self, connection: _Connection) -> None:
        if self._waiting:
            connection.send(self._waiting.popleft())
        elif self._is_ending:
            connection.end()
        else:
            self._free.append(connection)


async def call(address: str, method: str, path: str, body: Any = None, *, tenant: str = "bench") -> Any:
    """Send one request on a connection of its own; return its JSON."""
    sent = request_bytes(method, path, address, body, tenant=tenant)
    load = await drive_http(address, lambda _: iter([sent]), connections=1)
    return json.loads(load.answers[0]) if load.answers and load.answers[0] else None

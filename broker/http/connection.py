"""One connection: uvicorn's, with bounds on what comes before a request is whole.

    head        at most 64 headers and 32 KiB, within `read_head_s`      431, 414, 408
    body        all of it within `read_body_s`; received bytes bounded   408, 413
    idle        closed after `idle_s`
    stalled     broken off when nothing was taken for `write_s`
    too many    turned away at once                                      503

Bounds in time are looked after by one sweep a second over all connections: not a timer a request.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from broker.http.problems import Problem, retry_after
from broker.http.settings import HttpSettings

__all__ = ["HEADERS_MAX", "HEAD_BYTES_MAX", "HttpConnection", "TARGET_BYTES_MAX"]

HEADERS_MAX = 64
HEAD_BYTES_MAX = 32 * 1024
TARGET_BYTES_MAX = 8 * 1024
_SLACK_BYTES = 1024 * 1024  # Frames of chunks, and what a client sends before it hears that it is too much.
_MALFORMED = Problem(400, "malformed", "this is no HTTP/1.1 request")


class HttpConnection(HttpToolsProtocol):
    """See the module.

    Args:
        settings: Bounds.
        connections_max: More are turned away.
        **given: What uvicorn gives.

    """

    def __init__(self, *, settings: HttpSettings, connections_max: int, **given: Any) -> None:
        super().__init__(**given)
        self._settings = settings
        self._connections_max = connections_max
        self._is_in_head = True
        self._message_bytes = 0
        self._began_s: float | None = None
        self._active_s = self.loop.time()
        self._stalled_s: float | None = None
        self._refusal = _MALFORMED
        self._extensions = {"rsm.abort": self._abort}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or turn it away."""
        super().connection_made(transport)
        if len(self.connections) > self._connections_max:
            self._refuse(
                Problem(
                    503, "too-many-connections", f"{self._connections_max} connections are open here: ask "
                    "another broker, or later", headers=retry_after(1)
                )
            )  # fmt: skip

    def data_received(self, data: bytes) -> None:
        """Take bytes; what goes beyond a bound is refused before it is kept."""
        if self.transport.is_closing():
            return
        self._active_s = self.loop.time()
        if self._began_s is None:
            self._began_s, self._message_bytes = self._active_s, 0
        self._message_bytes += len(data)
        super().data_received(data)
        if self._began_s is None or self.transport.is_closing():
            return
        if self._is_in_head:
            if self._message_bytes > HEAD_BYTES_MAX + 4096:
                self._refuse(_too_long("the head", HEAD_BYTES_MAX))
        elif self._message_bytes > self._settings.body_bytes_max + _SLACK_BYTES:
            self._refuse(Problem(413, "too-large", f"a request of more than {self._settings.body_bytes_max:,} bytes"))

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._is_in_head = True
        self._head_bytes = 0
        self.scope["extensions"] = self._extensions  # type: ignore[typeddict-item]

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        super().on_url(url)
        if len(self.url) > TARGET_BYTES_MAX:
            self._refusal = Problem(414, "too-long", f"a path and query of more than {TARGET_BYTES_MAX:,} bytes")
            raise ValueError(self._refusal.detail)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._head_bytes += len(name) + len(value)
        if len(self.headers) >= HEADERS_MAX:
            self._refusal = Problem(431, "too-many-headers", f"more than {HEADERS_MAX} headers")
            raise ValueError(self._refusal.detail)
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refusal = _too_long("the head", HEAD_BYTES_MAX)
            raise ValueError(self._refusal.detail)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self._is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a request; what follows is the next one."""
        super().on_message_complete()
        self._began_s = None
        self._is_in_head = True

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn's timer is not needed, see `sweep`."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self._active_s = self.loop.time()
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed, or went beyond a bound."""
        del msg
        self._refuse(self._refusal)

    def pause_writing(self) -> None:
        """Write no more: the other end takes too little."""
        self._stalled_s = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Write on."""
        self._stalled_s = None
        super().resume_writing()

    def sweep(self, now_s: float) -> None:
        """Look whether the other end takes its time.

        Args:
            now_s: The loop's time.

        """
        settings = self._settings
        if self.transport is None:
            return
        if self._stalled_s is not None and now_s - self._stalled_s > settings.write_s:
            self._abort()
            return
        silent_s = now_s - self._active_s
        if self.transport.is_closing():
            # What was written is not taken: it would be kept for ever.
            if silent_s > settings.idle_s:
                self.transport.abort()
            return
        if self._began_s is not None:
            allowed_s = settings.read_head_s if self._is_in_head else settings.read_body_s
            if now_s - self._began_s > allowed_s:
                what = "the head" if self._is_in_head else "all of a request"
                self._refuse(Problem(408, "too-slow", f"{what} has to come within {allowed_s:g} s"))
        elif (self.cycle is None or self.cycle.response_complete) and silent_s > settings.idle_s:
            if self.transport.get_write_buffer_size():
                self.transport.abort()
            else:
                self.transport.close()

    def leave(self) -> None:
        """Close, once what was written has gone."""
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        """Answer and close, unless an answer is on its way already."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            reply = problem.reply()
            head = [f"HTTP/1.1 {reply.status} {problem.title}\r\n".encode("ascii")]
            head += [b"%s: %s\r\n" % pair for pair in reply.headers]
            head.append(
                b"content-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
                % (reply.content_type, len(reply.body))
            )
            self.transport.write(b"".join(head) + reply.body)
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()

    def _abort(self) -> None:
        """Break off at once: the other end takes nothing any more."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        self.transport.abort()


def _too_long(what: str, limit: int) -> Problem:
    return Problem(431, "too-long", f"{what} is longer than {limit:,} bytes")

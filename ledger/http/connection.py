"""One connection: uvicorn's, with bounds on what comes before a request is whole.

    head        at most 64 headers and 32 KiB, within `read_head_s`      431, 414, 408
    body        all of it within `read_body_s`; received bytes bounded   408, 413
    idle        closed after `idle_s`; one that never asked, after `read_head_s`
    stalled     broken off when nothing was taken for `write_s`
    ahead       at most 16 requests wait behind the one that runs; nothing more is read until all are answered

Bounds in time are looked after by one sweep a second over all connections: not a timer a request. Whatever is refused,
is refused in its turn: an answer never stands where another request's should.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from ledger.http.api_settings import ApiSettings
from ledger.http.connection_slots import ConnectionSlot, ConnectionSlots
from ledger.http.problems import HttpProblem
from ledger.tls import certificate_names

AHEAD_MAX = 16
"""Requests that wait behind the one that runs; what came with them is kept as bytes, at most one read of the socket."""

HEADERS_MAX = 64
HEAD_BYTES_MAX = 32 * 1024
TARGET_BYTES_MAX = 8 * 1024
_HELD_BYTES_MAX = 512 * 1024  # One read is 256 KiB; encrypted, a record more.
_HEAD_END = b"\r\n\r\n"
_SLACK_BYTES = 1024 * 1024  # Frames of chunks, and what a client sends before it hears that it is too much.
_MALFORMED = HttpProblem(400, "malformed", "this is no HTTP/1.1 request")


class _Flow(FlowControl):
    """uvicorn's, that reads no further while requests wait, whoever asks it to."""

    is_ahead = False

    def resume_reading(self) -> None:
        if not self.is_ahead:
            super().resume_reading()


class HttpConnection(HttpToolsProtocol):
    """See the module.

    Args:
        settings: Bounds.
        seats: Where its place is given back.
        seat: Its place.
        **given: What uvicorn gives.

    """

    def __init__(self, *, settings: ApiSettings, seats: ConnectionSlots, seat: ConnectionSlot, **given: Any) -> None:
        super().__init__(**given)
        self._settings = settings
        self._seats = seats
        self._seat = seat
        self._is_in_head = True
        self._message_bytes = 0
        self._began_s: float | None = None
        self._active_s = self.loop.time()
        self._stalled_s: float | None = None
        self._refusal = _MALFORMED
        self._running: RequestResponseCycle | None = None
        # Came, and is not parsed yet: only while `AHEAD_MAX` requests wait.
        self._held = b""
        # Said when everything before it is answered; then the connection ends.
        self._last_word: HttpProblem | None = None
        self._extensions: dict[str, Any] = {"rsm.abort": self._abort, "rsm.answer": self._answer, "rsm.seat": seat}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the seat."""
        super().connection_made(transport)
        self.flow = self._flow = _Flow(transport)
        names = certificate_names(transport)
        if names:
            self._extensions["rsm.certificate"] = names
        self._seat.cut = transport.abort
        if not self._seat.is_taken:  # It was lost while the connection was made.
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that runs, which need not be the newest one; forget those that wait."""
        running, self._running = self._running, None
        if running is not None:
            running.disconnected = True
            running.message_event.set()
        self.pipeline.clear()
        self._held = b""
        self._seats.give_back(self._seat)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; what goes beyond a bound is refused before it is kept."""
        if self.transport.is_closing() or self._last_word is not None:
            return
        self._active_s = self.loop.time()
        if self._held or data.count(_HEAD_END) + len(self.pipeline) > AHEAD_MAX:
            self._held += data
            self._parse_held()
            if len(self._held) > _HELD_BYTES_MAX:
                self._refuse(HttpProblem(429, "too-many-ahead", "wait for answers before you send more requests"))
        else:
            self._parse(data)
        self._look_ahead()

    def _parse_held(self) -> None:
        """Parse on, a request at a time, until enough of them wait."""
        held, begin = self._held, 0
        while begin < len(held) and len(self.pipeline) < AHEAD_MAX:
            if self.transport.is_closing() or self._last_word is not None:
                begin = len(held)
                break
            found = held.find(_HEAD_END, begin)
            end = found + len(_HEAD_END) if found >= 0 else len(held)
            self._parse(held[begin:end])
            begin = end
        self._held = held[begin:]

    def _parse(self, data: bytes) -> None:
        if self._began_s is None:
            self._began_s, self._message_bytes = self._active_s, 0
        self._message_bytes += len(data)
        super().data_received(data)
        if self._began_s is None or self.transport.is_closing() or self._last_word is not None:
            return
        if self._is_in_head:
            if self._message_bytes > HEAD_BYTES_MAX + 4096:
                self._refuse(_too_long("the head", HEAD_BYTES_MAX))
        elif self._message_bytes > self._settings.body_bytes_max + _SLACK_BYTES:
            self._refuse(
                HttpProblem(413, "too-large", f"a request of more than {self._settings.body_bytes_max:,} bytes")
            )

    def _look_ahead(self) -> None:
        """Read on only when nothing waits."""
        self._flow.is_ahead = bool(self.pipeline or self._held) or self._last_word is not None
        if self._flow.is_ahead:
            self._flow.pause_reading()

    def on_message_begin(self) -> None:
        """Begin a request."""
        assert len(self.pipeline) <= AHEAD_MAX, "what is parsed is cut at each head's end"
        super().on_message_begin()
        self._is_in_head = True
        self._head_bytes = 0
        self.scope["extensions"] = self._extensions

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        super().on_url(url)
        if len(self.url) > TARGET_BYTES_MAX:
            self._refusal = HttpProblem(414, "too-long", f"a path and query of more than {TARGET_BYTES_MAX:,} bytes")
            raise ValueError(self._refusal.detail)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        self._head_bytes += len(name) + len(value)
        if len(self.headers) >= HEADERS_MAX:
            self._refusal = HttpProblem(431, "too-many-headers", f"more than {HEADERS_MAX} headers")
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

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Go on with the next request; uvicorn's timer is not needed, see `sweep`."""
        self.server_state.total_requests += 1
        self._running = None
        if self.transport.is_closing():
            return
        self._active_s = self.loop.time()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        if self._held and not self.pipeline:
            self._parse_held()
        self._look_ahead()
        if self._running is None and self._last_word is not None:
            self._say(self._last_word)
            return
        if self._flow.read_paused and not self._flow.is_ahead:
            if self._began_s is not None:
                self._began_s = self._active_s  # It could not go on while nothing was read.
            self._flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Refuse what cannot be parsed, or went beyond a bound."""
        del msg
        self._refuse(self._refusal)

    def pause_writing(self) -> None:
        """Write no more: the other end takes too little."""
        self._stalled_s = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Write again."""
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
        if self._began_s is not None and not self._flow.is_ahead:
            allowed_s = settings.read_head_s if self._is_in_head else settings.read_body_s
            if settings.read_body_bytes_per_s and not self._is_in_head:
                allowed_s += self._message_bytes / settings.read_body_bytes_per_s
            if now_s - self._began_s > allowed_s:
                what = "the head" if self._is_in_head else "all of a request"
                self._refuse(HttpProblem(408, "too-slow", f"{what} has to come within {allowed_s:g} s"))
        elif (self.cycle is None or self.cycle.response_complete) and silent_s > (
            settings.idle_s if self.cycle is not None else min(settings.read_head_s, settings.idle_s)
        ):
            if self.transport.get_write_buffer_size():
                self.transport.abort()
            else:
                self.transport.close()

    def leave(self) -> None:
        """Close, once what was written has gone."""
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, problem: HttpProblem) -> None:
        """Answer and close: at once, or when what came before is answered; unless an answer is on its way already."""
        if self._is_in_head and self._running is not None:
            self._answer_last(problem)
        elif not self._is_in_head and self.pipeline:
            self.pipeline.popleft()
            self._answer_last(problem)
        else:
            running = self._running
            if running is not None:
                running.disconnected = True
                running.message_event.set()
            if running is None or not running.response_started:
                self._say(problem)
            else:
                self.transport.close()

    def _answer_last(self, problem: HttpProblem) -> None:
        self._last_word = problem
        self._held = b""
        self._began_s = None
        self._look_ahead()

    def _say(self, problem: HttpProblem) -> None:
        self.transport.write(last_answer(problem))
        self.transport.close()

    async def _answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Write the whole answer of the request that runs at once: uvicorn's `send` takes it in two, and dearer.

        Args:
            status: Of HTTP.
            headers: Names in lower case, the length of the body among them.
            body: All of it.

        """
        cycle = self._running
        if cycle is None or cycle.disconnected:
            return
        if self._flow.write_paused:
            await self._flow.drain()
            if cycle is not self._running or cycle.disconnected:
                return
        if HEADER_VALUE_RE.search(b" ".join([value for _, value in headers])):
            raise ValueError("a header of the answer holds a control character")
        whole = [*self.server_state.default_headers, *headers]
        is_last = (b"connection", b"close") in whole
        if not cycle.keep_alive and not is_last:
            is_last = True
            whole.append((b"connection", b"close"))
        lines = [STATUS_LINE[status], *[b"%s: %s\r\n" % pair for pair in whole], b"\r\n"]
        if cycle.scope["method"] != "HEAD":
            lines.append(body)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self.transport.write(b"".join(lines))
        cycle.message_event.set()
        if is_last:
            self.transport.close()
        cycle.on_response()

    def _abort(self) -> None:
        """Break off at once: the other end takes nothing any more."""
        if self._running is not None:
            self._running.disconnected = True
        self.transport.abort()


def last_answer(problem: HttpProblem) -> bytes:
    """Return the whole of an answer after which the connection ends."""
    reply = problem.reply()
    head = [f"HTTP/1.1 {reply.status} {problem.title}\r\n".encode("ascii")]
    head += [b"%s: %s\r\n" % pair for pair in reply.headers]
    head.append(
        b"content-type: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (reply.content_type, len(reply.body))
    )
    return b"".join(head) + reply.body


def _too_long(what: str, limit: int) -> HttpProblem:
    return HttpProblem(431, "too-long", f"{what} is longer than {limit:,} bytes")

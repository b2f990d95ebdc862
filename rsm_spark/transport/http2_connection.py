"""A connection of gRPC over HTTP/2, its server's end: reads once for all calls, writes once for all answers.

From accept on it is a stranger's: it has ten seconds for a call that the guard lets in. Who is silent is asked for a
sign of life. What it holds of messages counts in the port's pot.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Final, Protocol, cast

import grpc

from ledger.frame_pot import FramePot, FrameShare
from ledger.http.connection_slots import ConnectionSlot
from ledger.tls import certificate_names
from rsm_spark.transport.http2_call import Http2Call
from rsm_spark.transport.http2_heads import RpcHead
from rsm_spark.transport.http2_session import (
    Http2Error,
    Http2Session,
    RpcEvent,
    RpcHalfClosed,
    RpcMessage,
    RpcOpened,
    RpcRefused,
    RpcReset,
)
from rsm_spark.transport.served_call import CallAbortedError

_LOGGER = logging.getLogger(__name__)

STRANGER_S: Final = 10.0
SILENCE_S: Final = 20.0
"""After it a caller is asked for a sign of life."""
ANSWER_S: Final = 10.0
"""In which it gives one."""
_BACKLOG_BYTES_MAX: Final = 1024 * 1024
"""Of the socket's queue: a burst of messages, and frames that ask for no window."""
UNSENT_BYTES_MAX: Final = 64 * 1024
"""Of a call: who writes waits above it."""
_UNSENT_OF_ALL_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of all calls of a connection: no further one begins above it."""
_BUFFER: Final = memoryview(bytearray(32 * 1024))
"""Bytes read of a connection before others have a turn; of all, as it is empty again when they have it."""
_WRITE_HIGH_BYTES: Final = 256 * 1024
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class Http2Owner(Protocol):
    """Part of the port that a connection needs."""

    message_bytes_max: int

    def opened(self, connection: Http2Connection) -> None:
        """Take note of a connection."""
        ...

    def closed(self, connection: Http2Connection) -> None:
        """Take note of its end."""
        ...

    def handler_of(self, head: RpcHead, peer: str) -> Any:
        """Return gRPC's handler of a call; one that refuses if there is none."""
        ...

    def is_known(self, call: Http2Call) -> bool:
        """Return whether somebody calls who is known here."""
        ...

    def enter(self, call: Http2Call) -> None:
        """Tell the guard who calls, within the task of a call."""
        ...


class Http2Connection(asyncio.BufferedProtocol):
    """See the module.

    Args:
        slot: Its place at the port.
        pot: For what it holds.
        owner: The port.

    Attributes:
        slot: The same.
        calls: By their numbers.

    """

    def __init__(self, slot: ConnectionSlot, pot: FramePot, owner: Http2Owner) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._owner = owner
        self._session = Http2Session(message_bytes_max=owner.message_bytes_max)
        self._share = FrameShare(pot, slot.address, self.cut)
        self._peer = ""
        self._came_s = self._heard_s = self._loop.time()
        self._asked_s = 0.0  # When it was asked for a sign of life; 0 = it was not.
        self._is_flushing = False
        self._is_leaving = False
        # Who waits until less of its call is unsent.
        self._drains: dict[int, asyncio.Future[None]] = {}
        # Calls that are whole, and begin when less is unsent.
        self._delayed: dict[int, Http2Call] = {}
        self.slot = slot
        self.calls: dict[int, Http2Call] = {}

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        found: Any = transport.get_extra_info("socket")
        if found is not None and found.family in {socket.AF_INET, socket.AF_INET6}:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(_WRITE_HIGH_BYTES)
        name = transport.get_extra_info("peername")
        if name:
            self._peer = f"ipv6:[{name[0]}]:{name[1]}" if ":" in name[0] else f"ipv4:{name[0]}:{name[1]}"
        self.slot.cut = self.cut
        self._owner.opened(self)
        if not self.slot.is_taken:  # It was given to somebody else meanwhile.
            self.cut()
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - one turn's bytes
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._receive(bytes(_BUFFER[:nbytes]))
        if nbytes == len(_BUFFER) and not transport.is_closing():
            transport.pause_reading()  # Others have their turn before the next piece.
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _receive(self, data: bytes) -> None:
        self._heard_s, self._asked_s = self._loop.time(), 0.0
        try:
            for event in self._session.receive(data):
                self._on_event(event)
        except Http2Error as error:
            self._session.go_away(error.code, str(error))
            self._flush()
            self._close()
            return
        self._share.set(self._session.held_bytes, is_new_frame=not self._share.byte_count)
        self._wake_writers()
        self._soon()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a caller that left, however
        self._transport = None
        self._share.set(0, is_new_frame=True)
        for call in list(self.calls.values()):
            call.cut()
        for drained in self._drains.values():
            drained.cancel()
        self._delayed.clear()
        self._owner.closed(self)
        # What refers back to the connection is let go: with TLS it weighs a quarter of a MiB.
        self.slot.cut = self._share.cut = _nothing

    def pause_writing(self) -> None:
        self._session.is_paused = True

    def resume_writing(self) -> None:
        self._session.is_paused = False
        self._session.pump()
        self._wake_writers()
        self._soon()

    # ---- events

    def _on_event(self, event: RpcEvent) -> None:
        if type(event) is RpcOpened:
            self._open(event.stream_id, event.head)
            return
        call = self.calls.get(event.stream_id)
        if call is None:
            return
        if type(event) is RpcMessage:
            call.came(event.text)
        elif type(event) is RpcHalfClosed:
            call.half_close()
            if not event.is_whole:
                self._end(event.stream_id, call, grpc.StatusCode.INTERNAL, "the call ends within a message")
            elif call.task is None:
                self._begin(event.stream_id, call)
        elif type(event) is RpcReset:
            self._give_up(event.stream_id, call)
        elif type(event) is RpcRefused:
            self._end(event.stream_id, call, _CODES[event.status], event.why)

    def _open(self, stream_id: int, head: RpcHead) -> None:
        call = self.calls[stream_id] = Http2Call(self, stream_id, head, self._owner.handler_of(head, self._peer))
        if head.timeout_s is not None:
            call.timer = self._loop.call_later(head.timeout_s, self._on_late, stream_id, call)
        is_known = self._owner.is_known(call)
        self._session.is_known = self._session.is_known or is_known
        if self._is_leaving:
            self._end(stream_id, call, grpc.StatusCode.UNAVAILABLE, "this replica stops")
        elif call.handler.request_streaming or not is_known:
            self._begin(stream_id, call)  # A stranger is told so before it has sent anything.

    def _begin(self, stream_id: int, call: Http2Call) -> None:
        is_unary = not call.handler.request_streaming
        if is_unary and not call.is_whole:
            if not self._owner.is_known(call):
                call.came(b"")  # The guard refuses it, whatever it was to be.
            else:
                self._end(stream_id, call, grpc.StatusCode.INTERNAL, "a call with one message")
                return
        if is_unary and self._session.unsent_bytes > _UNSENT_OF_ALL_BYTES_MAX:
            self._delayed[stream_id] = call
            return
        call.task = self._loop.create_task(self._serve(stream_id, call))

    async def _serve(self, stream_id: int, call: Http2Call) -> None:
        try:
            self._owner.enter(call)
            await call.serve()
        except CallAbortedError:
            call.aborted()
        except asyncio.CancelledError:
            if not call.is_over:
                call.finish(grpc.StatusCode.UNAVAILABLE, "this replica stops")
            raise
        except Exception:
            if not call.is_over:  # Else the caller has left while it was answered.
                _LOGGER.exception("a call failed", extra={"method": call.head.path, "peer": self._peer})
                call.finish(grpc.StatusCode.UNKNOWN, "the call failed at the replica: its log says why")
        finally:
            self._done(stream_id, call)

    def _done(self, stream_id: int, call: Http2Call) -> None:
        self._session.done()
        if call.timer is not None:
            call.timer.cancel()
        if self.calls.get(stream_id) is call:
            del self.calls[stream_id]
        if self._is_leaving and not self.calls and self._session.is_idle:
            self._flush()
            self._close()

    def _end(self, stream_id: int, call: Http2Call, code: grpc.StatusCode, details: str) -> None:
        """End a call otherwise than its handler would."""
        call.finish(code, details)
        self._give_up(stream_id, call)

    def _give_up(self, stream_id: int, call: Http2Call) -> None:
        call.cut()
        self._delayed.pop(stream_id, None)
        drained = self._drains.pop(stream_id, None)
        if drained is not None:
            drained.cancel()
        if call.task is None:
            self._done(stream_id, call)

    def _on_late(self, stream_id: int, call: Http2Call) -> None:
        self._end(stream_id, call, grpc.StatusCode.DEADLINE_EXCEEDED, "the time that the caller waits is over")

    # ---- what calls need

    def peer(self) -> str:
        """See `CallLink`."""
        return self._peer

    def names(self) -> tuple[str, ...]:
        """See `CallLink`."""
        return () if self._transport is None else certificate_names(self._transport)

    def taken(self, stream_id: int, text: bytes) -> None:
        """See `CallLink`."""
        self._session.taken(stream_id, text)
        self._soon()

    def drained(self, stream_id: int) -> asyncio.Future[None] | None:
        """See `CallLink`."""
        if self._session.unsent_of(stream_id) <= UNSENT_BYTES_MAX:
            return None
        return self._drains.setdefault(stream_id, self._loop.create_future())

    def send(self, stream_id: int, text: bytes) -> None:
        """See `CallLink`."""
        self._session.send(stream_id, text)
        self._soon()

    def answer(self, stream_id: int, text: bytes, tail: bytes) -> None:
        """See `CallLink`."""
        self._session.answer(stream_id, text, tail)
        self._soon()

    def finish(self, stream_id: int, tail: bytes) -> None:
        """See `CallLink`."""
        self._session.finish(stream_id, tail)
        self._soon()

    # ---- writing

    def _soon(self) -> None:
        """Write what is to be sent, with whatever else comes up in this turn of the event loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        transport = self._transport
        if transport is None:
            return
        session = self._session
        session.pump()
        text = session.take()
        if text:
            transport.write(text)
        if self._drains:
            self._wake_writers()
        if session.has_more:
            self._soon()
        self._share.set(session.held_bytes, is_new_frame=not self._share.byte_count)
        if session.is_paused and transport.get_write_buffer_size() > _BACKLOG_BYTES_MAX:
            self.cut()  # It asks for signs of life without end, and takes none.

    def _wake_writers(self) -> None:
        while self._delayed and self._session.unsent_bytes <= _UNSENT_OF_ALL_BYTES_MAX:
            stream_id, call = next(iter(self._delayed.items()))
            del self._delayed[stream_id]
            call.task = self._loop.create_task(self._serve(stream_id, call))
        for stream_id in [one for one in self._drains if self._session.unsent_of(one) <= UNSENT_BYTES_MAX]:
            drained = self._drains.pop(stream_id)
            if not drained.done():
                drained.set_result(None)

    # ---- its end

    def leave(self) -> None:
        """Take no more calls; close when those that run are answered."""
        self._is_leaving = True
        self._session.go_away()
        self._flush()
        if not self.calls and self._session.is_idle:
            self._close()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def look(self, now_s: float) -> None:
        """Cut who is late; called once a second."""
        self._session.look()
        if not self._session.is_known:
            if now_s - self._came_s > STRANGER_S:
                self.cut()
        elif self._asked_s:
            if now_s - self._asked_s > ANSWER_S:
                self.cut()
        elif now_s - self._heard_s > SILENCE_S:
            self._asked_s = now_s
            self._session.ping()
            self._flush()
        if self._is_leaving and self._session.is_idle and not self.calls:
            self._close()

    def awake(self, paused_s: float) -> None:
        """Take note that this process stood still: what was said meanwhile is not read yet."""
        self._heard_s += paused_s
        self._came_s += paused_s
        if self._asked_s:
            self._asked_s += paused_s


def _nothing() -> None:
    """Nothing is left to cut."""

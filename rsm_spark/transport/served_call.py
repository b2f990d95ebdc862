"""The replica's end of a call over the framed port: what handlers of gRPC methods use, `read`, `write`, `abort`.

From accept on a connection is a stranger's: it has ten seconds for a hello of 4 KiB, and no message of it is taken
before the guard has let its caller in.

* `CallAbortedError(RsmError)`   a handler has ended its call; never leaves the server
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NoReturn, Protocol

import grpc

from ledger.frame_pot import FramePot, FrameShare
from ledger.http.connection_slots import ConnectionSlot
from ledger.tls import certificate_names
from rsm_spark.errors import RsmError
from rsm_spark.transport.call_connection import CallConnection
from rsm_spark.transport.call_frames import (
    VERSION,
    CallEnd,
    CallHello,
    CallWelcome,
    FrameError,
    FrameKind,
    FrameTooLongError,
    decode_hello,
    encode_end,
    encode_welcome,
)
from rsm_spark.transport.security import MESSAGE_BYTES_MAX

STRANGER_S: Final = 10.0
SILENCE_S: Final = 30.0
_FRAME_S: Final = 60.0
"""Time for one frame to come: 8 MiB at one Mbit/s."""
_STUCK_S: Final = 120.0
"""Time for which what came may wait to be taken, while nothing tells whether the caller is still there."""
_LINGER_S: Final = 10.0
_BEATS_MAX: Final = 1_000
"""Between two looks, a second."""
_WRITE_HIGH_BYTES: Final = 256 * 1024


class CallAbortedError(RsmError):
    """A handler has ended its call; never leaves the server."""


class CallOwner(Protocol):
    """Part of the port that a call needs."""

    def opened(self, call: ServedCall) -> None:
        """Take note of a connection; behind TLS it is one when hands are shaken."""
        ...

    def begin(self, call: ServedCall, hello: CallHello) -> asyncio.Task[None]:
        """Serve the call."""
        ...

    def closed(self, call: ServedCall) -> None:
        """Take note of the connection's end."""
        ...


class ServedCall(CallConnection):
    """See the module; what gRPC calls a context.

    Args:
        slot: Its place at the port.
        pot: For frames that are not whole.
        owner: The port.

    Attributes:
        slot: The same.

    """

    def __init__(self, slot: ConnectionSlot, pot: FramePot, owner: CallOwner) -> None:
        super().__init__(is_server=True)
        self.slot = slot
        self._share = FrameShare(pot, slot.address, self.cut)
        self._owner = owner
        self._task: asyncio.Task[None] | None = None
        self._came_s = self.heard_s
        # Of the frame that is not whole: when it began (0 = there is none), and how many were whole before.
        self._frame_began_s = 0.0
        self._frame_number = 0
        self._beats_seen = 0
        self._ended_s = 0.0
        self._is_welcome = False
        self._status: tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]] = (grpc.StatusCode.OK, "", ())
        self._peer = ""

    # ---- as gRPC has it

    def peer(self) -> str:
        """Return the name of the other end."""
        return self._peer

    def names(self) -> tuple[str, ...]:
        """Return the names in the caller's certificate."""
        return () if self._transport is None else certificate_names(self._transport)

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: tuple[tuple[str, str], ...] = ()
    ) -> NoReturn:
        """End the call with this status; raises, so that nothing of the handler follows."""
        self._status = (code, details, tuple(trailing_metadata))
        raise CallAbortedError(details)

    # ---- the call

    @property
    def is_begun(self) -> bool:
        """True once it has said what it wants."""
        return self._task is not None

    def welcome(self) -> None:
        """Take messages from now on."""
        if not self._is_welcome:
            self._is_welcome = True
            self._reader.let_in()
            self._send(encode_welcome(CallWelcome(VERSION, MESSAGE_BYTES_MAX)))

    def aborted(self) -> None:
        """End the call as its handler has said."""
        self.finish(*self._status)

    def finish(self, code: grpc.StatusCode, details: str = "", metadata: tuple[tuple[str, str], ...] = ()) -> None:
        """Say how the call has ended, and close."""
        if self.is_over or self._transport is None:
            return
        self.is_over = True
        self._ended_s = self._loop.time()
        self._send(encode_end(CallEnd(code.value[0], details, metadata)))
        self._transport.close()

    def cut(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def look(self, now_s: float) -> None:
        """Give a sign of life, and cut who gives none; called once a second."""
        if self.is_over:
            if self._ended_s and now_s - self._ended_s > _LINGER_S:
                self.cut()
            return
        if not self._is_welcome:
            if now_s - self._came_s > STRANGER_S:
                self.finish(grpc.StatusCode.DEADLINE_EXCEEDED, f"no call came within {STRANGER_S:g} s")
            return
        self._beat(now_s)
        beats, self._beats_seen = self.beat_count - self._beats_seen, self.beat_count
        if beats > _BEATS_MAX or self._is_late(now_s):
            self.cut()

    def _is_late(self, now_s: float) -> bool:
        if self._frame_began_s and now_s - self._frame_began_s > _FRAME_S:
            return True
        if self.waits_since_s:
            return now_s - self.waits_since_s > _STUCK_S
        return now_s - self.heard_s > SILENCE_S

    def awake(self, paused_s: float) -> None:
        """Take note that this process stood still: what was said meanwhile is not read yet."""
        self.heard_s += paused_s
        self._came_s += paused_s
        if self._frame_began_s:
            self._frame_began_s += paused_s
        if self.waits_since_s:
            self.waits_since_s += paused_s

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self._transport is not None
        self._transport.set_write_buffer_limits(_WRITE_HIGH_BYTES)
        self._peer = _peer_of(transport.get_extra_info("peername"))
        self.slot.cut = self.cut  # Until hands are shaken, it is the acceptor's to end.
        self._owner.opened(self)
        if not self.slot.is_taken:  # It was given to somebody else meanwhile.
            self.cut()

    def _on_frame(self, kind: FrameKind, content: bytes) -> None:
        if kind is FrameKind.END:
            self._has_ended = True
            self._wake(self._message_came)
            return
        hello = decode_hello(content)
        if hello.version is None:
            self.finish(
                grpc.StatusCode.UNIMPLEMENTED,
                f"this replica speaks version {VERSION} of the framed protocol, the caller {hello.lowest} to "
                f"{hello.highest}: call over gRPC",
            )
            return
        self._task = self._owner.begin(self, hello)

    def _on_fed(self) -> None:
        """Account for a frame that is not whole; a stranger's has a hello's length at most."""
        held = self._reader.held_bytes
        if not self._is_welcome or not (held or self._frame_began_s):
            return
        is_new = self._reader.frame_count != self._frame_number or not self._frame_began_s
        self._frame_number = self._reader.frame_count
        if not held:
            self._frame_began_s = 0.0
        elif is_new:
            self._frame_began_s = self.heard_s
        self._share.set(held, is_new_frame=is_new)

    def _on_broken(self, error: FrameError) -> None:
        is_long = isinstance(error, FrameTooLongError)
        self.finish(grpc.StatusCode.RESOURCE_EXHAUSTED if is_long else grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if self._task is not None:
            self._task.cancel()

    def _on_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - a caller that left, however
        self._share.set(0, is_new_frame=True)
        if self._task is not None:
            self._task.cancel()
        self._owner.closed(self)
        # What refers back to the connection is let go: with TLS it weighs a quarter of a MiB.
        self.slot.cut = self._share.cut = _nothing
        self._inbox.clear()
        self._reader.clear()


def _peer_of(name: Any) -> str:
    """Return what gRPC would call the other end of a connection."""
    if not name:
        return ""
    host, port = name[0], name[1]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def _nothing() -> None:
    """Nothing is left to cut."""

"""The caller's end of a call over the framed port: `read`, `write`, `code`, `details`, `cancel`, as gRPC's calls have.

A call ends with a status of gRPC's and its words, so that what it means is decided in one place for both.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc
import grpc.aio

from rsm_spark.transport.call_connection import BEAT_S, CallConnection
from rsm_spark.transport.call_frames import (
    CallEnd,
    CallHello,
    FrameError,
    FrameKind,
    decode_end,
    decode_welcome,
    encode_end,
    encode_hello,
)
from rsm_spark.transport.security import MESSAGE_BYTES_MAX

SILENCE_S: Final = 15.0
_LATE_S: Final = 2.0

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class FramedCall(CallConnection):
    """See the module.

    Args:
        hello: What is said first.

    Attributes:
        is_greeted: The other end speaks this protocol: it has welcomed the call, or refused it.
        is_welcome: It has welcomed it.

    """

    def __init__(self, hello: CallHello) -> None:
        super().__init__(is_server=False)
        self._hello = encode_hello(hello)
        self._end: CallEnd | None = None
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._is_done_writing = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._looked_s = self.heard_s
        self._looking: asyncio.TimerHandle | None = None
        self.is_greeted = False
        self.is_welcome = False

    # ---- as gRPC has it

    async def greeted(self) -> None:
        """Wait for the replica's first word, or the end of the connection."""
        await self._greeted

    async def read(self) -> Any:
        """Return the next message; `grpc.aio.EOF` when the call has ended as it should.

        Raises:
            AioRpcError: It ended otherwise.

        """
        text = await super().read()
        if text is grpc.aio.EOF and await self.code() is not grpc.StatusCode.OK:
            raise self.failure()
        return text

    async def write(self, text: bytes) -> None:
        """Send a message; waits while the replica takes too little.

        Raises:
            AioRpcError: The message is too long, or the call has ended otherwise than it should.
            InvalidStateError: The call has ended as it should, or nothing was to follow.

        """
        if len(text) > MESSAGE_BYTES_MAX:
            details = f"a message of {len(text)} bytes: {MESSAGE_BYTES_MAX} are allowed"
            self._finish(CallEnd(grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], details))
            raise self.failure()
        if self._end is not None and self._end.status:
            raise self.failure()
        if self._is_done_writing:
            raise asyncio.InvalidStateError("nothing was to follow")
        await super().write(text)

    async def done_writing(self) -> None:
        """Say that nothing follows."""
        if not self.is_over and not self._is_done_writing:
            self._is_done_writing = True
            self._send(encode_end(CallEnd()))

    async def code(self) -> grpc.StatusCode:
        """Wait for the end of the call; return its status."""
        await self._ended
        assert self._end is not None
        return _CODES.get(self._end.status, grpc.StatusCode.UNKNOWN)

    async def details(self) -> str:
        """Wait for the end of the call; return what was said about it."""
        await self._ended
        assert self._end is not None
        return self._end.details

    def cancel(self) -> None:
        """Break the call off."""
        self._finish(CallEnd(grpc.StatusCode.CANCELLED.value[0], "the call was broken off"))

    def failure(self) -> grpc.aio.AioRpcError:
        assert self._end is not None
        code = _CODES.get(self._end.status, grpc.StatusCode.UNKNOWN)
        nothing = grpc.aio.Metadata()
        return grpc.aio.AioRpcError(code, nothing, grpc.aio.Metadata(*self._end.metadata), details=self._end.details)

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._send(self._hello)
        self._look()

    def _look(self) -> None:
        """Give signs of life, and notice that the replica gives none."""
        now_s = self._loop.time()
        if now_s - self._looked_s > BEAT_S / 2 + _LATE_S:
            self.heard_s = now_s  # This process stood still: what was said meanwhile is not read yet.
        self._looked_s = now_s
        if self.is_welcome and not self.waits_since_s and now_s - self.heard_s > SILENCE_S:
            self._lose(f"the replica said nothing for {SILENCE_S:g} s; it may be paused or cut off")
            return
        if self.is_welcome:
            self._beat(now_s)
        self._looking = self._loop.call_later(BEAT_S / 2, self._look)

    def _on_frame(self, kind: FrameKind, content: bytes) -> None:
        if kind is FrameKind.WELCOME:
            decode_welcome(content)
            self.is_greeted = self.is_welcome = True
            self._wake(self._greeted)
        else:
            end = decode_end(content)
            self.is_greeted = True
            self._finish(end)

    def _on_broken(self, error: FrameError) -> None:
        self._lose(str(error))

    def _on_lost(self, error: Exception | None) -> None:
        self._lose(f"the connection was lost: {error}" if error is not None else "the connection was closed")

    def _lose(self, why: str) -> None:
        self._finish(CallEnd(grpc.StatusCode.UNAVAILABLE.value[0], why))

    def _finish(self, end: CallEnd) -> None:
        """Take note how the call ended; the first one to say counts."""
        if self._end is not None:
            return
        self._end = end
        self.is_over = self._has_ended = True
        if self._looking is not None:
            self._looking.cancel()
        if self._transport is not None:
            self._transport.abort()
        for waiter in (self._greeted, self._ended):
            self._wake(waiter)
        self._wake_all()

"""One end of a call over the framed port: messages both ways, signs of life, flow control. The ends differ by class.

* What came and was not read yet is bounded: then nothing more is read from the socket.
* Who has said nothing for some seconds says `BEAT`, however slowly the other end takes what it is sent.
"""

from __future__ import annotations

import abc
import asyncio
import socket
from collections import deque
from typing import Any, Final, cast

import grpc
import grpc.aio

from rsm_spark.transport.call_frames import BEAT, CallFrameReader, FrameError, FrameKind, encode_frame
from rsm_spark.transport.security import MESSAGE_BYTES_MAX

BEAT_S: Final = 5.0
_INBOX_BYTES_MAX: Final = 256 * 1024
_INBOX_COUNT_MAX: Final = 64


class CallConnection(asyncio.Protocol, abc.ABC):
    """See the module.

    Args:
        is_server: It reads what callers send.

    Attributes:
        heard_s: When something came last, on the loop's clock.
        said_s: When something was sent last.
        waits_since_s: Since when nothing is read from the socket, since nobody takes what came; 0 = it is read.
        beat_count: Signs of life that came.
        is_over: No message is sent any more.

    """

    def __init__(self, *, is_server: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = CallFrameReader(is_server=is_server, message_bytes_max=MESSAGE_BYTES_MAX)
        self._inbox: deque[bytes] = deque()
        self._inbox_bytes = 0
        # The other end sends no further message.
        self._has_ended = False
        self._message_came: asyncio.Future[None] | None = None
        # Not done while the transport has too much to send.
        self._drained: asyncio.Future[None] | None = None
        self.heard_s = self.said_s = self._loop.time()
        self.waits_since_s = 0.0
        self.beat_count = 0
        self.is_over = False

    # ---- what the ends do

    @abc.abstractmethod
    def _on_frame(self, kind: FrameKind, content: bytes) -> None:
        """Take a frame that is no message and no beat; raises `FrameError`."""

    @abc.abstractmethod
    def _on_broken(self, error: FrameError) -> None:
        """Deal with what is no frame, or may not come now."""

    @abc.abstractmethod
    def _on_lost(self, error: Exception | None) -> None:
        """Deal with the end of the connection."""

    def _on_fed(self) -> None:
        """Take note that something was read."""

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by class
        found: Any = transport.get_extra_info("socket")
        if found is not None and found.family in {socket.AF_INET, socket.AF_INET6}:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.is_over = True
        self._on_lost(exc)
        self._wake_all()

    def data_received(self, data: bytes) -> None:
        if self.is_over:
            return
        self.heard_s = self._loop.time()
        try:
            frames = self._reader.feed(data)
            for kind, content in frames:
                if kind is FrameKind.MESSAGE:
                    self._inbox.append(content)
                    self._inbox_bytes += len(content)
                elif kind is FrameKind.BEAT:
                    self.beat_count += 1
                else:
                    self._on_frame(kind, content)
            damage = self._reader.damage
        except FrameError as error:
            damage = error
        if damage is not None:
            self._on_broken(damage)
            return
        self._on_fed()
        if self._inbox:
            self._wake(self._message_came)
            is_full = self._inbox_bytes > _INBOX_BYTES_MAX or len(self._inbox) > _INBOX_COUNT_MAX
            transport = self._transport
            if is_full and not self.waits_since_s and transport is not None and not transport.is_closing():
                self.waits_since_s = self.heard_s
                transport.pause_reading()

    def pause_writing(self) -> None:
        self._drained = self._loop.create_future()

    def resume_writing(self) -> None:
        drained, self._drained = self._drained, None
        self._wake(drained)

    # ---- messages

    async def read(self) -> Any:
        """Return the next message; `grpc.aio.EOF` if none will come."""
        while not self._inbox:
            if self._has_ended or self._transport is None:
                return grpc.aio.EOF
            self._message_came = self._loop.create_future()
            await self._message_came
        text = self._inbox.popleft()
        self._inbox_bytes -= len(text)
        if self.waits_since_s and self._inbox_bytes <= _INBOX_BYTES_MAX // 2:
            self.waits_since_s = 0.0
            self.heard_s = self._loop.time()
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return text

    async def write(self, text: bytes) -> None:
        """Send a message; waits while the other end takes too little.

        Raises:
            InvalidStateError: The call is over.

        """
        if self.is_over or self._transport is None:
            raise asyncio.InvalidStateError("the call is over")
        self._send(encode_frame(FrameKind.MESSAGE, text))
        if self._drained is not None:
            await self._drained

    def _send(self, frame: bytes) -> None:
        if self._transport is not None:
            self.said_s = self._loop.time()
            self._transport.write(frame)

    def _beat(self, now_s: float) -> None:
        """Give a sign of life, if it is time."""
        if now_s - self.said_s >= BEAT_S and self._drained is None:
            self._send(BEAT)

    def _wake_all(self) -> None:
        self._wake(self._message_came)
        self._wake(self._drained)

    @staticmethod
    def _wake(waiter: asyncio.Future[None] | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

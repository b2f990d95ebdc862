"""A caller of a framed port, byte by byte: for tests of what it does with whatever it is sent."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

from rsm_spark.core.operation import Message
from rsm_spark.transport.call_frames import (
    CallEnd,
    CallFrameReader,
    CallHello,
    FrameKind,
    decode_end,
    encode_frame,
    encode_hello,
)
from rsm_spark.transport.codec import EXCHANGE_METHOD, ReceivedAnswers
from rsm_spark.transport.packed_codec import PACKED_EXCHANGE
from rsm_spark.transport.security import MESSAGE_BYTES_MAX


class FramedCaller:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.frames = CallFrameReader(is_server=False, message_bytes_max=MESSAGE_BYTES_MAX)
        self._got: list[tuple[FrameKind, bytes]] = []

    @classmethod
    async def connect(cls, address: str, tls: ssl.SSLContext | None = None) -> Self:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), ssl=tls))

    async def say(self, *texts: bytes) -> None:
        self.writer.write(b"".join(texts))
        await self.writer.drain()

    async def hear(self) -> tuple[FrameKind, bytes] | None:
        """Return the next frame that is no sign of life; None = the connection has ended."""
        while True:
            if not self._got:
                try:
                    data = await self.reader.read(1 << 16)
                except OSError:
                    return None
                if not data:
                    return None
                self._got += self.frames.feed(data)
            while self._got:
                kind, content = self._got.pop(0)
                if kind is not FrameKind.BEAT:
                    return kind, content

    async def end(self) -> CallEnd | None:
        """Return how the call ends, whatever comes before; None = without a word."""
        while (heard := await self.hear()) is not None:
            if heard[0] is FrameKind.END:
                return decode_end(heard[1])
        return None

    async def begin(self, method: str = EXCHANGE_METHOD, token: bytes = b"") -> None:
        await self.say(encode_hello(CallHello(method, token)))
        heard = await self.hear()
        assert heard is not None
        assert heard[0] is FrameKind.WELCOME, decode_end(heard[1])

    async def ask(self, message: Message, log: str = "orders") -> ReceivedAnswers:
        await self.say(requests(message, log))
        heard = await self.hear()
        assert heard is not None
        assert heard[0] is FrameKind.MESSAGE, decode_end(heard[1])
        (received,) = PACKED_EXCHANGE.decode_answer_batch(heard[1])
        return received


def requests(message: Message, log: str = "orders") -> bytes:
    text = PACKED_EXCHANGE.encode_requests(message, log, message.message_id)
    return encode_frame(FrameKind.MESSAGE, PACKED_EXCHANGE.join([text]))


@asynccontextmanager
async def calling(address: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[FramedCaller]:
    caller = await FramedCaller.connect(address, tls)
    try:
        yield caller
    finally:
        caller.writer.transport.abort()

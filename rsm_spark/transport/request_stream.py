"""The server's end of a stream of clients' messages: one message of the call for all that is answered together."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

import grpc.aio

from rsm_spark.core.commands import Answer
from rsm_spark.errors import RsmError
from rsm_spark.transport.codec import ANSWERS_BYTES_MAX, PROTOBUF_EXCHANGE, ExchangeCodec
from rsm_spark.transport.reach import Reach
from rsm_spark.transport.request_admission import RequestAdmission, status_code_of

STREAM_MESSAGES_MAX = 64
"""Messages of one stream that are in work or whose answers nobody has taken yet, of all the clients that share it; at
more the server reads no further, and flow control slows the clients down."""


class RequestStream:
    """One stream: `run` writes what is answered, a task reads and submits.

    Args:
        context: gRPC's, or of the framed port.
        intake: Of the replica.
        reach: See `RequestAdmission.submit`.
        owner: The same.
        codec: How the messages travel.

    """

    def __init__(
        self,
        context: Any,
        intake: RequestAdmission,
        reach: Reach | None = None,
        owner: str = "",
        codec: ExchangeCodec = PROTOBUF_EXCHANGE,
    ) -> None:
        self._context = context
        self._codec = codec
        self._reach = reach
        self._owner = owner
        self._intake = intake
        self._loop = asyncio.get_running_loop()
        self._answered: list[tuple[int, Sequence[Answer]]] = []
        self._in_work = 0
        self._unsent = 0  # Messages whose answers are being written.
        self._has_ended = False
        self._error: RsmError | None = None
        self._wake: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        self._reader: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve the stream to its end."""
        self._reader = self._loop.create_task(self._read())
        try:
            while True:
                if self._answered:
                    await self._write()
                elif self._has_ended and not self._in_work:
                    break
                else:
                    self._wake = self._loop.create_future()
                    await self._wake
            if self._error is not None:
                await self._context.abort(status_code_of(self._error), str(self._error))
        finally:
            self._reader.cancel()

    def drain(self) -> None:
        """Take nothing more in; end the stream when all that was taken is answered."""
        if self._reader is not None:
            self._reader.cancel()

    async def _write(self) -> None:
        """Send all that has been answered: one message, unless it is very large."""
        answered, self._answered = self._answered, []
        self._unsent = len(answered)
        leader_address, codec = self._intake.leader_address, self._codec
        texts: list[bytes] = []
        size = 0
        for message_id, answers in answered:
            for text in codec.encode_answers(message_id, answers, leader_address):
                if texts and size + len(text) > ANSWERS_BYTES_MAX:
                    await self._context.write(codec.join(texts))
                    texts, size = [], 0
                texts.append(text)
                size += len(text)
        await self._context.write(codec.join(texts))
        self._unsent = 0
        self._make_room()

    async def _read(self) -> None:
        try:
            while (text := await self._context.read()) is not grpc.aio.EOF:
                for received in self._codec.decode_request_batch(text):
                    while self._in_work + len(self._answered) + self._unsent >= STREAM_MESSAGES_MAX:
                        self._room = self._loop.create_future()
                        await self._room
                    future = self._intake.submit(received, self._reach, self._owner)
                    self._in_work += 1
                    future.add_done_callback(functools.partial(self._on_answered, received.message_id))
        except RsmError as error:
            self._error = error
        finally:
            self._has_ended = True
            self._wake_up()

    def _on_answered(self, message_id: int, future: asyncio.Future[Sequence[Answer]]) -> None:
        self._in_work -= 1
        if future.cancelled():
            self._make_room()
        else:
            self._answered.append((message_id, future.result()))
        self._wake_up()

    def _make_room(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

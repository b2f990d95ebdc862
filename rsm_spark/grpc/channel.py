"""The client's side of a replica's gRPC service: one channel, one stream of messages."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from rsm_spark.errors import ConnectionLostError
from rsm_spark.grpc.codec import (
    CALL_METHOD,
    EXCHANGE_METHOD,
    STATUS_METHOD,
    ReceivedAnswers,
    decode_answers,
    decode_status,
    encode_message,
    encode_status_request,
    join_answers,
)
from rsm_spark.grpc.security import Security, open_channel
from rsm_spark.store.core.operation import Message

__all__ = ["ReplicaChannel"]


class ReplicaChannel:
    """A connection to one replica.

    Args:
        address: "host:port".
        log: Name of the log meant.
        security: TLS and token; None = as the environment says.

    Raises:
        UsageError: A file of `security` cannot be used.

    """

    def __init__(self, address: str, log: str, *, security: Security | None = None) -> None:
        self.address = address
        self._log = log
        self._channel = open_channel(address, security if security is not None else Security.from_environment())
        self._stream: Any = None
        self._reason = ""

    async def __aenter__(self) -> Self:
        """Return the channel."""
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def close(self) -> None:
        """Break off."""
        if self._stream is not None:
            self._stream.cancel()
        await self._channel.close()

    def break_off(self, reason: str) -> None:
        """End the stream: who writes or reads gets a `ConnectionLostError`."""
        self._reason = reason
        if self._stream is not None:
            self._stream.cancel()

    async def write(self, message: Message) -> None:
        """Send a message on the stream, which the first one opens.

        Raises:
            ConnectionLostError: The replica is gone.

        """
        if self._stream is None:
            self._stream = self._channel.stream_stream(EXCHANGE_METHOD)()
        try:
            await self._stream.write(encode_message(message, self._log))
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise self._lost(error) from error  # an RPC that ended meanwhile is an invalid state
        except asyncio.CancelledError as error:
            self._check_broken_off(error)
            raise

    async def read(self) -> ReceivedAnswers:
        """Wait for the next answers on the stream, which must have been opened by a `write`.

        Raises:
            ConnectionLostError: The replica is gone, or does not speak this protocol.

        """
        pieces: list[ReceivedAnswers] = []
        while True:
            try:
                text = await self._stream.read()
            except grpc.aio.AioRpcError as error:
                raise self._lost(error) from error
            except asyncio.CancelledError as error:
                self._check_broken_off(error)
                raise
            if text is grpc.aio.EOF:
                raise self._lost(grpc.aio.UsageError("it ended the stream"))
            try:
                received = decode_answers(text)
            except ValueError as error:
                raise self._lost(error) from error
            if not received.more and not pieces:
                return received
            pieces.append(received)
            if not received.more:
                return join_answers(pieces)

    async def call(self, message: Message, timeout_s: float) -> ReceivedAnswers:
        """Send one message without a stream.

        Raises:
            ConnectionLostError: There was no answer.

        """
        text = encode_message(message, self._log)
        call: Any = self._channel.unary_unary(CALL_METHOD)
        try:
            return decode_answers(await call(text, timeout=timeout_s))
        except (grpc.aio.AioRpcError, ValueError) as error:
            raise self._lost(error) from error

    async def status(self, timeout_s: float) -> bytes:
        """Return the JSON that the replica says of itself.

        Raises:
            ConnectionLostError: There was no answer.

        """
        call: Any = self._channel.unary_unary(STATUS_METHOD)
        try:
            text: bytes = await call(encode_status_request(), timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._lost(error) from error
        return decode_status(text)

    def _check_broken_off(self, error: asyncio.CancelledError) -> None:
        # gRPC tells a cancelled stream by the error that also tells a cancelled task.
        task = asyncio.current_task()
        if self._reason and (task is None or not task.cancelling()):
            raise ConnectionLostError(f"{self.address}: broken off: {self._reason}") from error

    def _lost(self, error: Exception) -> ConnectionLostError:
        if isinstance(error, grpc.aio.AioRpcError):
            said = f"{error.code().name.lower()}: {error.details()}"
        else:
            said = str(error)
        return ConnectionLostError(f"{self.address}: replica of log {self._log}: {said}")

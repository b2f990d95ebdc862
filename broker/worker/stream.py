"""The worker's end of its stream to a broker, and downloads of code beside it.

* `CodeGoneError(RsmError)`   the broker knows no such archive, or another one by this name
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from broker.machine.worker_messages import CodePiece, FromBroker, FromWorker
from broker.wire.worker_codec import (
    DOWNLOAD_METHOD,
    WORK_METHOD,
    decode_code_piece,
    decode_from_broker,
    encode_code_request,
    encode_from_worker,
)
from rsm_spark.errors import AccessDeniedError, ConnectionLostError, InvalidCommandError, RsmError
from rsm_spark.transport.channel import DENIALS
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import StreamFactory

_GONE = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OUT_OF_RANGE)


class CodeGoneError(RsmError):
    """The broker knows no such archive, or another one by this name."""


class WorkerStream:
    """One stream to one broker; it is opened by the first message. Made anew for each attempt.

    Args:
        address: "host:port" of gRPC.
        security: TLS and token.
        framed: "host:port" of its framed port; "" = over gRPC.

    Raises:
        UsageError: A file of `security` cannot be used.

    """

    def __init__(self, address: str, security: Security, framed: str = "") -> None:
        self.address = address
        self._factory = StreamFactory(address, framed, security)
        self._stream: Any = None

    async def send(self, message: FromWorker) -> None:
        """Send a message; waits while the broker takes nothing.

        Raises:
            ConnectionLostError: The stream is over.

        """
        text = encode_from_worker(message)
        async with self._reaching():
            if self._stream is not None:
                await self._stream.write(text)
                return
            self._stream = await self._factory.open(WORK_METHOD)
            await self._stream.write(text)
            self._factory.reached()

    async def receive(self) -> FromBroker:
        """Return the next message of the broker.

        Raises:
            ConnectionLostError: The stream is over, or what came is no message.

        """
        async with self._reaching():
            text = await self._stream.read()
            if text is grpc.aio.EOF:
                code, details = await self._stream.code(), await self._stream.details()
                raise self._lost(code, details or "it ended the stream")
            return decode_from_broker(text)

    async def download(self, code: str, offset: int) -> AsyncGenerator[CodePiece, None]:
        """Yield the pieces of an archive from an offset on.

        Raises:
            CodeGoneError: There is no such archive, or it is shorter.
            ConnectionLostError: It broke off.

        """
        call: Any = None
        try:
            async with self._reaching():
                call = await self._factory.call(DOWNLOAD_METHOD, encode_code_request(code, offset))
                while (text := await call.read()) is not grpc.aio.EOF:
                    yield decode_code_piece(text)
                status = await call.code()
                if status is not grpc.StatusCode.OK:
                    raise self._lost(status, await call.details() or "")
        finally:
            if call is not None:
                call.cancel()

    async def finish(self) -> None:
        """Say that nothing follows: the broker reads what was sent, and ends the stream.

        Raises:
            ConnectionLostError: It was over before.

        """
        if self._stream is None:
            return
        async with self._reaching():
            await self._stream.done_writing()

    async def close(self) -> None:
        """Break off, and disconnect."""
        if self._stream is not None:
            self._stream.cancel()
        await self._factory.close()

    @asynccontextmanager
    async def _reaching(self) -> AsyncIterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise self._lost(error.code(), error.details() or "") from error
        except (grpc.aio.UsageError, InvalidCommandError) as error:
            raise ConnectionLostError(f"broker {self.address}: {error}") from error
        except asyncio.InvalidStateError as error:
            # gRPC calls so an RPC that has ended meanwhile: it knows why.
            code, details = await self._stream.code(), await self._stream.details()
            raise self._lost(code, details or "it ended the stream") from error

    def _lost(self, code: grpc.StatusCode, details: str) -> RsmError:
        if code in _GONE:
            return CodeGoneError(f"broker {self.address}: {details}")
        kind = AccessDeniedError if code in DENIALS else ConnectionLostError
        return kind(f"broker {self.address}: {code.name.lower()}: {details}")

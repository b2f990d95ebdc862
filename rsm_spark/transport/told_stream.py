"""One stream of messages that one replica tells, without end: a watch, a feed of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple, TypeVar

import grpc
import grpc.aio

from rsm_spark.errors import ConnectionLostError, InvalidCommandError, MissingLogError
from rsm_spark.transport.channel import lost_by
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import StreamFactory

FIRST_REVISION_KEY = "rsm-first-revision"
"""Trailing metadata of who asks for what has left the log: the first revision that is there."""

Message = TypeVar("Message")


class ToldRequest(NamedTuple):
    """Request for such a stream.

    Attributes:
        method: gRPC's name of it.
        text: The request.
        what: Of the stream, in words: "watch".
        log: Name of the log.
        from_revision: First revision wanted.

    """

    method: str
    text: bytes
    what: str
    log: str
    from_revision: int


async def told_by(
    address: str,
    request: ToldRequest,
    decode: Callable[[bytes], Message],
    security: Security,
    *,
    framed: str = "",
    silence_s_max: float,
) -> AsyncIterator[Message]:
    """Iterate over what one replica sends; ends only with an error.

    Args:
        address: "host:port".
        request: What is asked for.
        decode: Reads a message; raises `ValueError` for what is none.
        security: TLS and token.
        framed: "host:port" of its framed port; "" = over gRPC.
        silence_s_max: A replica that says nothing for so long is given up: it is cut off, or paused.

    Raises:
        AccessDeniedError: The replica refuses this caller.
        ConnectionLostError: The replica is gone, silent, full, or serves another log: try another one.
        MissingLogError: The revision has left the log.
        InvalidCommandError: It cannot be asked for.
        UsageError: A file of `security` cannot be used.

    """
    factory = StreamFactory(address, framed, security)
    stream: Any = None
    try:
        try:
            async with asyncio.timeout(silence_s_max):
                stream = await factory.call(request.method, request.text)
                text = await stream.read()
            factory.reached()
            while text is not grpc.aio.EOF:
                yield decode(text)
                async with asyncio.timeout(silence_s_max):
                    text = await stream.read()
            raise ConnectionLostError(f"{address}: the replica ended the {request.what} of log {request.log}")
        except TimeoutError as error:
            raise ConnectionLostError(
                f"{address}: the replica said nothing for {silence_s_max:g} s; it may be paused or cut off"
            ) from error
        except ValueError as error:
            raise ConnectionLostError(f"{address}: {error}") from error
        except grpc.aio.AioRpcError as error:
            raise _meaning(error, address, request) from error
        finally:
            if stream is not None:
                stream.cancel()
    finally:
        await factory.close()


def _meaning(error: grpc.aio.AioRpcError, address: str, request: ToldRequest) -> Exception:
    details = error.details() or ""
    if error.code() is grpc.StatusCode.OUT_OF_RANGE:
        trailing: dict[Any, Any] = dict(error.trailing_metadata() or ())
        first = int(trailing.get(FIRST_REVISION_KEY, 0))
        return MissingLogError(details, first_revision=request.from_revision, last_revision=first - 1)
    if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidCommandError(f"log {request.log}: {details}")
    return lost_by(address, request.log, error.code(), details)

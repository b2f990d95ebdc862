"""One watch of one replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from rsm_spark.errors import ConnectionLostError, InvalidCommandError, MissingLogError
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import StreamFactory
from rsm_spark.transport.watch_codec import (
    FIRST_REVISION_KEY,
    WATCH_METHOD,
    ReceivedChanges,
    WatchRequest,
    decode_changes,
    encode_watch,
)


async def watch_replica(
    address: str, request: WatchRequest, security: Security, *, framed: str = "", silence_s_max: float
) -> AsyncIterator[ReceivedChanges]:
    """Iterate over what one replica sends; ends only with an error.

    Args:
        address: "host:port".
        request: See `watch.proto`.
        security: TLS and token.
        framed: "host:port" of its framed port; "" = over gRPC.
        silence_s_max: A replica that says nothing for so long is given up: it is cut off, or paused.

    Raises:
        ConnectionLostError: The replica is gone, silent, full, or serves another log: try another one.
        MissingLogError: The revision has left the log.
        InvalidCommandError: There is no such table.
        UsageError: A file of `security` cannot be used.

    """
    factory = StreamFactory(address, framed, security)
    stream: Any = None
    try:
        try:
            async with asyncio.timeout(silence_s_max):
                stream = await factory.call(WATCH_METHOD, encode_watch(request))
                text = await stream.read()
            factory.reached()
            while text is not grpc.aio.EOF:
                yield decode_changes(text)
                async with asyncio.timeout(silence_s_max):
                    text = await stream.read()
            raise ConnectionLostError(f"{address}: the replica ended the watch of log {request.log}")
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


def _meaning(error: grpc.aio.AioRpcError, address: str, request: WatchRequest) -> Exception:
    details = error.details() or ""
    if error.code() is grpc.StatusCode.OUT_OF_RANGE:
        trailing: dict[Any, Any] = dict(error.trailing_metadata() or ())
        first = int(trailing.get(FIRST_REVISION_KEY, 0))
        return MissingLogError(details, first_revision=request.from_revision, last_revision=first - 1)
    if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidCommandError(f"log {request.log}: {details}")
    return ConnectionLostError(f"{address}: replica of log {request.log}: {error.code().name.lower()}: {details}")

"""A call beside a stream that brings nothing: it tells whether the replica lets this caller in."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import grpc.aio

from ledger.errors import LedgerError
from rsm_spark.errors import RsmError
from rsm_spark.transport.codec import EXCHANGE_METHOD, STATUS_METHOD, encode_status_request
from rsm_spark.transport.framed_call import FramedCall
from rsm_spark.transport.replica_stream import CONNECT_TIMEOUT_S
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import StreamFactory


async def reaches(address: str, framed: str, security: Security) -> bool:
    """Return whether a replica lets this caller in, within some seconds.

    Args:
        address: "host:port" of gRPC.
        framed: The same of its framed port; "" = over gRPC.
        security: Of the caller.

    """
    with contextlib.suppress(TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError, LedgerError, RsmError):
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await _call(StreamFactory(address, framed, security))
    return False


async def _call(factory: StreamFactory) -> bool:
    try:
        call = await factory.open(EXCHANGE_METHOD)
        try:
            if not isinstance(call, FramedCall):
                await factory.grpc_channel().unary_unary(STATUS_METHOD)(encode_status_request())
        finally:
            call.cancel()
    finally:
        await factory.close()
    return True

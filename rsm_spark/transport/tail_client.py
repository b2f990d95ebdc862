"""The leader's newest confirmed entries over its framed port or gRPC; implements `runtime.leader_tail.TailPeers`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple

import grpc
import grpc.aio

from ledger.errors import LedgerError
from rsm_spark.core.confirmed_tail import ToldEntries
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import ConnectionLostError, InvalidCommandError
from rsm_spark.transport.security import Security
from rsm_spark.transport.stream_factory import StreamFactory
from rsm_spark.transport.tail_codec import FOLLOW_METHOD, decode_told, encode_follow


class _OpenTail(NamedTuple):
    """Stream to a leader, and how it was opened."""

    address: str
    factory: StreamFactory
    call: Any


class ReplicaTails:
    """Asks one leader at a time.

    Args:
        log: Name of the log.
        security: TLS and token.

    """

    def __init__(self, log: str, security: Security) -> None:
        self._log = log
        self._security = security
        self._tail: _OpenTail | None = None

    async def entries_after(self, address: str, framed: str, position: LogPosition) -> ToldEntries:
        """Ask a leader for what follows an entry; see `TailPeers`."""
        tail = self._tail
        try:
            if tail is None or tail.address != address:
                await self.close()
                tail = self._tail = await self._open(address, framed)
            await tail.call.write(encode_follow(self._log, position))
            told = decode_told(_said(await tail.call.read()))
            tail.factory.reached()
        except BaseException as error:
            if tail is self._tail:
                await self.close()  # Its answer, if it is still to come, belongs to nobody.
            if isinstance(error, grpc.aio.AioRpcError):
                said = f"log {self._log}: replica at {address}: {error.code().name.lower()}: {error.details()}"
                raise ConnectionLostError(said) from error
            if isinstance(error, (LedgerError, InvalidCommandError, asyncio.InvalidStateError)):
                raise ConnectionLostError(f"log {self._log}: replica at {address} cannot be asked: {error}") from error
            raise
        return told

    async def close(self) -> None:
        """Disconnect."""
        tail, self._tail = self._tail, None
        if tail is not None:
            tail.call.cancel()
            with contextlib.suppress(grpc.aio.AioRpcError):
                await tail.factory.close()

    async def _open(self, address: str, framed: str) -> _OpenTail:
        factory = StreamFactory(address, framed, self._security)
        try:
            return _OpenTail(address, factory, await factory.open(FOLLOW_METHOD))
        except BaseException:
            await factory.close()
            raise


def _said(text: Any) -> bytes:
    """Return a message, if it is one.

    Raises:
        InvalidCommandError: The stream has ended.

    """
    if text is grpc.aio.EOF:
        raise InvalidCommandError("it tells no more")
    said: bytes = text
    return said

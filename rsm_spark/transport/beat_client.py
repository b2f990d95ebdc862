"""Beats of other replicas over gRPC; implements `rsm_spark.runtime.beating.BeatPeers`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from ledger.errors import LedgerError
from rsm_spark.core.beats import BeatAnswer
from rsm_spark.errors import ConnectionLostError, InvalidCommandError
from rsm_spark.transport.beat_codec import ASK_METHOD, LISTEN_METHOD, decode_ask_answer, encode_ask, encode_listen
from rsm_spark.transport.security import RpcChannel, Security, open_channel


class GrpcBeats:
    """Listens to other replicas of one log, and asks them.

    Args:
        log: Name of the log.
        security: TLS and token.

    """

    def __init__(self, log: str, security: Security) -> None:
        self._log = log
        self._security = security

    async def listen(self, address: str, incarnation: str, on_beat: Callable[[], None]) -> None:
        """Call `on_beat` for each beat; see `BeatPeers`."""
        async with self._channel(address) as channel:
            stream: Any = channel.unary_stream(LISTEN_METHOD)(encode_listen(self._log, incarnation))
            try:
                while await stream.read() is not grpc.aio.EOF:
                    on_beat()
            finally:
                stream.cancel()
            raise ConnectionLostError(f"log {self._log}: replica at {address} beats no more: it ends")

    async def ask(self, address: str, incarnation: str, timeout_s: float) -> BeatAnswer:
        """Ask a replica what it hears of another one; see `BeatPeers`."""
        async with self._channel(address) as channel:
            text = encode_ask(self._log, incarnation)
            return decode_ask_answer(await channel.unary_unary(ASK_METHOD)(text, timeout=timeout_s))

    @asynccontextmanager
    async def _channel(self, address: str) -> AsyncIterator[RpcChannel]:
        """Open a channel, and turn what the network may do into our own errors."""
        try:
            channel = open_channel(address, self._security)
            try:
                yield channel
            finally:
                await channel.close()
        except grpc.aio.AioRpcError as error:
            said = f"log {self._log}: replica at {address}: {error.code().name.lower()}: {error.details()}"
            raise ConnectionLostError(said) from error
        except (LedgerError, InvalidCommandError) as error:
            raise ConnectionLostError(f"log {self._log}: replica at {address} cannot be asked: {error}") from error

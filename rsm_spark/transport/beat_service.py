"""Service of a replica's beats: who listens hears that its event loop lives, and is told what it hears of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import grpc
import grpc.aio

from ledger.rights.table import Right
from rsm_spark.core.beats import BeatAnswer
from rsm_spark.errors import InvalidCommandError, RsmError
from rsm_spark.transport.beat_codec import BEAT, BEAT_SERVICE, decode_ask, decode_listen, encode_ask_answer
from rsm_spark.transport.server import ReplicaServer

LISTENERS_MAX = 32
"""Streams of beats at once; one costs about a quarter of a percent of a processor."""


class BeatService:
    """Beats for one replica, whatever its role.

    The beats are written by the event loop that does all other work: one that hangs does not beat, though gRPC's
    threads go on answering pings.

    Args:
        log: Name of the replica's log; calls meant for another are refused.
        incarnation: Of this process; a listener that means another one is refused.
        interval_s: Between two beats.
        answer: Tells what is heard of another process.

    """

    def __init__(self, log: str, incarnation: str, interval_s: float, answer: Callable[[str], BeatAnswer]) -> None:
        self._log = log
        self._incarnation = incarnation
        self._interval_s = interval_s
        self._answer = answer
        self._listener_count = 0

    def add_to(self, server: ReplicaServer) -> None:
        """Have a server that has not started yet serve this too."""
        server.add_service(
            BEAT_SERVICE,
            {
                "Listen": grpc.unary_stream_rpc_method_handler(self._listen),
                "Ask": grpc.unary_unary_rpc_method_handler(self._ask),
            },
            {"Listen": Right.REPORT, "Ask": Right.REPORT},
        )

    async def _listen(self, text: bytes, context: Any) -> None:
        incarnation = await self._meant(context, decode_listen, text)
        if incarnation != self._incarnation:
            await _abort(context, grpc.StatusCode.NOT_FOUND, "another process serves here now")
        if self._listener_count >= LISTENERS_MAX:
            await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{LISTENERS_MAX} listen already")
        self._listener_count += 1
        try:
            while True:
                await context.write(BEAT)
                await asyncio.sleep(self._interval_s)
        finally:
            self._listener_count -= 1

    async def _ask(self, text: bytes, context: Any) -> bytes:
        return encode_ask_answer(self._answer(await self._meant(context, decode_ask, text)))

    async def _meant(self, context: Any, decode: Callable[[bytes], tuple[str, str]], text: bytes) -> str:
        """Return the process that a call is about."""
        try:
            log, incarnation = decode(text)
        except InvalidCommandError as error:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if log != self._log:
            reason = f"this replica serves the log {self._log!r}, the call is meant for {log!r}"
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, reason)
        return incarnation


async def _abort(context: Any, code: grpc.StatusCode, reason: str) -> NoReturn:
    await context.abort(code, reason)
    raise RsmError(reason)

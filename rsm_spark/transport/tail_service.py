"""Service of a replica's newest confirmed entries: a follower asks for what follows its last one, again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc
import grpc.aio

from ledger.rights.table import Right
from rsm_spark.core.confirmed_tail import ToldEntries
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import InvalidCommandError, RsmError
from rsm_spark.transport.server import ReplicaServer
from rsm_spark.transport.tail_codec import TAIL_SERVICE, decode_follow, encode_told

FOLLOWERS_MAX = 16
"""Streams at once, of which each holds one answer at most; a follower without one reads the log."""
_PACE_S = 0.005
_PACE_BYTES_PER_S = 16 * 1024 * 1024
"""A stream gets no more: one that asks for the same entries all the time costs the leader no more than this."""


class TailService:
    """Confirmed entries of one replica, while it leads.

    Args:
        log: Name of the replica's log; requests meant for another are refused.
        tell: Says what follows an entry; waits for most of a second if nothing does yet.

    """

    def __init__(self, log: str, tell: Callable[[LogPosition], Awaitable[ToldEntries]]) -> None:
        self._log = log
        self._tell = tell
        self.follower_count = 0
        self._reading: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    def add_to(self, server: ReplicaServer) -> None:
        """Have a server that has not started yet serve this too."""
        server.add_service(
            TAIL_SERVICE,
            {"Follow": grpc.stream_stream_rpc_method_handler(self._follow)},
            {"Follow": Right.REPORT},
            framed=["Follow"],
        )

    def close(self) -> None:
        """End all streams: a follower keeps one open, also while it asks for nothing."""
        self._is_closed = True
        for reading in list(self._reading):
            reading.cancel()

    async def _follow(self, _requests: Any, context: Any) -> None:
        if self.follower_count >= FOLLOWERS_MAX:
            await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{FOLLOWERS_MAX} follow here already")
        self.follower_count += 1
        try:
            while (text := await self._read(context)) is not grpc.aio.EOF:
                answer = encode_told(await self._tell(await self._meant(context, text)))
                await context.write(answer)  # Waits while the follower takes nothing: no further answer is made.
                await asyncio.sleep(max(_PACE_S, len(answer) / _PACE_BYTES_PER_S))
        finally:
            self.follower_count -= 1

    async def _read(self, context: Any) -> Any:
        """Return the next question, or `EOF`: there is none, or this replica stops."""
        if self._is_closed:
            return grpc.aio.EOF
        reading = asyncio.get_running_loop().create_task(context.read())
        self._reading.add(reading)
        try:
            await asyncio.wait([reading])
        finally:
            self._reading.discard(reading)
            reading.cancel()
        return grpc.aio.EOF if reading.cancelled() else reading.result()

    async def _meant(self, context: Any, text: bytes) -> LogPosition:
        """Return the entry that a request is about."""
        try:
            log, position = decode_follow(text)
        except InvalidCommandError as error:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if log != self._log:
            reason = f"this replica serves the log {self._log!r}, the call is meant for {log!r}"
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, reason)
        return position


async def _abort(context: Any, code: grpc.StatusCode, reason: str) -> NoReturn:
    await context.abort(code, reason)
    raise RsmError(reason)

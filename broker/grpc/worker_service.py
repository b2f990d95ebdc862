"""What a broker serves to its workers: a stream for each of them, and the code that their tasks need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol

import grpc
import grpc.aio

from broker.core.shown import CodeArchive
from broker.core.worker_messages import CodePiece, FromBroker, FromWorker, WorkerHello
from broker.grpc.served_worker import ServedWorker
from broker.grpc.worker_codec import (
    CODE_CHUNK_BYTES,
    WORKERS_SERVICE,
    decode_code_request,
    decode_from_worker,
    encode_code_piece,
    encode_from_broker,
)
from broker.worker_desk import WorkerDesk
from rsm_spark.errors import InvalidCommandError, RsmError
from rsm_spark.grpc.server import ReplicaServer

__all__ = ["DOWNLOADS_MAX", "WORKERS_MAX", "LeaderView", "WorkerService"]

WORKERS_MAX = 10_000
"""Streams of one broker."""
DOWNLOADS_MAX = 16
"""Archives that are sent at once; others wait for their turn."""
_HELLO_S = 10.0
_SILENT_PINGS = 3


class LeaderView(Protocol):
    """What the service needs to know of the replica."""

    @property
    def leader_epoch(self) -> int:
        """Epoch of the leader, as far as known."""
        ...

    @property
    def leader_address(self) -> str | None:
        """Address of the leader, as far as known."""
        ...


class WorkerService:
    """Serves workers while this broker leads; names the leader while it does not.

    Args:
        desk: Decides.
        view: Of the replica.
        read_code: Returns an archive by its name, or None.
        ping_s: See `BrokerSettings.worker_ping_s`.

    Attributes:
        messages: Of workers, since the process began.
        refused_count: Streams that were refused for what was said on them.

    """

    def __init__(
        self,
        desk: WorkerDesk,
        view: LeaderView,
        read_code: Callable[[str], Awaitable[CodeArchive | None]],
        *,
        ping_s: float,
    ) -> None:
        self._desk = desk
        self._view = view
        self._read_code = read_code
        self._silence_s = ping_s * _SILENT_PINGS
        self._loop = asyncio.get_running_loop()
        self._streams: dict[ServedWorker, None] = {}
        self._looked_at = self._loop.time()
        self._is_flush_due = False
        self._downloads = asyncio.Semaphore(DOWNLOADS_MAX)
        self.messages = 0
        self.refused_count = 0

    @property
    def stream_count(self) -> int:
        """Return how many streams are open."""
        return len(self._streams)

    def add_to(self, server: ReplicaServer) -> None:
        """Have a server that has not started yet serve this too."""
        server.add_service(
            WORKERS_SERVICE,
            {
                "Work": grpc.stream_stream_rpc_method_handler(self._work),
                "DownloadCode": grpc.unary_stream_rpc_method_handler(self._download),
            },
        )

    def cut_silent(self) -> None:
        """End the streams of which nothing was heard for several pings; called several times a ping."""
        now_s = self._loop.time()
        paused_s, self._looked_at = now_s - self._looked_at, now_s
        for stream in list(self._streams):
            if paused_s > self._silence_s / 2:
                stream.heard_at = now_s  # This process stood still: what was said meanwhile is not read yet.
            elif stream.heard_at < now_s - self._silence_s:
                stream.cut(f"nothing was heard of it for {self._silence_s:g} s")

    # ---- streams

    async def _work(self, _requests: Any, context: Any) -> None:
        hello = await self._hello(context)
        if not self._desk.leads or hello.leader_epoch > self._view.leader_epoch:
            await self._name_leader(context)
            return
        if len(self._streams) >= WORKERS_MAX:
            await self._abort(
                context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WORKERS_MAX} workers have streams already"
            )
        stream = ServedWorker(context, self._epoch, self._on_said, self._on_closed)
        self._streams[stream] = None
        self._desk.on_hello(stream, hello)
        try:
            await stream.run()
        finally:
            self._on_closed(stream)

    def _on_closed(self, stream: ServedWorker) -> None:
        self._streams.pop(stream, None)
        self._desk.on_closed(stream)

    async def _hello(self, context: Any) -> WorkerHello:
        try:
            async with asyncio.timeout(_HELLO_S):
                text = await context.read()
        except TimeoutError:
            await self._abort(context, grpc.StatusCode.DEADLINE_EXCEEDED, f"no hello came within {_HELLO_S:g} s")
        said = FromWorker()
        if text is not grpc.aio.EOF:
            try:
                said = decode_from_worker(text)
            except InvalidCommandError as error:
                await self._abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if said.hello is None:
            await self._abort(context, grpc.StatusCode.INVALID_ARGUMENT, "a worker's first message is its hello")
        return said.hello

    async def _name_leader(self, context: Any) -> None:
        leader = None if self._desk.leads else self._view.leader_address
        if not leader:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this broker does not lead, and knows of none that does")
        await context.write(encode_from_broker(FromBroker(self._epoch(), leader=leader or "")))

    def _epoch(self) -> int:
        return self._view.leader_epoch

    def _on_said(self, stream: ServedWorker, said: FromWorker) -> None:
        self.messages += 1
        self._desk.on_said(stream, said)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        self._desk.flush()

    # ---- code

    async def _download(self, text: bytes, context: Any) -> None:
        try:
            name, offset = decode_code_request(text)
        except InvalidCommandError as error:
            await self._abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        async with self._downloads:
            found = await self._read_code(name)
            if found is None:
                await self._abort(context, grpc.StatusCode.NOT_FOUND, f"this broker knows no code {name!r}")
            size = len(found.archive)
            if offset > size:
                await self._abort(
                    context, grpc.StatusCode.OUT_OF_RANGE, f"code {name!r} has {size} bytes, not {offset}"
                )
            while True:
                piece = found.archive[offset : offset + CODE_CHUNK_BYTES]
                await context.write(encode_code_piece(CodePiece(piece, size, found.sha256)))
                offset += len(piece)
                if offset >= size:
                    return

    async def _abort(self, context: Any, code: grpc.StatusCode, reason: str) -> NoReturn:
        self.refused_count += 1
        await context.abort(code, reason)
        raise RsmError(reason)

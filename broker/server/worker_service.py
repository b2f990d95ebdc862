"""Service of a broker for its workers: a stream for each of them, and the code that their tasks need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, Protocol

import grpc
import grpc.aio

from broker.machine.policies import WorkerOffer
from broker.machine.views import CodeArchive
from broker.machine.worker_messages import CodePiece, FromBroker, FromWorker, WorkerHello
from broker.server.served_worker import ServedWorker
from broker.server.worker_registry import WorkerRegistry
from broker.wire.worker_codec import (
    CODE_CHUNK_BYTES,
    DOWNLOAD_METHOD,
    WORK_METHOD,
    WORKERS_SERVICE,
    decode_code_request,
    decode_from_worker,
    encode_code_piece,
    encode_from_broker,
)
from ledger.rights.principal import Principal, Role
from ledger.rights.table import Right
from rsm_spark.errors import InvalidCommandError, RsmError
from rsm_spark.transport.guard import calling_principal
from rsm_spark.transport.server import ReplicaServer

WORKERS_MAX = 10_000
"""Streams of one broker."""
DOWNLOADS_MAX = 16
"""Archives that are sent at once; others wait for their turn."""
_HELLO_S = 10.0
_SILENT_PINGS = 3
_NO_TYPE = ""
"""No task has this type: who runs it runs whatever it does not name."""


def _fault(principal: Principal, hello: WorkerHello) -> str:
    """Return why a worker may not work under its name, or offer what it offers; "" = it may."""
    if not principal.may_work_as(hello.worker_id):
        return f"{principal} may not work as {hello.worker_id!r}: that name is not among its own"
    return _strange(principal, hello.offer)


def _strange(principal: Principal, offer: WorkerOffer) -> str:
    """Return what of an offer is beyond a principal's scope; "" = nothing."""
    types = [name for name, threads in offer.threads_by_type.items() if threads > 0]
    if principal.types is not None and offer.threads_for(_NO_TYPE) > 0:
        return f"{principal} may not offer to run every type: name its own, {', '.join(principal.types)}"
    strange = principal.strange(types, offer.groups)
    return f"{principal} may not offer {strange}" if strange else ""


class LeaderView(Protocol):
    """View of the replica that the service needs."""

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
        registry: Decides.
        view: Of the replica.
        read_code: Returns an archive by its name, or None.
        runs_code: Tells whether a principal's workers run a task of a code now.
        ping_s: See `BrokerSettings.worker_ping_s`.

    Attributes:
        messages: Of workers, since the process began.
        refused_count: Streams that were refused for what was said on them.

    """

    def __init__(
        self,
        registry: WorkerRegistry,
        view: LeaderView,
        read_code: Callable[[str], Awaitable[CodeArchive | None]],
        runs_code: Callable[[Principal, str], bool],
        *,
        ping_s: float,
    ) -> None:
        self._registry = registry
        self._view = view
        self._read_code = read_code
        self._runs_code = runs_code
        self._silence_s = ping_s * _SILENT_PINGS
        self._loop = asyncio.get_running_loop()
        self._streams: dict[ServedWorker, None] = {}
        self._looked_at = self._loop.time()
        self._is_flush_due = False
        self._downloads = asyncio.Semaphore(DOWNLOADS_MAX)
        self._on_refused: Callable[[Principal, str, str, str], object] = lambda *_: None
        self.messages = 0
        self.refused_count = 0

    @property
    def stream_count(self) -> int:
        """Number of streams that are open."""
        return len(self._streams)

    def add_to(self, server: ReplicaServer) -> None:
        """Have a server that has not started yet serve this too."""
        self._on_refused = server.guard.refused
        server.add_service(
            WORKERS_SERVICE,
            {
                "Work": grpc.stream_stream_rpc_method_handler(self._work),
                "DownloadCode": grpc.unary_stream_rpc_method_handler(self._download),
            },
            {"Work": Right.WORK, "DownloadCode": Right.CODE_READ},
            framed=["Work", "DownloadCode"],
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
        principal = calling_principal()
        fault = _fault(principal, hello)
        if fault:  # Before anything is done in the name that it gives: whoever has that name by right goes on.
            self._on_refused(principal, WORK_METHOD, str(context.peer()), fault)
            await self._abort(context, grpc.StatusCode.PERMISSION_DENIED, fault)
        if not self._registry.leads or hello.leader_epoch > self._view.leader_epoch:
            await self._name_leader(context)
            return
        if len(self._streams) >= WORKERS_MAX:
            await self._abort(
                context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WORKERS_MAX} workers have streams already"
            )

        def strange(offer: WorkerOffer) -> str:
            fault = _strange(principal, offer)
            if fault:
                self._on_refused(principal, WORK_METHOD, str(context.peer()), fault)
            return fault

        stream = ServedWorker(context, self._epoch, self._on_said, self._on_closed, strange)
        self._streams[stream] = None
        self._registry.on_hello(stream, hello, principal.tenants)
        try:
            await stream.run()
        finally:
            self._on_closed(stream)

    def _on_closed(self, stream: ServedWorker) -> None:
        self._streams.pop(stream, None)
        self._registry.on_closed(stream)

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
        leader = None if self._registry.leads else self._view.leader_address
        if not leader:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this broker does not lead, and knows of none that does")
        await context.write(encode_from_broker(FromBroker(self._epoch(), leader=leader or "")))

    def _epoch(self) -> int:
        return self._view.leader_epoch

    def _on_said(self, stream: ServedWorker, said: FromWorker) -> None:
        self.messages += 1
        self._registry.on_said(stream, said)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        self._registry.flush()

    # ---- code

    async def _download(self, text: bytes, context: Any) -> None:
        try:
            name, offset = decode_code_request(text)
        except InvalidCommandError as error:
            await self._abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        principal = calling_principal()
        if principal.role is Role.WORKER:
            if not self._registry.leads:  # What runs where is known for certain by who leads.
                await self._abort(context, grpc.StatusCode.UNAVAILABLE, "this broker does not lead")
            if not self._runs_code(principal, name):
                why = f"{principal} runs no task of code {name!r} now: a worker may get the code of its own runs alone"
                self._on_refused(principal, DOWNLOAD_METHOD, str(context.peer()), why)
                await self._abort(context, grpc.StatusCode.PERMISSION_DENIED, why)
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

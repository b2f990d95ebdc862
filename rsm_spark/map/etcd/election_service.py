"""etcd's Election service: an election is a queue of keys, see `rsm_spark.map.etcd.key_queue`."""

from __future__ import annotations

from typing import Any

import grpc

from ledger.errors import LedgerError
from rsm_spark.errors import RsmError
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.backend import EtcdBackend
from rsm_spark.map.etcd.caller import CallHandlers, EtcdCaller, abort, parsed
from rsm_spark.map.etcd.etcd_pb2 import (
    CampaignRequest,
    CampaignResponse,
    DeleteRangeRequest,
    LeaderKey,
    LeaderRequest,
    LeaderResponse,
    ProclaimRequest,
    ProclaimResponse,
    PutRequest,
    ResignRequest,
    ResignResponse,
)
from rsm_spark.map.etcd.events import KeyEvent
from rsm_spark.map.etcd.key_queue import KeyQueue, end_of, prefix_of
from rsm_spark.map.etcd.ranges import key_value
from rsm_spark.map.etcd.requests import Span, holds, span_of
from rsm_spark.map.etcd.watch_service import EtcdWatchService
from rsm_spark.runtime.change_feed import FeedCursor

_IDLE_S = 10.0


class EtcdElectionService:
    """See the module.

    Args:
        backend: The map.
        queue: Of its keys.
        watches: Who looks on has one of them.

    """

    def __init__(self, backend: EtcdBackend, queue: KeyQueue, watches: EtcdWatchService) -> None:
        self._backend = backend
        self._queue = queue
        self._watches = watches

    async def campaign(self, request: CampaignRequest, caller: EtcdCaller) -> CampaignResponse:
        """Wait to be elected; who goes before gives its candidature up.

        Raises:
            EtcdError: There is no such lease, or the keys are not the caller's.
            RsmError: The leader cannot be asked.

        """
        place = await self._queue.enter(request.name, request.lease, request.value, caller)
        leader = LeaderKey(name=request.name, key=place.key, rev=place.revision, lease=place.lease)
        header = place.header
        try:
            if place.found is not None and place.found.value != request.value:
                said = await self.proclaim(ProclaimRequest(leader=leader, value=request.value), caller)
                header = said.header
            await self._queue.wait(place, caller)
        except BaseException:
            self._queue.leave(place, caller)
            raise
        return CampaignResponse(header=header, leader=leader)

    async def proclaim(self, request: ProclaimRequest, caller: EtcdCaller) -> ProclaimResponse:
        """Say something else as the leader; see `campaign`."""
        leader = _leader_of(request)
        put = PutRequest(key=leader.key, value=request.value, lease=leader.lease)
        done = await self._queue.change(leader.key, leader.rev, put, caller)
        if not done.succeeded:
            raise e.EtcdError(grpc.StatusCode.UNKNOWN, "election: not leader")
        return ProclaimResponse(header=done.header)

    async def resign(self, request: ResignRequest, caller: EtcdCaller) -> ResignResponse:
        """Lead no more, or stand no more; see `campaign`."""
        leader = _leader_of(request)
        done = await self._queue.change(leader.key, leader.rev, DeleteRangeRequest(key=leader.key), caller)
        return ResignResponse(header=done.header)

    async def leader(self, request: LeaderRequest, caller: EtcdCaller) -> LeaderResponse:
        """Tell who leads; see `campaign`."""
        head = await self._queue.head(prefix_of(request.name), caller)
        if not head.kvs:
            raise e.EtcdError(grpc.StatusCode.UNKNOWN, "election: no leader")
        return LeaderResponse(header=head.header, kv=head.kvs[0])

    # ---- looking on

    def observe_handler(self, method: str, handlers: CallHandlers) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return the handler of streams that tell who leads, and what each leader says."""

        async def handle(text: bytes, context: Any) -> None:
            try:
                caller = handlers.caller(method, context)
                request = parsed(LeaderRequest, text)
                if not self._watches.take(caller.owner):
                    raise e.exhausted(e.TOO_MANY_REQUESTS)
                try:
                    await self._observe(prefix_of(request.name), caller, context)
                finally:
                    self._watches.give_back(caller.owner)
            except (RsmError, LedgerError, OverflowError) as error:
                await abort(context, error)

        return grpc.unary_stream_rpc_method_handler(handle)

    async def _observe(self, prefix: bytes, caller: EtcdCaller, context: Any) -> None:
        while True:
            head = await self._queue.head(prefix, caller)
            revision = head.header.revision
            if not head.kvs:
                await self._next((prefix, end_of(prefix)), revision)  # Somebody stands: it is asked for again.
                continue
            leader = head.kvs[0]
            await context.write(LeaderResponse(header=head.header, kv=leader).SerializeToString())
            await self._tell(span_of(leader.key, b""), revision, context)

    async def _next(self, span: Span, revision: int) -> None:
        """Wait until a key of a range is written after a revision."""
        cursor = self._backend.feed.cursor(revision + 1)
        try:
            while not any(event.entry is not None for event in await self._events(cursor, span, revision)):
                pass
        finally:
            await cursor.close()

    async def _tell(self, span: Span, revision: int, context: Any) -> None:
        """Tell what is written to a leader's key, until it is gone."""
        cursor = self._backend.feed.cursor(revision + 1)
        try:
            while True:
                for event in await self._events(cursor, span, revision):
                    shown = self._backend.events.shown(event)
                    if shown is None:
                        return
                    header = self._backend.header(event.revision)
                    await context.write(LeaderResponse(header=header, kv=key_value(shown)).SerializeToString())
        finally:
            await cursor.close()

    async def _events(self, cursor: FeedCursor, span: Span, revision: int) -> list[KeyEvent]:
        entries = await cursor.read(_IDLE_S)
        if self._backend.feed.is_closed:
            raise e.unavailable(e.STOPPED)
        events = (event for entry in entries for event in self._backend.events.of(entry))
        return [event for event in events if event.revision > revision and holds(span, event.key)]


def _leader_of(request: ProclaimRequest | ResignRequest) -> LeaderKey:
    if not request.HasField("leader"):
        raise e.EtcdError(grpc.StatusCode.UNKNOWN, '"leader" field must be provided')
    return request.leader

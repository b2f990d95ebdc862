"""etcd's Lease service: grant, revoke, keep alive, show."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc
import grpc.aio

from ledger.errors import LedgerError
from rsm_spark.errors import RsmError
from rsm_spark.map import commands as c
from rsm_spark.map import queries as q
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.backend import EtcdBackend
from rsm_spark.map.etcd.caller import CallHandlers, EtcdCaller, abort, parsed
from rsm_spark.map.etcd.etcd_pb2 import (
    LeaseGrantRequest,
    LeaseGrantResponse,
    LeaseKeepAliveRequest,
    LeaseKeepAliveResponse,
    LeaseLeasesRequest,
    LeaseLeasesResponse,
    LeaseRevokeRequest,
    LeaseRevokeResponse,
    LeaseStatus,
    LeaseTimeToLiveRequest,
    LeaseTimeToLiveResponse,
)
from rsm_spark.map.limits import TTL_MS_MAX

_TTL_S_MIN = 2
"""A shorter one is made so long, as etcd does: it must survive the pause of a new leader's election."""
_KEPT_MAX = 256
"""Leases of one stream that are kept in one go; more wait at their client."""
_LEASES_PAGE = 1_000
_LEASES_MAX = 100_000


class EtcdLeaseService:
    """See the module.

    Args:
        backend: The map.

    """

    def __init__(self, backend: EtcdBackend) -> None:
        self._backend = backend

    async def grant(self, request: LeaseGrantRequest, caller: EtcdCaller) -> LeaseGrantResponse:
        """Begin a lease.

        Raises:
            EtcdError: See docs/etcd.md.
            RsmError: The leader cannot be asked.

        """
        ttl_s = max(request.ttl, _TTL_S_MIN)
        if ttl_s * 1_000 > TTL_MS_MAX:
            raise e.lease_too_long()
        command = c.GrantLease(ttl_s * 1_000, request.id)
        caller.check_command(command)
        granted = await self._backend.execute(command, caller.owner)
        assert isinstance(granted, c.Granted)
        return LeaseGrantResponse(header=self._backend.header(), id=granted.lease, ttl=ttl_s)

    async def revoke(self, request: LeaseRevokeRequest, caller: EtcdCaller) -> LeaseRevokeResponse:
        """End a lease, with its keys; see `grant`."""
        command = c.RevokeLease(request.id)
        caller.check_command(command)
        removed = await self._backend.execute(command, caller.owner)
        if not isinstance(removed, c.Removed):
            raise e.no_lease()
        return LeaseRevokeResponse(header=self._backend.header(removed.revision))

    async def time_to_live(self, request: LeaseTimeToLiveRequest, caller: EtcdCaller) -> LeaseTimeToLiveResponse:
        """Show a lease; see `grant`."""
        shown, revision = await self._backend.query(q.ShowLease(request.id))
        response = LeaseTimeToLiveResponse(header=self._backend.header(revision), id=request.id)
        if not isinstance(shown, q.LeaseShown):
            response.ttl = -1
            return response
        await self._backend.applied(revision)
        keys = self._backend.keys_of_lease(request.id)
        caller.check_lease(keys)
        # The leader's clock, as its last entry tells it: at least the time that is left, but after a failover less
        # than it gives.
        passed_ms = max(0, self._backend.logged_ms - shown.since_ms)
        response.ttl = max(0, (shown.ttl_ms - passed_ms) // 1_000)  # Whole seconds that are left, as etcd tells them.
        response.granted_ttl = shown.ttl_ms // 1_000
        if request.keys:
            response.keys.extend(sorted(caller.own_keys(keys)))
        return response

    async def leases(self, _request: LeaseLeasesRequest, caller: EtcdCaller) -> LeaseLeasesResponse:
        """List the leases; see `grant`."""
        times, revision = await self._listed(caller)
        response = LeaseLeasesResponse(header=self._backend.header(revision))
        response.leases.extend(LeaseStatus(id=lease) for lease in times)
        return response

    async def times(self, caller: EtcdCaller) -> dict[int, int]:
        """Return the seconds that each lease lives after it was kept; see `grant`."""
        return (await self._listed(caller))[0]

    async def _listed(self, caller: EtcdCaller) -> tuple[dict[int, int], int]:
        caller.check_whole("the list of leases")
        times: dict[int, int] = {}
        after = -(1 << 63)
        while True:
            page, revision = await self._backend.query(q.ListLeases(after, _LEASES_PAGE))
            assert isinstance(page, q.Leases)
            times.update((lease.lease, max(1, lease.ttl_ms // 1_000)) for lease in page.leases)
            if len(page.leases) < _LEASES_PAGE or len(times) >= _LEASES_MAX:
                return times, revision
            after = page.leases[-1].lease

    # ---- keeping alive

    def keep_alive_handler(self, method: str, handlers: CallHandlers) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return the handler of streams on which leases are kept."""

        async def handle(_requests: Any, context: Any) -> None:
            try:
                caller = handlers.caller(method, context)
                await self._keep_alive(caller, handlers, context)
            except (RsmError, LedgerError, OverflowError) as error:
                await abort(context, error)

        return grpc.stream_stream_rpc_method_handler(handle)

    async def _keep_alive(self, caller: EtcdCaller, handlers: CallHandlers, context: Any) -> None:
        """Keep what is asked for, all together that has come meanwhile."""
        coming: asyncio.Queue[int | None] = asyncio.Queue(_KEPT_MAX)

        async def read() -> None:
            try:
                while (text := await context.read()) is not grpc.aio.EOF:
                    await coming.put(parsed(LeaseKeepAliveRequest, text).id)
            finally:
                with contextlib.suppress(asyncio.QueueFull):
                    coming.put_nowait(None)

        reader = asyncio.get_running_loop().create_task(read())
        try:
            has_ended = False
            while not has_ended:
                asked = [await coming.get()]
                while not coming.empty():
                    asked.append(coming.get_nowait())
                has_ended = None in asked or (reader.done() and coming.empty())
                leases = list(dict.fromkeys(one for one in asked if one is not None))
                with handlers.bounds.room(caller.owner, 0):
                    await self._keep(leases, caller, context)
            await reader
        finally:
            reader.cancel()

    async def _keep(self, leases: list[int], caller: EtcdCaller, context: Any) -> None:
        if not leases:
            return
        commands = [c.KeepLease(lease) for lease in leases]
        for command in commands:
            caller.check_command(command)
        for lease, kept in zip(leases, await self._backend.execute_many(commands, caller.owner), strict=True):
            ttl_s = kept.ttl_ms // 1_000 if isinstance(kept, c.Kept) else 0
            answer = LeaseKeepAliveResponse(header=self._backend.header(), id=lease, ttl=ttl_s)
            await context.write(answer.SerializeToString())

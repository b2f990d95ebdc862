"""One gateway: its writers, its HTTP server, its gRPC port. What `rsm log serve` runs, and what a program embeds."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import msgspec

from ledger.client.client import LedgerClient
from ledger.http.api_server import ApiServer
from ledger.http.api_settings import ApiSettings
from ledger.http.metrics_push import push_metrics
from ledger.http.origins import HostCheck
from ledger.http.tokens import Tokens
from rsm_spark.gateway.calls import GatewayState
from rsm_spark.gateway.edge import GatewayEdge
from rsm_spark.gateway.entrance import GatewayEntrance
from rsm_spark.gateway.held_logs import HeldLogs
from rsm_spark.gateway.names_api import name_routes
from rsm_spark.gateway.pages import GatewayPages
from rsm_spark.gateway.reading_api import reading_routes
from rsm_spark.gateway.records_api import record_routes
from rsm_spark.gateway.rpc_door import GatewayRpcDoor
from rsm_spark.gateway.settings import GatewaySettings
from rsm_spark.logs.namespace import Logs
from rsm_spark.logs.writer_place import WriterPlace
from rsm_spark.runtime.settings import ReplicaSettings

_ENTRIES_AT_ONCE = 4
"""Entries that one reader has in memory at once: each may have 4 MiB."""


class LogGateway:
    """See the module. For the event loop on which it is made; it listens from then on, and serves while it is entered.

    Args:
        client: Connected; stays the caller's to close.
        settings: See `GatewaySettings`.
        replica: Of the logs: root, quorums, password, keys.
        name: Of this gateway, as others see it; None = host and process.

    Attributes:
        address: "host:port" that clients are told.
        url: The same as a URL.
        grpc_address: "host:port" of gRPC; "" = it is not served.

    Raises:
        UsageError: TLS or tokens are missing where they are needed, a file cannot be used, or the port is taken.
        RsmError: The port of gRPC is taken.

    """

    def __init__(
        self,
        client: LedgerClient,
        settings: GatewaySettings,
        replica: ReplicaSettings | None = None,
        *,
        name: str | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        replica = msgspec.structs.replace(
            replica or ReplicaSettings(),
            producer_ttl_ms=int(settings.producer_ttl_s * 1000),
            tail_entries_max=_ENTRIES_AT_ONCE,
        )
        self._logs = Logs(client, replica, name=name)
        self._partition_logs = Logs(client, msgspec.structs.replace(replica, tail_entries_max=1), name=name)
        self._pages = GatewayPages(client)
        self._server = ApiServer(settings.http, self._edge)
        self.address = self._server.address
        self.url = self._pages.url = self._server.url
        self._rpc = self._rpc_door()
        self.grpc_address = "" if self._rpc is None else self._rpc.address
        place = WriterPlace(self.address, self.url.startswith("https"), self.grpc_address)
        self.held = HeldLogs(client, self._logs, place, settings)
        self._server.edge.state.held = self.held
        self._tidying: asyncio.Task[None] | None = None
        self._push: asyncio.Task[None] | None = None

    def _edge(self, bounded: ApiSettings, hosts: HostCheck, tokens: Tokens | None) -> GatewayEdge:
        routes = [*record_routes(), *reading_routes(), *name_routes(), *self._pages.own_routes()]
        self._pages.routes = routes
        state = GatewayState(self._logs, self._partition_logs, self._settings, bounded, tokens)
        return GatewayEdge(GatewayEntrance(state), routes, hosts)

    def _rpc_door(self) -> GatewayRpcDoor | None:
        if self._settings.grpc_port is None:
            return None
        edge = self._server.edge
        host = self.address.rpartition(":")[0]
        door = GatewayRpcDoor(
            edge.entrance, edge.routes, self._settings, host, lambda: not self._pages.not_ready(edge.state)
        )
        self._pages.methods = door.methods
        return door

    async def start(self) -> None:
        """Serve from now on."""
        self._tidying = asyncio.get_running_loop().create_task(self.held.run())
        await self._server.start()
        if self._rpc is not None:
            await self._rpc.start()
        self._push = push_metrics(lambda: self._pages.metrics_page(self._server.edge.state))

    async def stop(self) -> None:
        """Take no more requests, answer what was taken, and let go of all logs."""
        rpc = () if self._rpc is None else (self._rpc.stop(),)
        await asyncio.gather(self._server.stop(), *rpc)
        if self._push is not None:
            self._push.cancel()
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.wait([self._tidying])
        await self.held.close()

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop."""
        await asyncio.shield(self.stop())

"""etcd's API as JSON over HTTP/1.1, as etcd's own gateway has it: `rsm store run --etcd-json-port 2381`."""

from __future__ import annotations

import asyncio

from ledger.http.api_server import ApiServer
from ledger.http.api_settings import ApiSettings
from ledger.http.origins import HostCheck
from ledger.http.tokens import Tokens
from rsm_spark.map.etcd.backend import EtcdBackend
from rsm_spark.map.etcd.caller import CallHandlers
from rsm_spark.map.etcd.json_edge import EtcdJsonEdge
from rsm_spark.map.etcd.work_bounds import WorkBounds
from rsm_spark.map.scopes import MapScopes
from rsm_spark.transport.guard import Guard
from rsm_spark.transport.security import Security, check_bind

_BODY_BYTES_MAX = 6 * 1024 * 1024
"""In base64, and with names: what the gRPC port takes in 4 MiB."""
_BODIES_BYTES_MAX = 128 * 1024 * 1024
_SWEEP_S = 1.0
_ANYWHERE = frozenset({"0.0.0.0", "::"})


class EtcdJsonPort:
    """See the module. It listens from the moment it is made, and serves between `start` and `stop`.

    Args:
        backend: The map.
        scopes: Of its keys.
        bounds: On what is under way, shared with the gRPC port.
        bind: Address to listen on; beyond loopback only with TLS and a token.
        port: 0 = the system chooses.
        security: TLS, token, principals.
        ports: Number of ports that share the open files of the process.
        connections_max: At once.

    Attributes:
        address: "host:port".
        guard: Who may call.
        edge: Its application.

    Raises:
        UsageError: TLS or token is missing where it is needed, a file of theirs cannot be used, or the port is taken.

    """

    def __init__(
        self,
        backend: EtcdBackend,
        scopes: MapScopes,
        bounds: WorkBounds,
        *,
        bind: str,
        port: int,
        security: Security,
        ports: int,
        connections_max: int,
    ) -> None:
        check_bind(bind, security)
        self.guard = Guard(security)
        handlers = CallHandlers(backend.log, scopes, self.guard, bounds)
        settings = ApiSettings(
            bind=bind, port=port, advertise="127.0.0.1" if bind in _ANYWHERE else "", tls_cert=security.tls_cert,
            tls_key=security.tls_key, tls_client_ca=security.tls_client_ca,
            body_bytes_max=_BODY_BYTES_MAX, bodies_bytes_max=_BODIES_BYTES_MAX, connections_max=connections_max,
        )  # fmt: skip

        def edge(bounded: ApiSettings, hosts: HostCheck, _tokens: Tokens | None) -> EtcdJsonEdge:
            return EtcdJsonEdge(backend, self.guard, handlers, bounded, hosts)

        self._server = ApiServer(settings, edge, is_guarded=True, ports=ports)
        self.edge = self._server.edge
        self.address = self._server.address
        self._sweeping: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Take calls."""
        await self._server.start()
        self._sweep()

    def _sweep(self) -> None:
        """End calls whose principals are gone, once a second."""
        self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        self.guard.sweep()

    async def stop(self) -> None:
        """Take nothing more in, and give up what is under way."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._server.stop()

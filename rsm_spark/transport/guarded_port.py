"""A gRPC port with its guard and its bounds on connections: that of a replica, and others beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio

from ledger.rights.table import Right
from rsm_spark.errors import RsmError
from rsm_spark.transport.connections import PORTS, Connections
from rsm_spark.transport.guard import Guard
from rsm_spark.transport.security import Security, server_port
from rsm_spark.transport.standard_services import (
    HEALTH,
    HEALTH_CHECK,
    HEALTH_RIGHTS,
    REFLECTION,
    REFLECTION_RIGHTS,
    HealthService,
    reflection_handlers,
)

_OPTIONS: tuple[tuple[str, int], ...] = (
    # Of a connection; a process has one, so many watches, too. The core drops calls of anybody when too many wait.
    ("grpc.max_concurrent_streams", 256),
    ("grpc.server.max_pending_requests", 4_000),
    ("grpc.server.max_pending_requests_hard_limit", 8_000),
    ("grpc.so_reuseport", 0),  # A second server on the port is an error, not a sharer.
    # A client that is gone without a word is noticed within half a minute; one that pings like mad is cut off.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 4_000),
    ("grpc.http2.max_ping_strikes", 3),
    # Who connects and says nothing, or less than a greeting, is cut; see `rsm_spark.transport.connections` for the
    # rest.
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.http2.settings_timeout", 10_000),
    # So much is read of a connection at once, and kept.
    ("grpc.experimental.tcp_max_read_chunk_size", 256 * 1024),
)

_LOOK_S = 1.0


class GuardedPort:
    """See the module. The port is bound first: its address can be told before anything is served.

    Args:
        what: Whose port it is, for messages: "etcd's API of log orders".
        option: Of the command that names the port.
        bind: Address to listen on; beyond loopback only with TLS and a token.
        port: 0 = the system chooses.
        security: TLS, token, principals.
        connections_max: At once, as far as the limit of open files allows.
        received_bytes_max: Of one message that comes in.
        sent_bytes_max: Of one that goes out.
        ports: Number of ports that share the open files of the process.
        token_key: See `Guard`.
        open_methods: See `Guard`.

    Attributes:
        address: "host:port".
        guard: Who may call.
        connections: Who holds how many.
        health: Answers health checks; its conditions are set before `start`.

    Raises:
        UsageError: TLS or token is missing where it is needed, or a file of theirs cannot be used.
        RsmError: The port is taken. There must be a running event loop.

    """

    def __init__(
        self,
        what: str,
        *,
        option: str,
        bind: str,
        port: int,
        security: Security,
        connections_max: int,
        received_bytes_max: int,
        sent_bytes_max: int,
        ports: int = PORTS,
        token_key: str = "",
        open_methods: frozenset[str] = frozenset(),
    ) -> None:
        self.guard = Guard(security, token_key=token_key, open_methods=open_methods | {HEALTH_CHECK})
        self.connections = Connections(connections_max, stranger_bytes_max=2 * received_bytes_max, ports=ports)
        self.guard.on_admitted = self.admitted
        options = (
            *_OPTIONS,
            ("grpc.max_receive_message_length", received_bytes_max),
            ("grpc.max_send_message_length", sent_bytes_max),
            ("grpc.max_allowed_incoming_connections", self.connections.limit),
        )
        self._server = grpc.aio.server(options=options, interceptors=None if self.guard.is_open else [self.guard])
        host = f"[{bind}]" if ":" in bind else bind
        try:
            bound = server_port(self._server, bind, port, security)
        except RuntimeError as error:
            raise RsmError(
                f"cannot serve {what} on {host}:{port}: the port is taken or not allowed; {option} 0 finds a free one"
            ) from error
        self.address = f"{host}:{bound}"
        self.connections.serve(bound)
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._services: list[str] = []
        self.health = HealthService()
        self.add_service(HEALTH, self.health.handlers(), HEALTH_RIGHTS)

    def add_service(
        self, name: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]], rights: Mapping[str, Right]
    ) -> None:
        """Serve methods behind the guard; before `start`.

        Args:
            name: Of the service, with its package: "rsm.peer.v1.Peer".
            handlers: By method name, made by `grpc.unary_stream_rpc_method_handler` and its like; without
                serializers they get and return bytes.
            rights: What each method needs; one without is refused for everybody.

        """
        self._services.append(name)
        guarded = self.guard.wrap(name, handlers, rights)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, guarded),))

    def admitted(self, context: Any, owner: str | None) -> bool:
        """Tell whether the connection of a call that was let through may stay; see `Guard.on_admitted`."""
        return self.connections.admitted(str(context.peer()), owner)

    async def start(self) -> None:
        """Take calls."""
        self.add_service(REFLECTION, reflection_handlers([*self._services, REFLECTION]), REFLECTION_RIGHTS)
        await self._server.start()
        self._sweep()
        self._meet()

    def _sweep(self) -> None:
        """End streams whose principals are gone, and look how healthy this process is, once a second."""
        self._timers["sweep"] = asyncio.get_running_loop().call_later(_LOOK_S, self._sweep)
        self.guard.sweep()
        self.health.look()

    def _meet(self) -> None:
        """Look after the port's connections."""
        loop = asyncio.get_running_loop()
        self._timers["meet"] = loop.call_later(self.connections.look(loop.time()), self._meet)

    async def stop(self, grace_s: float) -> None:
        """Take nothing more in; cut what runs after `grace_s`."""
        for timer in self._timers.values():
            timer.cancel()
        await self._server.stop(grace_s)

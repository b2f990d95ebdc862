"""A gRPC port of its own beside that of a replica: the same guard, the same bounds on connections, other services."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio

from ledger.rights.table import Right
from rsm_spark.errors import RsmError
from rsm_spark.transport.connections import Connections
from rsm_spark.transport.guard import Guard
from rsm_spark.transport.security import Security, server_port
from rsm_spark.transport.server import _OPTIONS

_LOOK_S = 1.0


class GuardedPort:
    """See the module. The port is bound first: its address can be told before anything is served.

    Args:
        what: Whose port it is, for messages: "etcd's API of log orders".
        bind: Address to listen on; beyond loopback only with TLS and a token.
        port: 0 = the system chooses.
        security: TLS, token, principals.
        connections_max: At once, as far as the limit of open files allows.
        received_bytes_max: Of one message that comes in.
        sent_bytes_max: Of one that goes out.
        token_key: See `Guard`.
        open_methods: See `Guard`.

    Attributes:
        address: "host:port".
        guard: Who may call.
        connections: Who holds how many.

    Raises:
        UsageError: TLS or token is missing where it is needed, or a file of theirs cannot be used.
        RsmError: The port is taken. There must be a running event loop.

    """

    def __init__(
        self,
        what: str,
        *,
        bind: str,
        port: int,
        security: Security,
        connections_max: int,
        received_bytes_max: int,
        sent_bytes_max: int,
        token_key: str = "",
        open_methods: frozenset[str] = frozenset(),
    ) -> None:
        self.guard = Guard(security, token_key=token_key, open_methods=open_methods)
        self.connections = Connections(connections_max, stranger_bytes_max=2 * received_bytes_max)
        self.guard.on_admitted = self._admitted
        options = {
            **dict(_OPTIONS),
            "grpc.max_receive_message_length": received_bytes_max,
            "grpc.max_send_message_length": sent_bytes_max,
            "grpc.max_allowed_incoming_connections": self.connections.limit,
        }
        interceptors = None if self.guard.is_open else [self.guard]
        self._server = grpc.aio.server(options=tuple(options.items()), interceptors=interceptors)
        host = f"[{bind}]" if ":" in bind else bind
        try:
            bound = server_port(self._server, bind, port, security)
        except RuntimeError as error:
            raise RsmError(f"cannot serve {what} on {host}:{port}: the port is taken or not allowed") from error
        self.address = f"{host}:{bound}"
        self.connections.serve(bound)
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add_service(
        self, name: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]], rights: Mapping[str, Right]
    ) -> None:
        """Serve methods behind the guard; before `start`. See `ReplicaServer.add_service`."""
        guarded = self.guard.wrap(name, handlers, rights)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, guarded),))

    def _admitted(self, context: Any, owner: str | None) -> bool:
        return self.connections.admitted(str(context.peer()), owner)

    async def start(self) -> None:
        """Take calls."""
        await self._server.start()
        self._sweep()
        self._meet()

    def _sweep(self) -> None:
        """End streams whose principals are gone, once a second."""
        self._timers["sweep"] = asyncio.get_running_loop().call_later(_LOOK_S, self._sweep)
        self.guard.sweep()

    def _meet(self) -> None:
        """Look after the port's connections."""
        loop = asyncio.get_running_loop()
        self._timers["meet"] = loop.call_later(self.connections.look(loop.time()), self._meet)

    async def stop(self, grace_s: float) -> None:
        """Take nothing more in; cut what runs after `grace_s`."""
        for timer in self._timers.values():
            timer.cancel()
        await self._server.stop(grace_s)

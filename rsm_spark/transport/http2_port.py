"""A gRPC port with its guard and its bounds on connections, over HTTP/2 that is read and written here.

gRPC's own server needs some 220 to 280 microseconds of processor time for a call that does nothing; this one 30.
Callers are gRPC's clients of any language.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import grpc

from ledger.frame_pot import FramePot
from ledger.http.acceptor import Acceptor
from ledger.http.connection_slots import ConnectionSlot
from ledger.rights.table import Right
from ledger.tls import TlsSettings, server_context
from rsm_spark.transport.connection_keeper import ConnectionKeeper
from rsm_spark.transport.connections import PORTS, seats_for
from rsm_spark.transport.framed_port import listening_on
from rsm_spark.transport.guard import Guard, token_of
from rsm_spark.transport.http2_call import Http2Call
from rsm_spark.transport.http2_connection import Http2Connection
from rsm_spark.transport.http2_heads import RpcHead
from rsm_spark.transport.security import Security, check_server
from rsm_spark.transport.standard_services import (
    HEALTH,
    HEALTH_CHECK,
    HEALTH_RIGHTS,
    REFLECTION,
    REFLECTION_RIGHTS,
    HealthService,
    reflection_handlers,
)

ALPN: Final = "h2"
_HELD_BYTES_MAX: Final = 256 << 20
_LOOK_S: Final = 1.0


class Http2Port:
    """See the module. The port is bound first: its address can be told before anything is served.

    Args:
        what: Whose port it is, for messages: "etcd's API of log orders".
        option: Of the command that names the port.
        bind: Address to listen on; beyond loopback only with TLS and a token.
        port: 0 = the system chooses.
        security: TLS, token, principals.
        connections_max: At once, as far as the limit of open files allows.
        received_bytes_max: Of one message that comes in.
        ports: Number of ports that share the open files of the process.
        token_key: Metadata that carries a token as it is, too: other protocols' clients send it so; "" = none.
        open_methods: See `Guard`.

    Attributes:
        address: "host:port".
        guard: Who may call.
        connections: Open ones, strangers too.
        seats: Of them.
        health: Answers health checks; its conditions are set before `start`.
        message_bytes_max: Of one message that comes in.

    Raises:
        UsageError: TLS or token is missing where it is needed, or a file of theirs cannot be used.
        RsmError: The port is taken.

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
        ports: int = PORTS,
        token_key: str = "",
        open_methods: frozenset[str] = frozenset(),
    ) -> None:
        check_server(bind, security)
        self._token_key = token_key
        self._open_methods = open_methods | {HEALTH_CHECK}
        self.guard = Guard(security, open_methods=self._open_methods)
        self.guard.on_admitted = self.admitted
        self.message_bytes_max = received_bytes_max
        self.seats = seats_for(connections_max, ports=ports)
        self._handlers: dict[str, Any] = {}
        self._services: list[str] = []
        self._pot = FramePot(_HELD_BYTES_MAX, _HELD_BYTES_MAX // 2)
        self.connections: dict[Http2Connection, None] = {}
        self._keeper = ConnectionKeeper(lambda: self.connections)
        self._timer: asyncio.TimerHandle | None = None
        tls = None
        if security.tls_cert is not None:
            files = TlsSettings(cert=security.tls_cert, key=security.tls_key, ca=security.tls_client_ca)
            tls = server_context(files, alpn=[ALPN])
        listening, self.address = listening_on(bind, port, what=what, option=option)
        self._acceptor = Acceptor(listening, self.seats, self._make, tls=tls)
        self.health = HealthService()
        self.add_service(HEALTH, self.health.handlers(), HEALTH_RIGHTS)

    def add_service(
        self, name: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]], rights: Mapping[str, Right]
    ) -> None:
        """Serve methods behind the guard; before `start`.

        Args:
            name: Of the service, with its package: "rsm.peer.v1.Peer".
            handlers: By method name, made by `grpc.unary_stream_rpc_method_handler` and its like; without
                serializers they get and return bytes. None takes a stream of requests and has one answer.
            rights: What each method needs; one without is refused for everybody.

        """
        self._services.append(name)
        for method, handler in self.guard.wrap(name, handlers, rights).items():
            self._handlers[f"/{name}/{method}"] = handler

    async def start(self) -> None:
        """Take calls."""
        self.add_service(REFLECTION, reflection_handlers([*self._services, REFLECTION]), REFLECTION_RIGHTS)
        self._acceptor.open()
        self._keeper.start()
        self._sweep()

    def _sweep(self) -> None:
        """End streams whose principals are gone, and look how healthy this process is, once a second."""
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._sweep)
        self.guard.sweep()
        self.health.look()

    async def stop(self, grace_s: float) -> None:
        """Take nothing more in; cut what runs after `grace_s`."""
        if self._timer is not None:
            self._timer.cancel()
        await self._acceptor.close()
        for connection in list(self.connections):
            connection.leave()
        tasks = self._tasks()
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # What the last ones said is on its way.
        for connection in list(self.connections):
            connection.cut()
        self._keeper.stop()

    def _tasks(self) -> list[asyncio.Task[None]]:
        calls = [call for connection in self.connections for call in connection.calls.values()]
        return [call.task for call in calls if call.task is not None]

    # ---- connections

    def _make(self, slot: ConnectionSlot) -> Http2Connection:
        return Http2Connection(slot, self._pot, self)

    def opened(self, connection: Http2Connection) -> None:
        """See `Http2Owner`."""
        self.connections[connection] = None

    def closed(self, connection: Http2Connection) -> None:
        """See `Http2Owner`."""
        self.connections.pop(connection, None)
        self.seats.give_back(connection.slot)

    def handler_of(self, head: RpcHead, peer: str) -> Any:
        """See `Http2Owner`."""
        return self._handlers.get(head.path) or self._unknown(head.path, peer)

    def _unknown(self, path: str, peer: str) -> Any:
        async def refuse(_requests: Any, context: Any) -> None:
            why = f"{path!r} is not served here"
            self.guard.refused(None, path, peer, why)
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, why)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def is_known(self, call: Http2Call) -> bool:
        """See `Http2Owner`."""
        if self.guard.is_open or call.head.path in self._open_methods:
            return True
        token = token_of(call.head.metadata, self._token_key)
        return self.guard.principal_by(token or b"", call.names) is not None

    def enter(self, call: Http2Call) -> None:
        """See `Http2Owner`."""
        if not self.guard.is_open:
            self.guard.enter(token_of(call.head.metadata, self._token_key) or b"", call.names)

    def admitted(self, context: Any, owner: str | None) -> bool:
        """Tell whether the connection of a call that was let through may stay; see `Guard.on_admitted`."""
        return self.seats.know(context.slot, owner)

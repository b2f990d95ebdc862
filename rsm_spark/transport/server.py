"""The server of a replica, over gRPC and the framed port: its own service, and what others add to it."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from ledger.rights.principal import CLUSTER
from ledger.rights.table import Right
from rsm_spark.errors import RsmError
from rsm_spark.transport.codec import (
    ANSWERS_BYTES_MAX,
    PROTOBUF_EXCHANGE,
    SERVICE,
    decode_requests,
    encode_answers,
    encode_status,
)
from rsm_spark.transport.connections import PORTS, turns_of
from rsm_spark.transport.framed_port import FramedPort
from rsm_spark.transport.guard import calling_principal
from rsm_spark.transport.http2_port import Http2Port
from rsm_spark.transport.near_stream import NearReplica
from rsm_spark.transport.packed_codec import PACKED_EXCHANGE
from rsm_spark.transport.reach import AuditWords, KeyScopes, Reach, fault_of, reach_of
from rsm_spark.transport.request_admission import Backend, RequestAdmission, status_code_of
from rsm_spark.transport.request_stream import RequestStream
from rsm_spark.transport.security import MESSAGE_BYTES_MAX, Security
from rsm_spark.transport.served_call import ServedCall
from rsm_spark.transport.traced_requests import called_by

CONNECTIONS_MAX = 4_000
_OWN_PROCESS = "the replica's own process"
_EXCHANGE = f"/{SERVICE}/Exchange"
_CALL = f"/{SERVICE}/Call"
_RIGHTS = {"Exchange": Right.STATE_READ, "Call": Right.STATE_READ, "Status": Right.STATUS}
"""Rights for the methods of the replica's own service; `rsm_spark.transport.reach` looks into their messages."""


class ReplicaServer:
    """Serves one replica on two ports. They are bound first: the replica advertises them.

    Args:
        log: Name of the replica's log; messages meant for another are refused.
        bind: Address to listen on; beyond loopback only with TLS and a token.
        port: Of gRPC; 0 = the system chooses.
        framed_port: The same for framed calls; -1 = there are none.
        security: TLS, token, principals.
        keys: Looks into what clients ask whose scope is a part of the state; None = no client is served.
        audit_words: Tells commands that are audited; None = none is.
        connections_max: At once, as far as the limit of open files allows.
        ports: Number of ports that share the open files of the process.

    Attributes:
        address: "host:port" of gRPC.
        framed_address: The same of the framed port; "" = there is none.
        guard: Who may call.
        seats: Of the connections to both ports.
        near: This replica for clients in its own process; set the address that clients are told before `start`.
        health: Answers health checks over gRPC; its conditions are set before `start`.
        keys: The same.

    Raises:
        UsageError: TLS or token is missing where it is needed, or a file of theirs cannot be used.
        RsmError: The port is taken. There must be a running event loop.

    """

    def __init__(
        self,
        log: str,
        *,
        bind: str = "127.0.0.1",
        port: int = 0,
        framed_port: int = 0,
        security: Security | None = None,
        keys: KeyScopes | None = None,
        audit_words: AuditWords | None = None,
        connections_max: int = CONNECTIONS_MAX,
        ports: int = PORTS,
    ) -> None:
        self._log = log
        security = security if security is not None else Security()
        self.keys = keys
        self._audit_words = audit_words
        self._port = Http2Port(
            f"log {log}",
            option="--port",
            bind=bind,
            port=port,
            security=security,
            connections_max=connections_max,
            received_bytes_max=MESSAGE_BYTES_MAX,
            ports=ports,
        )
        self.address = self._port.address
        self.near = NearReplica(log, self.address)
        self.guard = self._port.guard
        self.guard.on_admitted = self._admitted
        self.seats = self._port.seats
        self.health = self._port.health
        self._framed: FramedPort | None = None
        self.framed_address = ""
        if framed_port >= 0:
            self._framed = FramedPort(bind, framed_port, seats=self.seats, guard=self.guard, security=security)
            self.framed_address = self._framed.address
        self._intake: RequestAdmission | None = None
        self._streams: dict[RequestStream, None] = {}
        self._is_draining = False
        self._status_json: Callable[[], bytes]

    @property
    def bytes_in_work(self) -> int:
        """Payload bytes of messages without an answer."""
        return self._intake.bytes_in_work if self._intake is not None else 0

    @property
    def leader_address(self) -> str | None:
        """Address of the leader, for clients that asked the wrong one: as far as known, also while this one stops."""
        return self._intake.leader_address if self._intake is not None else None

    @property
    def refused_calls(self) -> int:
        """Calls of nobody, of those who may not, and what went beyond its caller's scope."""
        return self.guard.refused_calls

    @property
    def framed_calls(self) -> int:
        """Connections to the framed port."""
        return len(self._framed.calls) if self._framed is not None else 0

    def _admitted(self, context: Any, owner: str | None) -> bool:
        if not isinstance(context, ServedCall):
            return self._port.admitted(context, owner)
        if not self.seats.know(context.slot, owner):
            return False
        context.welcome()
        return True

    def add_service(
        self,
        name: str,
        handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]],
        rights: Mapping[str, Right],
        *,
        framed: Sequence[str] = (),
    ) -> None:
        """Serve further methods on the same ports, behind the same TLS and guard; before `start`.

        Args:
            name: Of the service, with its package: "rsm.peer.v1.Peer".
            handlers: By method name, made by `grpc.unary_stream_rpc_method_handler` and its like; without
                serializers they get and return bytes. Messages have at most `MESSAGE_BYTES_MAX` bytes.
            rights: What each method needs; one without is refused for everybody.
            framed: Methods that are served over the framed port too: they have a stream of answers, and no serializers.

        """
        if self._framed is not None and framed:
            both_ways = {method: _both_ways(handlers[method]) for method in framed}
            self._framed.add(name, self.guard.wrap(name, both_ways, rights))
        self._port.add_service(name, handlers, rights)

    async def start(self, backend: Backend, status_json: Callable[[], bytes]) -> None:
        """Take calls.

        Args:
            backend: The replica.
            status_json: Returns what the Status call answers.

        """
        self._intake = RequestAdmission(self._log, self.address, backend)
        self._status_json = status_json
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Exchange": grpc.stream_stream_rpc_method_handler(self._exchange),
            "Call": grpc.unary_unary_rpc_method_handler(self._call),
            "Status": grpc.unary_unary_rpc_method_handler(self._status),
        }
        self.add_service(SERVICE, handlers, _RIGHTS, framed=["Exchange"])
        await self._port.start()
        if self._framed is not None:
            self._framed.open()
        # A process has the rights of a replica with itself: what it hands on it has judged at its own port.
        self.near.open(self._intake, reach_of(CLUSTER, self.keys, self._audit_words, _OWN_PROCESS))

    def name_successor(self, address: str) -> None:
        """Tell those who are turned away from now on who leads instead of this replica."""
        if self._intake is not None:
            self._intake.successor = address

    async def stop(self, grace_s: float) -> None:
        """Take nothing more in, end the streams when what they brought is answered; cut what runs after `grace_s`."""
        self._is_draining = True
        self.near.close()
        for stream in list(self._streams):
            stream.drain()
        framed = () if self._framed is None else (self._framed.close(grace_s),)
        await asyncio.gather(self._port.stop(grace_s), *framed)

    async def _exchange(self, _requests: Any, context: Any) -> None:
        await self.exchange(context, _EXCHANGE, str(context.peer()), is_packed=isinstance(context, ServedCall))

    async def exchange(self, context: Any, method: str, peer: str, *, is_packed: bool, way: str = "") -> None:
        """Serve a stream of clients' messages as one of the principal that calls.

        Args:
            context: Of the call.
            method: That was called.
            peer: Where the client called from.
            is_packed: Messages are those of the framed port.
            way: For the audit: how its stream comes here; "" = directly.

        """
        assert self._intake is not None
        reach = await self._reach(method, context, peer, way)
        codec = PACKED_EXCHANGE if is_packed else PROTOBUF_EXCHANGE
        stream = RequestStream(context, self._intake, reach, turns_of(calling_principal(), peer), codec)
        self._streams[stream] = None
        try:
            if not self._is_draining:
                await stream.run()
        finally:
            del self._streams[stream]

    async def _call(self, text: bytes, context: Any) -> bytes:
        assert self._intake is not None
        peer = str(context.peer())
        reach = await self._reach(_CALL, context, peer)
        try:
            received = decode_requests(text)
            with called_by(context):
                answered = self._intake.submit(received, reach, turns_of(calling_principal(), peer))
        except RsmError as error:
            await context.abort(status_code_of(error), str(error))
            raise
        texts = encode_answers(received.message_id, await answered, self._intake.leader_address)
        if len(texts) > 1:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the answers have more than {ANSWERS_BYTES_MAX} bytes: ask for less at once, or use Exchange",
            )
        return texts[0]

    async def _reach(self, method: str, context: Any, peer: str, way: str = "") -> Reach | None:
        """Return what is to be looked at in the messages of who calls; None = nothing."""
        principal = calling_principal()
        fault = fault_of(principal, self._log, self.keys)
        source = peer + way
        if fault:
            self.guard.refused(principal, method, source, fault)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, fault)
        on_refused = functools.partial(self.guard.refused, principal, method, source)
        return reach_of(principal, self.keys, self._audit_words, source, on_refused)

    async def _status(self, _text: bytes, _context: Any) -> bytes:
        return encode_status(self._status_json())


def _both_ways(handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
    """Return what serves a method as a stream both ways: its one request is the first message."""
    given: Any = handler
    if given.request_streaming:
        return handler

    async def read_first(_requests: Any, context: Any) -> None:
        text = await context.read()
        if text is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a message")
        await given.unary_stream(text, context)

    return grpc.stream_stream_rpc_method_handler(read_first)


def owner_of(context: Any) -> str:
    """Return who takes turns with others: the principal that calls, or its address where nobody says who it is."""
    return turns_of(calling_principal(), str(context.peer()))

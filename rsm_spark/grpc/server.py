"""The gRPC server of a replica: its own service, and what others add to the port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
import grpc.aio

from rsm_spark.errors import RsmError
from rsm_spark.grpc.codec import (
    ANSWERS_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    SERVICE,
    decode_requests,
    encode_answers,
    encode_status,
)
from rsm_spark.grpc.intake import Backend, Intake, status_code_of
from rsm_spark.grpc.request_stream import RequestStream
from rsm_spark.grpc.security import Security, TokenCheck, server_port

__all__ = ["ReplicaServer"]

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_concurrent_streams", 1_000),
    ("grpc.so_reuseport", 0),  # A second server on the port is an error, not a sharer.
    # A client that is gone without a word is noticed within half a minute; one that pings like mad is cut off.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 4_000),
    ("grpc.http2.max_ping_strikes", 3),
)


class ReplicaServer:
    """Serves one replica on one port. The port is bound first: the replica advertises it.

    Args:
        log: Name of the replica's log; messages meant for another are refused.
        bind: Address to listen on; beyond loopback only with TLS and a token.
        port: 0 = the system chooses.
        security: TLS and token.

    Attributes:
        address: "host:port".

    Raises:
        UsageError: TLS or token is missing where it is needed, or a file of theirs cannot be used.
        RsmError: The port is taken. There must be a running event loop.

    """

    def __init__(self, log: str, *, bind: str = "127.0.0.1", port: int = 0, security: Security | None = None) -> None:
        self._log = log
        security = security if security is not None else Security()
        token = security.token()
        self._token_check = TokenCheck(token) if token is not None else None
        interceptors = [self._token_check] if self._token_check is not None else None
        self._server = grpc.aio.server(options=_OPTIONS, interceptors=interceptors)
        host = f"[{bind}]" if ":" in bind else bind
        try:
            bound = server_port(self._server, bind, port, security)
        except RuntimeError as error:
            raise RsmError(
                f"cannot serve log {log} on {host}:{port}: the port is taken or not allowed; --port 0 finds a free one"
            ) from error
        self.address = f"{host}:{bound}"
        self._intake: Intake | None = None
        self._streams: dict[RequestStream, None] = {}
        self._is_draining = False
        self._status_json: Callable[[], bytes]

    @property
    def bytes_in_work(self) -> int:
        """Payload bytes of messages without an answer."""
        return self._intake.bytes_in_work if self._intake is not None else 0

    @property
    def leader_address(self) -> str | None:
        """Who leads, for those who asked the wrong replica: as far as known, also when this one is about to stop."""
        return self._intake.leader_address if self._intake is not None else None

    @property
    def refused_calls(self) -> int:
        """Calls without the token, or with another one."""
        return self._token_check.refused_calls if self._token_check is not None else 0

    def add_service(self, name: str, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]) -> None:
        """Serve further methods on the same port, behind the same TLS and token; before `start`.

        Args:
            name: Of the service, with its package: "rsm.peer.v1.Peer".
            handlers: By method name, made by `grpc.unary_stream_rpc_method_handler` and its like; without
                serializers they get and return bytes. Messages have at most `MESSAGE_BYTES_MAX` bytes.

        """
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, dict(handlers)),))

    async def start(self, backend: Backend, status_json: Callable[[], bytes]) -> None:
        """Take calls.

        Args:
            backend: The replica.
            status_json: Returns what the Status call answers.

        """
        self._intake = Intake(self._log, self.address, backend)
        self._status_json = status_json
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Exchange": grpc.stream_stream_rpc_method_handler(self._exchange),
            "Call": grpc.unary_unary_rpc_method_handler(self._call),
            "Status": grpc.unary_unary_rpc_method_handler(self._status),
        }
        self.add_service(SERVICE, handlers)
        await self._server.start()

    def name_successor(self, address: str) -> None:
        """Tell those who are turned away from now on who leads instead of this replica."""
        if self._intake is not None:
            self._intake.successor = address

    async def stop(self, grace_s: float) -> None:
        """Take nothing more in, end the streams when what they brought is answered; cut what runs after `grace_s`."""
        self._is_draining = True
        for stream in list(self._streams):
            stream.drain()
        await self._server.stop(grace_s)

    async def _exchange(self, _requests: Any, context: Any) -> None:
        assert self._intake is not None
        stream = RequestStream(context, self._intake)
        self._streams[stream] = None
        try:
            if not self._is_draining:
                await stream.run()
        finally:
            del self._streams[stream]

    async def _call(self, text: bytes, context: Any) -> bytes:
        assert self._intake is not None
        try:
            received = decode_requests(text)
            answered = self._intake.submit(received)
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

    async def _status(self, _text: bytes, _context: Any) -> bytes:
        return encode_status(self._status_json())

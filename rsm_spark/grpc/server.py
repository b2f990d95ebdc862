"""The gRPC server of a replica: one `submit` a message, answers in the order of the messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import grpc
import grpc.aio

from rsm_spark.core.commands import Answer, Request
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.errors import RsmError
from rsm_spark.grpc.codec import (
    ANSWERS_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    SERVICE,
    ReceivedRequests,
    decode_requests,
    encode_answers,
    encode_status,
)
from rsm_spark.grpc.security import Security, TokenCheck, server_port

__all__ = ["STREAM_MESSAGES_MAX", "Backend", "ReplicaServer"]

STREAM_MESSAGES_MAX = 16
"""Messages of one stream in work; at more the server stops reading, and HTTP/2 flow control slows the client down."""

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

_Work = asyncio.Queue[tuple[int, asyncio.Future[list[Answer]]] | RsmError | None]


class Backend(Protocol):
    """What the server needs of a replica; `rsm_spark.runtime.Replica` is one."""

    @property
    def leader_address(self) -> str | None:
        """Advertised address of the leader, as far as known."""
        ...

    def submit(
        self, requests: Sequence[Request], *, freshness: Freshness = LINEARIZABLE
    ) -> asyncio.Future[list[Answer]]:
        """Queue requests; one future of all their answers."""
        ...


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
        self._backend: Backend
        self._status_json: Callable[[], bytes]

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
        self._backend = backend
        self._status_json = status_json
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Exchange": grpc.stream_stream_rpc_method_handler(self._exchange),
            "Call": grpc.unary_unary_rpc_method_handler(self._call),
            "Status": grpc.unary_unary_rpc_method_handler(self._status),
        }
        self.add_service(SERVICE, handlers)
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Take no new calls; cut what still runs after `grace_s`."""
        await self._server.stop(grace_s)

    async def _exchange(self, _requests: Any, context: Any) -> None:
        # One task reads, this coroutine writes: answers leave in order while further messages are taken in.
        work: _Work = asyncio.Queue(STREAM_MESSAGES_MAX)
        reader = asyncio.get_running_loop().create_task(self._read(context, work))
        try:
            while (item := await work.get()) is not None:
                if isinstance(item, RsmError):
                    await context.abort(_code(item), str(item))
                    return
                message_id, future = item
                for text in encode_answers(message_id, await future, self._backend.leader_address):
                    await context.write(text)
        finally:
            reader.cancel()

    async def _read(self, context: Any, work: _Work) -> None:
        end: RsmError | None = None
        try:
            while (text := await context.read()) is not grpc.aio.EOF:
                received = self._checked(text)
                future = self._backend.submit(received.requests, freshness=received.freshness)
                await work.put((received.message_id, future))
        except RsmError as error:
            end = error
        await work.put(end)

    async def _call(self, text: bytes, context: Any) -> bytes:
        try:
            received = self._checked(text)
        except RsmError as error:
            await context.abort(_code(error), str(error))
            raise
        answers = await self._backend.submit(received.requests, freshness=received.freshness)
        texts = encode_answers(received.message_id, answers, self._backend.leader_address)
        if len(texts) > 1:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the answers have more than {ANSWERS_BYTES_MAX} bytes: ask for less at once, or use Exchange",
            )
        return texts[0]

    async def _status(self, _text: bytes, _context: Any) -> bytes:
        return encode_status(self._status_json())

    def _checked(self, text: bytes) -> ReceivedRequests:
        received = decode_requests(text)
        if received.log != self._log:
            raise _WrongLogError(
                f"this replica, {self.address}, serves the log {self._log!r}, the message is meant for {received.log!r}"
            )
        return received


class _WrongLogError(RsmError):
    """The message is meant for another log: an address that was used again."""


def _code(error: RsmError) -> grpc.StatusCode:
    if isinstance(error, _WrongLogError):
        return grpc.StatusCode.FAILED_PRECONDITION
    return grpc.StatusCode.INVALID_ARGUMENT

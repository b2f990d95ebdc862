"""The gRPC server of a replica: one `submit` a client's message, one gRPC message for all that is answered together."""

from __future__ import annotations

import asyncio
import functools
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
    decode_request_batch,
    decode_requests,
    encode_answers,
    encode_status,
    join_messages,
)
from rsm_spark.grpc.security import Security, TokenCheck, server_port

__all__ = ["STREAM_MESSAGES_MAX", "Backend", "ReplicaServer"]

STREAM_MESSAGES_MAX = 64
"""Messages of one stream in work, of all the clients that share it; at more the server reads no further, and HTTP/2
flow control slows the clients down."""

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
        await _Talk(context, self._backend, self._checked).run()

    async def _call(self, text: bytes, context: Any) -> bytes:
        try:
            received = self._decoded(text)
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

    def _decoded(self, text: bytes) -> ReceivedRequests:
        return self._checked(decode_requests(text))

    def _checked(self, received: ReceivedRequests) -> ReceivedRequests:
        """Return the message if it is meant for this log."""
        if received.log != self._log:
            raise _WrongLogError(
                f"this replica, {self.address}, serves the log {self._log!r}, the message is meant for {received.log!r}"
            )
        return received


class _Talk:
    """One stream of messages: this coroutine writes what is answered, a task reads and submits.

    Args:
        context: gRPC's.
        backend: The replica.
        check: Returns a message that may be served.

    """

    def __init__(self, context: Any, backend: Backend, check: Callable[[ReceivedRequests], ReceivedRequests]) -> None:
        self._context = context
        self._backend = backend
        self._check = check
        self._loop = asyncio.get_running_loop()
        self._answered: list[tuple[int, list[Answer]]] = []
        self._in_work = 0
        self._has_ended = False
        self._error: RsmError | None = None
        self._wake: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Serve the stream to its end."""
        reader = self._loop.create_task(self._read())
        try:
            while True:
                if self._answered:
                    await self._write()
                elif self._has_ended and not self._in_work:
                    break
                else:
                    self._wake = self._loop.create_future()
                    await self._wake
            if self._error is not None:
                await self._context.abort(_code(self._error), str(self._error))
        finally:
            reader.cancel()

    async def _write(self) -> None:
        """Send all that has been answered: one gRPC message, unless it is very large."""
        answered, self._answered = self._answered, []
        leader_address = self._backend.leader_address
        texts: list[bytes] = []
        size = 0
        for message_id, answers in answered:
            for text in encode_answers(message_id, answers, leader_address):
                if texts and size + len(text) > ANSWERS_BYTES_MAX:
                    await self._context.write(join_messages(texts))
                    texts, size = [], 0
                texts.append(text)
                size += len(text)
        await self._context.write(join_messages(texts))

    async def _read(self) -> None:
        try:
            while (text := await self._context.read()) is not grpc.aio.EOF:
                for received in decode_request_batch(text):
                    await self._submit(self._check(received))
        except RsmError as error:
            self._error = error
        finally:
            self._has_ended = True
            self._wake_up()

    async def _submit(self, received: ReceivedRequests) -> None:
        while self._in_work >= STREAM_MESSAGES_MAX:
            self._room = self._loop.create_future()
            await self._room
        self._in_work += 1
        future = self._backend.submit(received.requests, freshness=received.freshness)
        future.add_done_callback(functools.partial(self._on_answered, received.message_id))

    def _on_answered(self, message_id: int, future: asyncio.Future[list[Answer]]) -> None:
        self._in_work -= 1
        if not future.cancelled():
            self._answered.append((message_id, future.result()))
        self._wake_up()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class _WrongLogError(RsmError):
    """The message is meant for another log: an address that was used again."""


def _code(error: RsmError) -> grpc.StatusCode:
    if isinstance(error, _WrongLogError):
        return grpc.StatusCode.FAILED_PRECONDITION
    return grpc.StatusCode.INVALID_ARGUMENT

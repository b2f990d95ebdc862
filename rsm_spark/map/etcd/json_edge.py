"""The ASGI application of etcd's JSON gateway: the methods of the gRPC port, behind a guard of the same files.

    meant for us (Host, Origin) -> path -> who calls, and whether that one may -> body -> work, under the same bounds

What comes before a request is whole is bounded by `ledger.http.connection`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import grpc
import msgspec
from google.protobuf.message import Message

from ledger.errors import LedgerError
from ledger.http.api_settings import ApiSettings
from ledger.http.api_state import ApiState
from ledger.http.asgi import Receive, Scope, Send
from ledger.http.connection_slots import ConnectionSlots
from ledger.http.exchanges import headers_of, read_body, send_reply
from ledger.http.origins import HostCheck
from ledger.http.problems import HttpProblem
from ledger.http.replies import HttpReply, json_reply
from ledger.http.tokens import ADMINISTRATOR
from ledger.rights.file import bearer_token
from rsm_spark.errors import RsmError
from rsm_spark.map.etcd import errors as e
from rsm_spark.map.etcd.backend import EtcdBackend
from rsm_spark.map.etcd.caller import CallHandlers, abort
from rsm_spark.map.etcd.cluster_service import VERSION
from rsm_spark.map.etcd.json_call import JsonCall, JsonCallEndedError
from rsm_spark.map.etcd.json_text import parse_all, parse_json
from rsm_spark.map.etcd.methods import EtcdMethod, EtcdStream
from rsm_spark.transport.caller_turns import CallerTurns
from rsm_spark.transport.guard import Guard

_LOGGER = logging.getLogger(__name__)
_REQUESTS_MAX = 1_000
"""Of one stream: all are in its body."""
_HEALTH_S = 5.0
_BEARER = b"bearer "
_CODES: dict[int, grpc.StatusCode] = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    405: grpc.StatusCode.UNIMPLEMENTED,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    421: grpc.StatusCode.PERMISSION_DENIED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}


class _JsonRoute(NamedTuple):
    handler: Any
    is_stream: bool


class EtcdJsonEdge:
    """See the module.

    Args:
        backend: The map.
        guard: Of this gateway.
        handlers: Of its calls.
        settings: Of its server.
        hosts: Which names are its own.

    Attributes:
        unexpected: Requests that ended in an error of our own.

    """

    def __init__(
        self, backend: EtcdBackend, guard: Guard, handlers: CallHandlers, settings: ApiSettings, hosts: HostCheck
    ) -> None:
        self.unexpected = 0
        self._backend = backend
        self._guard = guard
        self._handlers = handlers
        self._settings = settings
        self._hosts = hosts
        self._state = ApiState(settings, None)
        self._turns = CallerTurns()
        self._routes: dict[str, _JsonRoute] = {}
        guard.on_admitted = self._admitted

    @property
    def seats(self) -> ConnectionSlots:
        """Seats of its connections."""
        return self._state.seats

    def close(self) -> None:
        """End what waits for a long time: the server stops."""
        self._state.close()

    def _admitted(self, call: Any, owner: str | None) -> bool:
        seat = call.seat
        return seat is None or (seat.is_known and seat.owner == owner) or self.seats.know(seat, owner)

    # ---- what is served

    def add(self, service: str, methods: Mapping[str, EtcdMethod | EtcdStream]) -> None:
        """Serve the methods of a service that have a path."""
        handlers: dict[str, Any] = {}
        for name, method in methods.items():
            if isinstance(method, EtcdMethod):
                serve = self._unary(f"/{service}/{name}", method)
            else:
                serve = self._stream(f"/{service}/{name}", method)
            handlers[name] = grpc.stream_stream_rpc_method_handler(serve)
        rights = {name: method.right for name, method in methods.items()}
        for name, handler in self._guard.wrap(service, handlers, rights).items():
            given: Any = handler
            for path in methods[name].paths:
                self._routes[f"/v3/{path}"] = _JsonRoute(given.stream_stream, isinstance(methods[name], EtcdStream))

    def add_open(self, path: str, kind: type[Message], answer: Callable[[Any], Message]) -> None:
        """Serve a method that anybody may call."""

        async def serve(_requests: Any, call: JsonCall) -> None:
            text = await call.body()
            try:
                await call.answer(answer(parse_json(kind, text)), call.peer())
            except RsmError as error:
                await abort(call, error)

        self._routes[f"/v3/{path}"] = _JsonRoute(serve, is_stream=False)

    def _unary(self, name: str, method: EtcdMethod) -> Any:
        handlers = self._handlers

        async def serve(_requests: Any, call: JsonCall) -> None:
            try:
                caller = handlers.caller(name, call)
                text = await call.body()
                with handlers.bounds.room(caller.owner, len(text)):
                    async with self._turns.of(caller.owner):
                        request = parse_json(method.kind, text)
                    await call.answer(await method.call(request, caller), caller.owner)
            except JsonCallEndedError:
                raise
            except (RsmError, LedgerError, msgspec.MsgspecError, OverflowError) as error:
                await abort(call, error)

        return serve

    def _stream(self, name: str, method: EtcdStream) -> Any:
        given: Any = method.handler
        inner = given.stream_stream if given.request_streaming else given.unary_stream
        count_max = _REQUESTS_MAX if given.request_streaming else 1

        async def serve(_requests: Any, call: JsonCall) -> None:
            try:
                caller = self._handlers.caller(name, call)
                text = await call.body()
                async with self._turns.of(caller.owner):
                    requests = parse_all(method.kind, text, count_max)
            except RsmError as error:
                await abort(call, error)
            sent = [request.SerializeToString() for request in requests]
            call.begin_stream(caller.owner, sent, method.answers, is_held=method.is_held)
            await inner(sent[0], call)
            await call.finish_stream()

        return serve

    # ---- one request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        try:
            headers = headers_of(scope)
            self._hosts.check(headers.get(b"host"), headers.get(b"origin"))
            call = JsonCall(
                scope, receive, send,
                lambda: read_body(self._state, ADMINISTRATOR, headers, scope, receive, self._settings.body_bytes_max),
                self._turns, self._settings.write_s,
            )  # fmt: skip
            reply = await self._answer(scope, call, headers)
        except HttpProblem as problem:
            reply = _told(problem)
        if reply is not None:
            await send_reply(reply, scope, send)

    async def _answer(self, scope: Scope, call: JsonCall, headers: dict[bytes, bytes]) -> HttpReply | None:
        path = scope["raw_path"].decode("latin-1")
        if scope["method"] == "GET" and path in {"/health", "/version"}:
            return await (self._health() if path == "/health" else _version())
        route = self._routes.get(path)
        if route is None:
            raise HttpProblem(404, "not-found", f"there is nothing at {path[:100]}; see docs/etcd.md")
        if scope["method"] != "POST":
            raise HttpProblem(405, "method-not-allowed", "send it with POST", headers=((b"allow", b"POST"),))
        names = scope.get("extensions", {}).get("rsm.certificate", ())
        loop = asyncio.get_running_loop()
        serving = loop.create_task(self._serve(route, call, _token(headers), names))
        gone = loop.create_task(_gone(call))
        waiting: list[asyncio.Future[Any]] = [serving, gone]
        if route.is_stream:
            waiting.append(self._state.closing)
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            has_left = gone.done()
        finally:
            for task in (serving, gone):
                task.cancel()
            await asyncio.wait([serving, gone])
        if not serving.cancelled():
            serving.result()
        elif not has_left:
            await _end(call, grpc.StatusCode.UNAVAILABLE, e.STOPPED)
        return call.reply

    async def _serve(self, route: _JsonRoute, call: JsonCall, token: bytes, names: Sequence[str]) -> None:
        try:
            self._guard.enter(token, names)
            await route.handler(None, call)
        except JsonCallEndedError as error:
            await _end(call, error.code, str(error))
        except HttpProblem:
            raise
        except Exception as error:
            self.unexpected += 1
            _LOGGER.exception("a call of the JSON gateway failed", extra={"peer": call.peer()}, exc_info=error)
            await _end(call, grpc.StatusCode.UNKNOWN, "rsm: the call failed at the replica: its log says why")

    async def _health(self) -> HttpReply:
        try:
            async with asyncio.timeout(_HEALTH_S):
                await self._backend.linearizable()
        except (TimeoutError, RsmError, LedgerError) as error:
            why = str(error) or f"no answer within {_HEALTH_S:g} s"
            return json_reply({"health": "false", "reason": why}, status=503)
        raised = self._backend.alarms
        if raised:
            return json_reply({"health": "false", "reason": f"ALARM {raised[0].kind.upper()}"}, status=503)
        return json_reply({"health": "true", "reason": ""})


async def _version() -> HttpReply:
    return json_reply({"etcdserver": VERSION, "etcdcluster": VERSION})


async def _end(call: JsonCall, code: grpc.StatusCode, details: str) -> None:
    has_begun = call.has_begun
    await call.end(code, details)
    if has_begun:
        await call.finish_stream()


async def _gone(call: JsonCall) -> None:
    """Wait until the caller leaves: behind its body nothing else comes."""
    await call.is_read.wait()
    while (await call.receive())["type"] != "http.disconnect":
        pass


def _token(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the token of a request, as etcd's clients send it, or behind `Bearer`; empty = there is none."""
    text = headers.get(b"authorization", b"")
    return bearer_token(text) if text[: len(_BEARER)].lower() == _BEARER else text


def _told(problem: HttpProblem) -> HttpReply:
    code = _CODES.get(problem.status, grpc.StatusCode.UNKNOWN)
    body = msgspec.json.encode({"code": code.value[0], "message": problem.detail})
    return HttpReply(problem.status, body, problem.headers)

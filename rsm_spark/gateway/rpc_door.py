"""gRPC of a gateway, `rsm log serve --grpc-port`: each method is a route of HTTP, with the same handler and bounds.

    the port's guard (a token or a certificate, the right) -> the entrance, as over HTTP -> decoding -> handler

A refusal is a status of gRPC, with its reason in the trailing metadata: see `logs.proto`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import grpc

from ledger.http.problems import HttpProblem
from ledger.rights.principal import Principal
from ledger.rights.table import Right
from rsm_spark.core.producers import PartitionsChangedError
from rsm_spark.gateway import rpc_codec as codec
from rsm_spark.gateway.calls import GatewayCall, GatewayRoute
from rsm_spark.gateway.entrance import GatewayEntrance, check_log
from rsm_spark.gateway.opened_readers import AnyReader, PlacedRecord, parse_start
from rsm_spark.gateway.reading import follow, read_page
from rsm_spark.gateway.settings import GatewaySettings
from rsm_spark.transport.connections import peer_key
from rsm_spark.transport.http2_port import Http2Port
from rsm_spark.transport.security import Security

_AUTHORIZATION = "authorization"
_CODES = {
    307: grpc.StatusCode.FAILED_PRECONDITION,
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    410: grpc.StatusCode.OUT_OF_RANGE,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
}
_OK = 200
_SAME = (
    ("Append", "POST", "/{log}/records"),
    ("WriteBatch", "POST", "/{log}/batches"),
    ("Read", "GET", "/{log}/records"),
    ("Tail", "GET", "/{log}/tail"),
    ("List", "GET", ""),
    ("Describe", "GET", "/{log}"),
    ("Create", "PUT", "/{log}"),
    ("Grow", "POST", "/{log}/partitions"),
    ("Truncate", "POST", "/{log}/truncate"),
    ("Delete", "DELETE", "/{log}"),
)
"""Each method, with method and path of the route that does the same."""


class RpcMethod:
    """One method, and the route that does the same over HTTP.

    Args:
        name: Of the method.
        route: Whose right, handler and audit it has.
        decode: Reads a request.
        encode: Writes an answer; None = a stream is served otherwise.

    Attributes:
        counts: Calls that ended, by status.

    """

    def __init__(
        self,
        name: str,
        route: GatewayRoute,
        decode: Callable[[bytes], codec.RpcRequest],
        encode: Callable[[Any], bytes] | None = None,
    ) -> None:
        self.name = name
        self.route = route
        self.decode = decode
        self.encode = encode
        self.counts: dict[str, int] = {}


class GatewayRpcDoor:
    """See the module. It listens from the moment it is made, and serves between `start` and `stop`.

    Args:
        entrance: Who gets in.
        routes: Of HTTP.
        settings: Of the gateway; its `grpc_port` is set.
        host: Name under which clients reach it, unless the settings say otherwise.
        is_ready: Says whether clients should be sent here.

    Attributes:
        address: "host:port" that clients are told.
        port: The port itself.
        methods: What is served.

    Raises:
        UsageError: A file cannot be used.
        RsmError: The port is taken.

    """

    def __init__(
        self,
        entrance: GatewayEntrance,
        routes: Sequence[GatewayRoute],
        settings: GatewaySettings,
        host: str,
        is_ready: Callable[[], bool],
    ) -> None:
        assert settings.grpc_port is not None
        http = settings.http
        self._entrance = entrance
        self._drain_s = http.drain_s
        self._write_s = http.write_s
        self.port = Http2Port(
            "logs over gRPC",
            option="--grpc-port",
            bind=http.bind,
            port=settings.grpc_port,
            security=Security(
                tls_cert=http.tls_cert,
                tls_key=http.tls_key,
                tls_client_ca=http.tls_client_ca,
                principals=http.principals or http.tokens_file,
            ),
            connections_max=http.connections_max,
            received_bytes_max=http.body_bytes_max,
        )
        self.address = settings.grpc_advertise or f"{host}:{self.port.address.rpartition(':')[2]}"
        self.port.guard.on_refused = self._refused
        self.port.health.conditions[""] = is_ready
        self.port.health.conditions[codec.LOGS_SERVICE] = is_ready
        self.methods = _methods({(one.method, one.path): one for one in routes})
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {}
        rights: dict[str, Right] = {}
        for method in self.methods:
            assert method.route.right is not None
            # Where nothing is demanded everybody is an operator, as over HTTP; the guard takes them for a replica.
            rights[method.name] = Right.STATE_READ if self.port.guard.is_open else method.route.right
            handlers[method.name] = self._handler(method)
        self.port.add_service(codec.LOGS_SERVICE, handlers, rights)

    async def start(self) -> None:
        """Serve from now on."""
        await self.port.start()

    async def stop(self) -> None:
        """Take no more, let what runs end; tails end once the state is closed."""
        await self.port.stop(self._drain_s)

    def _refused(self, principal: Principal | None, method: str, peer: str, why: str) -> None:
        """Take note of who was refused by the guard."""
        said: dict[str, object] = {
            "principal": "" if principal is None else principal.name,
            "role": "" if principal is None else principal.role.value,
            "source": peer,
            "action": method,
            "target": "",
            "outcome": f"refused ({why})",
        }
        self._entrance.refusals.add(said, self._entrance.state.clock_s(), reason="not-allowed" if principal else "")

    # ---- one call

    def _handler(self, method: RpcMethod) -> grpc.RpcMethodHandler[bytes, bytes]:
        if method.name == "Read":
            answer: Any = self._read
        elif method.name == "Tail":
            answer = self._tail
        else:

            async def unary(text: bytes, context: Any) -> bytes:
                answered: bytes = await self._serve(method, text, context, self._answer)
                return answered

            return grpc.unary_unary_rpc_method_handler(unary)

        async def stream(text: bytes, context: Any) -> None:
            await self._serve(method, text, context, answer)

        handler: Any = grpc.unary_stream_rpc_method_handler
        made: grpc.RpcMethodHandler[bytes, bytes] = handler(stream)
        return made

    async def _serve(self, method: RpcMethod, text: bytes, context: Any, answer: Any) -> Any:
        state, route = self._entrance.state, method.route
        call = GatewayCall(state, _headers(context), _scope(context))
        action = f"{route.method} {route.path} (gRPC {method.name})"
        try:
            with self._entrance.admitted(route, call):
                state.take(call.caller, call.caller.bytes, len(text), "bytes")
                asked = await self._entrance.decode(call, text, method.decode)
                call.log, call.query, call.body = asked
                check_log(call)
                answered = await answer(method, call, context)
        except Exception as error:  # noqa: BLE001 - the outermost place where an error can become an answer
            problem = self._entrance.problem(error, route, call, action)
            _count(method, _code(problem))
            self._entrance.answered(route, call, action, problem.status)
            await _abort(context, problem)
        _count(method, grpc.StatusCode.OK)
        self._entrance.answered(route, call, action, _OK)
        return answered

    @staticmethod
    async def _answer(method: RpcMethod, call: GatewayCall, _context: Any) -> bytes:
        assert method.encode is not None
        try:
            return method.encode(await method.route.handler(call))
        except PartitionsChangedError as changed:
            return codec.encode_partitions_changed(changed.partition_count, list(changed.positions))

    async def _read(self, _method: RpcMethod, call: GatewayCall, context: Any) -> None:
        page = await read_page(call)
        for text in codec.encode_page(page):
            async with asyncio.timeout(self._write_s):
                await context.write(text)

    async def _tail(self, _method: RpcMethod, call: GatewayCall, context: Any) -> None:
        await follow(call, parse_start(call.query.begin), _RpcTail(context, self._write_s))


class _RpcTail:
    """Tail as a stream of messages; one whose reader has left is cancelled by the port."""

    def __init__(self, context: Any, write_s: float) -> None:
        self._context = context
        self._write_s = write_s

    @property
    def is_gone(self) -> bool:
        return bool(self._context.is_over)

    async def begin(self, reader: AnyReader) -> None:
        await self.beat(reader)

    async def send(self, records: list[PlacedRecord], _reader: AnyReader) -> None:
        for text in codec.encode_tailed(records):
            await self._write(text)

    async def beat(self, reader: AnyReader) -> None:
        await self._write(codec.encode_tail_news(reader.next))

    async def ended(self, reader: AnyReader) -> None:
        await self._write(codec.encode_tail_news(reader.next, is_ended=True))

    async def _write(self, text: bytes) -> None:
        async with asyncio.timeout(self._write_s):
            await self._context.write(text)


def _methods(routes: dict[tuple[str, str], GatewayRoute]) -> list[RpcMethod]:
    return [
        RpcMethod(name, routes[method, f"/v1/logs{path}"], codec.DECODERS[name], codec.ENCODERS.get(name))
        for name, method, path in _SAME
    ]


def _code(problem: HttpProblem) -> grpc.StatusCode:
    return _CODES.get(problem.status, grpc.StatusCode.UNKNOWN)


def _count(method: RpcMethod, code: grpc.StatusCode) -> None:
    method.counts[code.name] = method.counts.get(code.name, 0) + 1


def _headers(context: Any) -> dict[bytes, bytes]:
    """Return what a caller says of who it is, as headers."""
    tokens = [value for key, value in context.head.metadata if key == _AUTHORIZATION]
    return {_AUTHORIZATION.encode(): tokens[0]} if tokens else {}


def _scope(context: Any) -> dict[str, Any]:
    """Return where a call comes from, as ASGI has it."""
    return {"client": peer_key(context.peer()), "extensions": {"rsm.certificate": context.names}}


async def _abort(context: Any, problem: HttpProblem) -> NoReturn:
    """End a call with a problem: its reason and its numbers are metadata."""
    more = tuple((f"rsm-{name.replace('_', '-')}", str(value)) for name, value in problem.more.items())
    await context.abort(_code(problem), problem.detail, (("rsm-reason", problem.reason), *more))
    raise problem

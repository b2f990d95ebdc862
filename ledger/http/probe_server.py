"""A small HTTP server: one small request a connection, for supervisors, load balancers, Prometheus and operators.

Answers are pages, or streams that go on: see `ledger.http.probe_streams`.

Beyond loopback only with TLS and a token. Who comes is answered though others came before and say nothing: the oldest
of those is cut. What is asked without a right is refused and counted; what changes something is a line of the audit.
Why this is not the broker's HTTP server: docs/decisions/0011-each-process-has-one-http-server.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

import h11

from ledger.audit_lines import Refusals, tell
from ledger.errors import LedgerError, UsageError
from ledger.http.acceptor import Acceptor, listen
from ledger.http.connection_slots import ConnectionSlot, ConnectionSlots, address_key
from ledger.http.host_names import HostNames
from ledger.http.probe_streams import OWN_STREAMS_MAX, StreamDesk
from ledger.http.routes import BODY_BYTES_MAX, ProbePage, ProbeRequest, ProbeRoute, ProbeStream, text_page
from ledger.rights.callers import Callers
from ledger.rights.file import bearer_token
from ledger.rights.principal import Principal, turns_name
from ledger.rights.table import may
from ledger.tls import TlsSettings, certificate_names, is_loopback, server_context

_LOGGER = logging.getLogger(__name__)
_REQUEST_BYTES_MAX = 8 * 1024
_REQUEST_S_MAX = 5.0
_ANSWER_S_MAX = 20.0
_CONNECTIONS_MAX = 64
_SLOW_MAX = 2
_CLIENT_FAULT = 400
_READS: Final = frozenset({b"GET", b"HEAD"})


class ProbeServer:
    """Answers small requests.

    Args:
        routes: By method and path, "GET /healthz"; GET answers HEAD too.
        bind: Address to listen on.
        port: 0 = the system chooses.
        tls: Certificate; needed beyond loopback.
        callers: Who may ask; beyond loopback something has to be demanded.
        allowed_hosts: Names under which it is asked, besides those of loopback.
        refusals: Counts those who were not answered for lack of a right; None = counts of its own.

    Attributes:
        address: "host:port", once started.
        refusals: See above.
        streams: Answers that go on.

    """

    def __init__(
        self,
        routes: Mapping[str, ProbeRoute],
        *,
        bind: str = "127.0.0.1",
        port: int = 0,
        tls: TlsSettings | None = None,
        callers: Callers | None = None,
        allowed_hosts: tuple[str, ...] = (),
        refusals: Refusals | None = None,
    ) -> None:
        self._routes = routes
        self._paths = list(dict.fromkeys(route.partition(" ")[2] for route in routes))
        self._bind = bind
        self._port = port
        self._tls = tls
        self._callers = callers or Callers()
        self._hosts = HostNames(bind, allowed_hosts, is_loopback=is_loopback(bind))
        self._seats = ConnectionSlots(_CONNECTIONS_MAX, of_owner=_CONNECTIONS_MAX, of_address=_CONNECTIONS_MAX)
        self._slow = asyncio.Semaphore(_SLOW_MAX)
        self._door: Acceptor | None = None
        self.refusals = refusals or Refusals()
        self.streams = StreamDesk()
        self.address = ""

    async def start(self) -> None:
        """Listen.

        Raises:
            UsageError: TLS or token is missing where it is needed, a file cannot be used, or the port is taken.

        """
        settings = self._tls
        if not is_loopback(self._bind) and (settings is None or self._callers.is_open):
            raise UsageError(
                f"cannot answer HTTP on {self._bind} without a certificate (--tls-cert, --tls-key) and a token "
                "(--token-file, or --principals): give them, or use --http-bind 127.0.0.1"
            )
        tls = None if settings is None else server_context(settings)
        try:
            listening = listen(self._bind, self._port)
        except OSError as error:
            raise UsageError(
                f"cannot answer HTTP on {self._bind}:{self._port}: {error.strerror}; --http-port 0 finds a free port"
            ) from error
        host = f"[{self._bind}]" if ":" in self._bind else self._bind
        self.address = f"{host}:{listening.getsockname()[1]}"
        self._door = Acceptor(
            listening, self._seats, self._protocol, tls=tls, first_byte_s=_REQUEST_S_MAX, handshake_s=_REQUEST_S_MAX
        )
        self._door.open()

    async def stop(self) -> None:
        """Listen no more, and have streams end."""
        self.streams.close()
        if self._door is not None:
            await self._door.close()

    def _protocol(self, seat: ConnectionSlot) -> asyncio.BaseProtocol:
        reader = asyncio.StreamReader(limit=_REQUEST_BYTES_MAX)
        return asyncio.StreamReaderProtocol(reader, functools.partial(self._serve, seat))

    async def _serve(self, seat: ConnectionSlot, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seat.cut = writer.transport.abort
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_REQUEST_BYTES_MAX)
        try:
            with contextlib.ExitStack() as seats:
                page = await self._page(http, reader, writer.transport, seats)
                if isinstance(page, _AllowedStream):
                    self._seats.know(seat)
                    await self.streams.run(page.stream, http, reader, writer, page.is_allowed)
                    return
            writer.write(_encoded(http, page))
            # Whoever asks and does not read keeps neither memory nor others out for long.
            async with asyncio.timeout(_REQUEST_S_MAX):
                await writer.drain()
        except (TimeoutError, OSError):
            pass
        finally:
            writer.close()
            try:
                async with asyncio.timeout(_REQUEST_S_MAX):
                    await writer.wait_closed()
            except (TimeoutError, OSError):
                writer.transport.abort()
            self._seats.give_back(seat)

    async def _page(
        self,
        http: h11.Connection,
        reader: asyncio.StreamReader,
        transport: asyncio.BaseTransport,
        seats: contextlib.ExitStack,
    ) -> ProbePage | _AllowedStream:
        try:
            # The same for whoever opens connections and says nothing.
            async with asyncio.timeout(_REQUEST_S_MAX):
                request = await _request(http, reader)
                limit = self._body_bytes_max(request, transport)
                body = b"" if request.method in _READS else await _body(http, reader, limit)
        except h11.RemoteProtocolError as error:
            return ProbePage(400, f"expected an HTTP/1.1 request: {error}\n".encode())
        page = await self._checked(request, body, transport, seats)
        return page._replace(body=b"") if isinstance(page, ProbePage) and request.method == b"HEAD" else page

    async def _checked(
        self, request: h11.Request, body: bytes, transport: asyncio.BaseTransport, seats: contextlib.ExitStack
    ) -> ProbePage | _AllowedStream:
        if not all(self._is_own(host.decode("latin-1")) for host in _values(request, b"host")):
            return ProbePage(421, b"this process is not asked under that name: use 127.0.0.1, or --allowed-hosts\n")
        route = self._routes.get(_action(request))
        is_page = request.method in _READS and (route is None or not route.is_stream)
        if not is_page and not self._is_of_own_page(request):
            return text_page("a page of another origin asked; only programs may, and this server's own", 403)
        return await self._answer(request, body, transport, seats)

    def _is_of_own_page(self, request: h11.Request) -> bool:
        """Return whether no browser asks for a page from elsewhere: it could do so without having any right itself."""
        hosts = {host.lower() for host in _values(request, b"host")}
        return all(origin.lower().partition(b"://")[2] in hosts for origin in _values(request, b"origin"))

    def _body_bytes_max(self, request: h11.Request, transport: asyncio.BaseTransport) -> int:
        """Return how long a body may be: longer than that of anybody for who may send it there."""
        route = self._routes.get(_action(request))
        principal = self._principal(request, transport)
        if route is None or principal is None or not may(principal, route.right):
            return BODY_BYTES_MAX
        return route.body_bytes_max

    def _principal(self, request: h11.Request, transport: asyncio.BaseTransport) -> Principal | None:
        token = bearer_token(next(iter(_values(request, b"authorization")), b""))
        return self._callers.of(token, certificate_names(transport))

    async def _answer(
        self, request: h11.Request, body: bytes, transport: asyncio.BaseTransport, seats: contextlib.ExitStack
    ) -> ProbePage | _AllowedStream:
        path, _, query = request.target.decode("ascii").partition("?")
        is_head = request.method == b"HEAD"
        method = "GET" if is_head else request.method.decode("ascii")
        source = _shown(transport.get_extra_info("peername"))
        principal = self._principal(request, transport)
        if principal is None:
            self._refuse(None, source, method, "unknown-caller", "no principal's token or certificate")
            return text_page("this process knows no such caller: send Authorization: Bearer <token>", 401)
        route = self._routes.get(f"{method} {path}")
        if route is None:
            if path in self._paths:
                methods = ", ".join(one.partition(" ")[0] for one in self._routes if one.partition(" ")[2] == path)
                return text_page(f"{path} takes only {methods}", 405)
            return text_page(f"there are {', '.join(self._paths)}", 404)
        if not may(principal, route.right):
            self._refuse(principal, source, f"{method} {path}", "no-right", f"needs the right to {route.right.value}")
            return text_page(f"{path} needs the right to {route.right.value}: {principal} has it not", 403)
        pairs = tuple(parse_qsl(query, keep_blank_values=True))
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        asked = ProbeRequest(path, dict(pairs), body, principal, source, pairs, headers)
        if route.is_stream:
            if is_head:
                return text_page("a stream has no length to tell: GET it", 405)
            owner = turns_name(principal, address_key(source.rpartition(":")[0]))
            if not seats.enter_context(self.streams.seat(owner)):
                return text_page(
                    f"{self.streams.open_count} streams are open here, at most {OWN_STREAMS_MAX} of one caller: ask "
                    "another process, or close some",
                    429,
                )
        page = await self._made(route, asked)
        if isinstance(page, ProbeStream):
            # Whose entry has changed comes again, with what it may do now.
            return _AllowedStream(page, lambda: self._principal(request, transport) == principal)
        if route.is_change:
            outcome = "done" if page.status < _CLIENT_FAULT else page.body.decode(errors="replace").strip()
            tell(_line(principal, source, f"{method} {path}", outcome))
        return page

    async def _made(self, route: ProbeRoute, asked: ProbeRequest) -> ProbePage | ProbeStream:
        try:
            async with asyncio.timeout(_ANSWER_S_MAX):
                async with self._slow if route.is_slow else contextlib.nullcontext():
                    page = route.answer(asked)
                    return page if isinstance(page, ProbePage) else await page
        except TimeoutError:
            return text_page(f"not answered within {_ANSWER_S_MAX:g} s", 503)
        except LedgerError as error:
            return text_page(str(error), 503)
        except Exception:
            _LOGGER.exception("a page could not be made", extra={"path": asked.path})
            return text_page("this page could not be made: the log of the process says why", 500)

    def _refuse(self, principal: Principal | None, source: str, action: str, reason: str, why: str) -> None:
        said = _line(principal, source, action, f"refused ({reason}): {why}")
        self.refusals.add(said, time.monotonic(), reason=reason)

    def _is_own(self, host: str) -> bool:
        name = self._hosts.name(host)
        return name is not None and self._hosts.is_own(name)


class _AllowedStream(NamedTuple):
    """Stream of a caller.

    Attributes:
        stream: The stream.
        is_allowed: Returns whether it may still have it.

    """

    stream: ProbeStream
    is_allowed: Callable[[], bool]


def _action(request: h11.Request) -> str:
    path = request.target.decode("ascii").partition("?")[0]
    return f"{request.method.decode('ascii')} {path}"


def _line(principal: Principal | None, source: str, action: str, outcome: str) -> dict[str, object]:
    name, role = ("", "") if principal is None else (principal.name, principal.role.value)
    return {"principal": name, "role": role, "source": source, "action": action, "target": "HTTP", "outcome": outcome}


def _shown(peer: object) -> str:
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) >= 2 else str(peer or "")


def _values(request: h11.Request, wanted: bytes) -> list[bytes]:
    return [value for name, value in request.headers if name == wanted]


async def _request(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Request:
    """Read the head of a request; what follows it is not read.

    Raises:
        RemoteProtocolError: It is none, or is too long.
        ConnectionAbortedError: The connection ended before anything was asked: nobody waits for an answer.

    """
    left = _REQUEST_BYTES_MAX
    while (event := http.next_event()) is h11.NEED_DATA:
        if left == 0:
            raise h11.RemoteProtocolError(f"its head is longer than {_REQUEST_BYTES_MAX} bytes")
        data = await reader.read(left)
        left -= len(data)
        http.receive_data(data)
    if not isinstance(event, h11.Request):
        raise ConnectionAbortedError("nothing was asked")
    if not event.http_version.startswith(b"1."):
        raise h11.RemoteProtocolError(f"it says HTTP/{event.http_version.decode('ascii')}")
    return event


async def _body(http: h11.Connection, reader: asyncio.StreamReader, bytes_max: int) -> bytes:
    """Read the body of a request.

    Raises:
        RemoteProtocolError: It is too long, or the connection ended before its end.

    """
    body = bytearray()
    while not isinstance(event := http.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_REQUEST_BYTES_MAX))
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            raise h11.RemoteProtocolError("the connection ended before its body did")
        if len(body) > bytes_max:
            raise h11.RemoteProtocolError(f"its body is longer than {bytes_max} bytes")
    return bytes(body)


def _encoded(http: h11.Connection, page: ProbePage) -> bytes:
    response = h11.Response(
        status_code=page.status,
        reason=HTTPStatus(page.status).phrase,
        headers=[("Content-Type", page.content_type), ("Content-Length", str(len(page.body))),
                 ("Connection", "close"), ("Cache-Control", "no-store")],
    )  # fmt: skip
    return http.send(response) + http.send(h11.Data(data=page.body)) + http.send(h11.EndOfMessage())

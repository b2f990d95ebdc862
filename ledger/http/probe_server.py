"""A small HTTP server: GET of a few pages, for supervisors, load balancers and Prometheus.

One small request a connection; anything else is refused. Beyond loopback only with TLS and a token. Who comes is
answered though others came before and say nothing: the oldest of those is cut. Why this is not the broker's HTTP
server: docs/decisions/0011-each-process-has-one-http-server.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

import h11

from ledger.errors import UsageError
from ledger.http.acceptor import Acceptor, listen
from ledger.http.connection_slots import ConnectionSlot, ConnectionSlots
from ledger.http.host_names import HostNames
from ledger.rights.callers import Callers
from ledger.rights.file import bearer_token
from ledger.rights.table import Right, may
from ledger.tls import TlsSettings, certificate_names, is_loopback, server_context

_REQUEST_BYTES_MAX = 8 * 1024
_REQUEST_S_MAX = 5.0
_CONNECTIONS_MAX = 64
_TEXT = "text/plain; charset=utf-8"
_RIGHTS = {
    "/healthz": Right.STATUS,
    "/readyz": Right.STATUS,
    "/status": Right.STATUS,
    "/metrics": Right.CLUSTER_READ,
}
"""Right that each page needs; a page that is not here is served to nobody."""


class ProbePage(NamedTuple):
    """One answer."""

    status: int
    body: bytes
    content_type: str = _TEXT


class ProbeServer:
    """Answers GET requests for a few pages.

    Args:
        pages: By path.
        bind: Address to listen on.
        port: 0 = the system chooses.
        tls: Certificate; needed beyond loopback.
        callers: Who may ask; beyond loopback something has to be demanded.
        allowed_hosts: Names under which it is asked, besides those of loopback.

    Attributes:
        address: "host:port", once started.

    """

    def __init__(
        self,
        pages: dict[str, Callable[[], ProbePage]],
        *,
        bind: str = "127.0.0.1",
        port: int = 0,
        tls: TlsSettings | None = None,
        callers: Callers | None = None,
        allowed_hosts: tuple[str, ...] = (),
    ) -> None:
        self._pages = pages
        self._bind = bind
        self._port = port
        self._tls = tls
        self._callers = callers or Callers()
        self._hosts = HostNames(bind, allowed_hosts, is_loopback=is_loopback(bind))
        self._seats = ConnectionSlots(_CONNECTIONS_MAX, of_owner=_CONNECTIONS_MAX, of_address=_CONNECTIONS_MAX)
        self._door: Acceptor | None = None
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
        """Listen no more."""
        if self._door is not None:
            await self._door.close()

    def _protocol(self, seat: ConnectionSlot) -> asyncio.BaseProtocol:
        reader = asyncio.StreamReader(limit=_REQUEST_BYTES_MAX)
        return asyncio.StreamReaderProtocol(reader, functools.partial(self._serve, seat))

    async def _serve(self, seat: ConnectionSlot, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seat.cut = writer.transport.abort
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_REQUEST_BYTES_MAX)
        try:
            # Whoever opens connections and says nothing keeps neither memory nor others out for long.
            async with asyncio.timeout(_REQUEST_S_MAX):
                try:
                    request = await _request(http, reader)
                except h11.RemoteProtocolError as error:
                    page = ProbePage(400, f"expected an HTTP/1.1 request: {error}\n".encode())
                else:
                    page = self._answer(request, certificate_names(writer.transport))
                writer.write(_encoded(http, page))
                await writer.drain()
        except (TimeoutError, OSError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._seats.give_back(seat)

    def _answer(self, request: h11.Request, names: tuple[str, ...]) -> ProbePage:
        if request.method not in {b"GET", b"HEAD"}:
            return ProbePage(405, b"only GET\n")
        if not all(self._is_own(host.decode("latin-1")) for host in _values(request, b"host")):
            return ProbePage(421, b"this process is not asked under that name: use 127.0.0.1, or --allowed-hosts\n")
        path = request.target.decode("ascii").partition("?")[0]
        denied = self._denied(path, next(iter(_values(request, b"authorization")), b""), names)
        if denied is not None:
            return denied
        page = self._pages.get(path)
        if page is None:
            return ProbePage(404, f"there are {', '.join(self._pages)}\n".encode())
        answer = page()
        return answer._replace(body=b"") if request.method == b"HEAD" else answer

    def _denied(self, path: str, said: bytes, names: tuple[str, ...]) -> ProbePage | None:
        """Return why a caller may not have a page; None = it may."""
        principal = self._callers.of(bearer_token(said), names)
        if principal is None:
            return ProbePage(401, b"this process knows no such caller: send Authorization: Bearer <token>\n")
        right = _RIGHTS.get(path)
        if path in self._pages and (right is None or not may(principal, right)):
            return ProbePage(403, f"{path} is not for {principal}\n".encode())
        return None

    def _is_own(self, host: str) -> bool:
        name = self._hosts.name(host)
        return name is not None and self._hosts.is_own(name)


def _values(request: h11.Request, wanted: bytes) -> list[bytes]:
    return [value for name, value in request.headers if name == wanted]


async def _request(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Request:
    """Read the head of a request; what follows it is not read.

    Raises:
        RemoteProtocolError: It is none, is too long, or the connection ended before.

    """
    left = _REQUEST_BYTES_MAX
    while (event := http.next_event()) is h11.NEED_DATA:
        if left == 0:
            raise h11.RemoteProtocolError(f"its head is longer than {_REQUEST_BYTES_MAX} bytes")
        data = await reader.read(left)
        left -= len(data)
        http.receive_data(data)
    if not isinstance(event, h11.Request):
        raise h11.RemoteProtocolError("the connection ended before one came")
    if not event.http_version.startswith(b"1."):
        raise h11.RemoteProtocolError(f"it says HTTP/{event.http_version.decode('ascii')}")
    return event


def _encoded(http: h11.Connection, page: ProbePage) -> bytes:
    response = h11.Response(
        status_code=page.status,
        reason=HTTPStatus(page.status).phrase,
        headers=[("Content-Type", page.content_type), ("Content-Length", str(len(page.body))),
                 ("Connection", "close"), ("Cache-Control", "no-store")],
    )  # fmt: skip
    return http.send(response) + http.send(h11.Data(data=page.body)) + http.send(h11.EndOfMessage())

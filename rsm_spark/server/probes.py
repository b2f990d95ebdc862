"""Health over HTTP, for supervisors, load balancers and Prometheus.

    GET /healthz   200 while the process works; 503 once the replica has stopped by itself, with why
    GET /readyz    200 while requests make sense here: it leads, or follows closely enough, and has a session; else 503
    GET /metrics   Prometheus' text format
    GET /status    the replica's status as JSON

One small request a connection; anything else is refused. Beyond loopback only with TLS and the token, as gRPC. Who
comes is answered though others came before and say nothing: the oldest of those is cut. Why this is not the broker's
HTTP server: docs/decisions/0011-each-process-has-one-http-server.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, NamedTuple

import h11
import msgspec

from ledger.errors import UsageError
from ledger.options import NAMES, SECONDS, Option
from ledger.ports import SessionState
from ledger.rights.file import bearer_token
from ledger.rights.table import Right, may
from ledger.tls import TlsSettings, certificate_names, is_loopback, server_context
from rsm_spark.runtime.status import ReplicaRole, ReplicaStatus
from rsm_spark.transport.acceptor import Acceptor, listen
from rsm_spark.transport.connection_slots import ConnectionSlot, ConnectionSlots
from rsm_spark.transport.guard import Guard
from rsm_spark.transport.host_names import HostNames
from rsm_spark.transport.security import Security

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


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the port that answers probes; without a port there is none."""

    port: Annotated[
        int | None,
        Option(
            "Port that answers /healthz, /readyz, /metrics, /status; 0 = any that is free.",
            name="http_port",
            ge=0,
            le=65535,
        ),
    ] = None
    bind: Annotated[str, Option("Address to serve these paths on.", name="http_bind")] = "127.0.0.1"
    allowed_hosts: Annotated[
        tuple[str, ...],
        Option("More names under which HTTP is asked, behind a proxy: a.org,b.org.", unit=NAMES, metavar="NAMES"),
    ] = ()
    lag_ms_max: Annotated[
        int, Option("A follower that is further behind is not ready.", name="ready_lag_s", unit=SECONDS, ge=0)
    ] = 10_000


class ProbePage(NamedTuple):
    """One answer."""

    status: int
    body: bytes
    content_type: str = _TEXT


def health(status: ReplicaStatus) -> ProbePage:
    """Say whether the process has to be restarted."""
    return ProbePage(503, f"stopped: {status.failure}\n".encode()) if status.failure else ProbePage(200, b"ok\n")


def readiness(status: ReplicaStatus, *, lag_ms_max: int) -> ProbePage:
    """Say whether clients should be sent here.

    Args:
        status: Of the replica.
        lag_ms_max: A follower whose state may be older than this is not ready.

    """
    if status.failure:
        return ProbePage(503, f"stopped: {status.failure}\n".encode())
    if status.metadata_session == SessionState.LOST:
        return ProbePage(503, b"not ready: its session with ZooKeeper is lost, and there is no new one yet\n")
    if status.role is ReplicaRole.LEADER:
        return ProbePage(200, b"ready: leads\n")
    if status.role is ReplicaRole.CANDIDATE:
        return ProbePage(503, b"not ready: takes the log over\n")
    if status.logged_ms == 0 or status.lag_ms > lag_ms_max:
        return ProbePage(
            503, f"not ready: {status.lag_ms / 1000:.1f} s behind, {lag_ms_max / 1000:g} s allowed\n".encode()
        )
    return ProbePage(200, f"ready: follows, {status.lag_ms / 1000:.1f} s behind\n".encode())


class ProbeServer:
    """Answers GET requests for a few pages.

    Args:
        pages: By path.
        bind: Address to listen on.
        port: 0 = the system chooses.
        security: Certificate and token; both are needed beyond loopback.
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
        security: Security,
        allowed_hosts: tuple[str, ...] = (),
    ) -> None:
        self._pages = pages
        self._bind = bind
        self._port = port
        self._security = security
        self._guard: Guard | None = None
        self._hosts = HostNames(bind, allowed_hosts, is_loopback=is_loopback(bind))
        self._seats = ConnectionSlots(_CONNECTIONS_MAX, of_owner=_CONNECTIONS_MAX, of_address=_CONNECTIONS_MAX)
        self._door: Acceptor | None = None
        self.address = ""

    async def start(self) -> None:
        """Listen.

        Raises:
            UsageError: TLS or token is missing where it is needed, a file cannot be used, or the port is taken.

        """
        security = self._security
        self._guard = Guard(security)
        if not is_loopback(self._bind) and (security.tls_cert is None or self._guard.is_open):
            raise UsageError(
                f"cannot answer HTTP on {self._bind} without a certificate (--tls-cert, --tls-key) and a token "
                "(--token-file, or --principals): give them, or use --http-bind 127.0.0.1"
            )
        tls = None
        if security.tls_cert is not None:
            tls = server_context(TlsSettings(cert=security.tls_cert, key=security.tls_key, ca=security.tls_client_ca))
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
            return ProbePage(421, b"this replica is not asked under that name: use 127.0.0.1, or --allowed-hosts\n")
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
        assert self._guard is not None
        principal = self._guard.principal_by(bearer_token(said), names)
        if principal is None:
            return ProbePage(401, b"this replica knows no such caller: send Authorization: Bearer <token>\n")
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

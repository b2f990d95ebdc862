"""Health over HTTP, for supervisors, load balancers and Prometheus.

    GET /healthz   200 while the process works; 503 once the replica has stopped by itself, with why
    GET /readyz    200 while requests make sense here: it leads, or follows closely enough; else 503 with why
    GET /metrics   Prometheus' text format
    GET /status    the replica's status as JSON

One small request a connection; anything else is refused. Beyond loopback only with TLS and the token, as gRPC.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Callable
from typing import NamedTuple

from ledger.errors import UsageError
from ledger.tls import TlsSettings, server_context
from rsm_spark.grpc.security import Security, is_loopback
from rsm_spark.runtime.status import ReplicaStatus, Role

__all__ = ["Page", "ProbeServer", "ProbeSettings", "health", "readiness"]

_REQUEST_BYTES_MAX = 8 * 1024
_REQUEST_S_MAX = 5.0
_CONNECTIONS_MAX = 64
_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
            503: "Service Unavailable"}  # fmt: skip
_TEXT = "text/plain; charset=utf-8"


class ProbeSettings(NamedTuple):
    """Where probes are answered.

    Attributes:
        port: 0 = the system chooses.
        bind: Address to listen on.
        lag_ms_max: A follower whose state may be older than this is not ready.

    """

    port: int
    bind: str = "127.0.0.1"
    lag_ms_max: int = 10_000


class Page(NamedTuple):
    """One answer."""

    status: int
    body: bytes
    content_type: str = _TEXT


def health(status: ReplicaStatus) -> Page:
    """Say whether the process has to be restarted."""
    return Page(503, f"stopped: {status.failure}\n".encode()) if status.failure else Page(200, b"ok\n")


def readiness(status: ReplicaStatus, *, lag_ms_max: int) -> Page:
    """Say whether clients should be sent here.

    Args:
        status: Of the replica.
        lag_ms_max: A follower whose state may be older than this is not ready.

    """
    if status.failure:
        return Page(503, f"stopped: {status.failure}\n".encode())
    if status.role is Role.LEADER:
        return Page(200, b"ready: leads\n")
    if status.role is Role.CANDIDATE:
        return Page(503, b"not ready: takes the log over\n")
    if status.logged_ms == 0 or status.lag_ms > lag_ms_max:
        return Page(503, f"not ready: {status.lag_ms / 1000:.1f} s behind, {lag_ms_max / 1000:g} s allowed\n".encode())
    return Page(200, f"ready: follows, {status.lag_ms / 1000:.1f} s behind\n".encode())


class ProbeServer:
    """Answers GET requests for a few pages.

    Args:
        pages: By path.
        bind: Address to listen on.
        port: 0 = the system chooses.
        security: Certificate and token; both are needed beyond loopback.

    Attributes:
        address: "host:port", once started.

    """

    def __init__(
        self, pages: dict[str, Callable[[], Page]], *, bind: str = "127.0.0.1", port: int = 0, security: Security
    ) -> None:
        self._pages = pages
        self._bind = bind
        self._port = port
        self._security = security
        self._token: str | None = None
        self._server: asyncio.Server | None = None
        self._open = 0
        self.address = ""

    async def start(self) -> None:
        """Listen.

        Raises:
            UsageError: TLS or token is missing where it is needed, a file cannot be used, or the port is taken.

        """
        security = self._security
        self._token = security.token()
        if not is_loopback(self._bind) and (security.tls_cert is None or self._token is None):
            raise UsageError(
                f"cannot answer HTTP on {self._bind} without a certificate (--tls-cert, --tls-key) and a token "
                "(--token-file): give them, or use --http-bind 127.0.0.1"
            )
        tls = None
        if security.tls_cert is not None:
            tls = server_context(TlsSettings(cert=security.tls_cert, key=security.tls_key, ca=security.tls_client_ca))
        try:
            self._server = await asyncio.start_server(
                self._serve, self._bind, self._port, ssl=tls, limit=_REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise UsageError(
                f"cannot answer HTTP on {self._bind}:{self._port}: {error.strerror}; --http-port 0 finds a free port"
            ) from error
        host = f"[{self._bind}]" if ":" in self._bind else self._bind
        self.address = f"{host}:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            # Whoever opens connections and says nothing keeps neither memory nor others out for long.
            async with asyncio.timeout(_REQUEST_S_MAX):
                page = Page(503, b"too many connections\n")
                if self._open <= _CONNECTIONS_MAX:
                    page = self._answer(await _head(reader))
                writer.write(_encoded(page))
                await writer.drain()
        except (TimeoutError, OSError):
            pass
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, head: bytes) -> Page:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return Page(400, b"expected an HTTP/1.1 request\n")
        if words[0] not in ("GET", "HEAD"):
            return Page(405, b"only GET\n")
        if self._token is not None and not self._is_allowed(lines[1:]):
            return Page(401, b"this replica needs the cluster's token: Authorization: Bearer <token>\n")
        page = self._pages.get(words[1].partition("?")[0])
        if page is None:
            return Page(404, f"there are {', '.join(self._pages)}\n".encode())
        answer = page()
        return answer._replace(body=b"") if words[0] == "HEAD" else answer

    def _is_allowed(self, headers: list[str]) -> bool:
        for header in headers:
            name, _, value = header.partition(":")
            if name.strip().lower() == "authorization":
                return hmac.compare_digest(value.strip().encode("latin-1"), f"Bearer {self._token}".encode())
        return False


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""


def _encoded(page: Page) -> bytes:
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\nConnection: close\r\nCache-Control: no-store\r\n\r\n"
    )
    return head.encode("latin-1") + page.body

"""A collector of OTLP over HTTP as this process sees it: one address, one connection, and an answer in time.

A request has its time as a whole: a collector that reads or answers byte by byte gets no more of it than one that is
silent. A connection that the collector has ended, as it does with idle ones, costs no request.

Headers, such as a token, and the authority of its certificate are those of OpenTelemetry's own variables:
`OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_EXPORTER_OTLP_CERTIFICATE`.

* `OtlpCollectorError(LedgerError)`   a collector did not take what it was sent
"""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from ledger.errors import LedgerError, UsageError

if TYPE_CHECKING:
    # It exists for those who check types, and not at run time.
    from _typeshed import WriteableBuffer

HEADERS_VARIABLE: Final = "OTEL_EXPORTER_OTLP_HEADERS"
CERTIFICATE_VARIABLE: Final = "OTEL_EXPORTER_OTLP_CERTIFICATE"
_ANSWER_BYTES_MAX: Final = 64 * 1024
_SCHEMES: Final = ("http", "https")
_OK: Final = range(200, 300)


class OtlpCollectorError(LedgerError):
    """A collector did not take what it was sent."""


class OtlpCollector:
    """See the module. For one thread.

    Args:
        url: Its address, such as "http://127.0.0.1:4318".
        environment: Has the variables.
        timeout_s: For a request, from its first byte to the last one of the answer; and for a connection before it.

    Raises:
        UsageError: The address or a variable is wrong.

    """

    def __init__(self, url: str, environment: Mapping[str, str], timeout_s: float) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"--otlp-url {url!r}: {error}") from None
        if parts.scheme not in _SCHEMES or not host or parts.query or parts.fragment or parts.username:
            raise UsageError(f"--otlp-url {url!r}: an address such as http://127.0.0.1:4318 is needed")
        self.shown = f"{parts.scheme}://{host}{f':{port}' if port else ''}"
        self._path = parts.path.rstrip("/")
        self._headers = {"Content-Type": "application/x-protobuf", **_headers(environment)}
        self._host, self._port, self._timeout_s = host, port, timeout_s
        self._tls = _tls(environment) if parts.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None

    def post(self, path: str, body: bytes) -> bytes:
        """Send a request; return the body of the answer.

        Raises:
            OtlpCollectorError: It was not taken.

        """
        try:
            connection, wire = self._connected()
            ends_s = time.monotonic() + self._timeout_s
            connection.putrequest("POST", self._path + path)
            for name, value in self._headers.items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders()
            wire.settimeout(_left_s(ends_s))
            connection.send(body)
            connection.response_class = partial(_TimedAnswer, ends_s)  # type: ignore[assignment]
            answer = connection.getresponse()
            content = answer.read(_ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise OtlpCollectorError(f"{self.shown}{self._path}{path}: {str(error) or type(error).__name__}") from None
        if len(content) > _ANSWER_BYTES_MAX or not answer.isclosed():
            self.close()
        if answer.status not in _OK:
            raise OtlpCollectorError(f"{self.shown}{self._path}{path}: it answers {answer.status} {answer.reason[:80]}")
        return content

    def close(self) -> None:
        """End the connection; the next call opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> tuple[http.client.HTTPConnection, socket.socket]:
        """Return a connection that stands, and its socket."""
        connection = self._connection
        if connection is not None and (connection.sock is None or _has_input(connection.sock)):
            self.close()
            connection = None
        if connection is None:
            if self._tls is None:
                connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
            else:
                connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=self._timeout_s, context=self._tls
                )
            connection.connect()
            self._connection = connection
        connection.sock.settimeout(self._timeout_s)
        return connection, connection.sock


class _TimedAnswer(http.client.HTTPResponse):
    """Answer that is there as a whole before a time, in however many parts it comes."""

    def __init__(self, ends_s: float, wire: socket.socket, method: str) -> None:
        super().__init__(wire, method=method)
        self.fp.close()
        self.fp = io.BufferedReader(_TimedReader(wire, ends_s))


class _TimedReader(io.RawIOBase):
    def __init__(self, wire: socket.socket, ends_s: float) -> None:
        self._wire = wire
        self._ends_s = ends_s
        self._bytes = wire.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        self._wire.settimeout(_left_s(self._ends_s))
        return self._bytes.readinto(buffer)

    def close(self) -> None:
        self._bytes.close()
        super().close()


def _left_s(ends_s: float) -> float:
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("it takes too long")
    return left_s


def _has_input(wire: socket.socket) -> bool:
    """Tell whether something came that nobody asked for: the end of a connection, as a rule."""
    poll = select.poll()
    poll.register(wire, select.POLLIN)
    return bool(poll.poll(0))


def _headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of the variable: `name=value,name=value`, percent-encoded."""
    found: dict[str, str] = {}
    for pair in filter(None, environment.get(HEADERS_VARIABLE, "").split(",")):
        name, equals, value = pair.partition("=")
        name, value = unquote(name.strip()), unquote(value.strip())
        if not equals or not name.isascii() or not value.isascii() or not f"{name}{value}x".isprintable():
            raise UsageError(f"environment: {HEADERS_VARIABLE} is no list of name=value, percent-encoded")
        found[name] = value
    return found


def _tls(environment: Mapping[str, str]) -> ssl.SSLContext:
    path = environment.get(CERTIFICATE_VARIABLE)
    try:
        return ssl.create_default_context(cafile=path or None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"environment: {CERTIFICATE_VARIABLE}={path}: cannot be read: {error}") from None

"""A collector of OTLP over HTTP as this process sees it: one address, one connection, and an answer in time.

Headers, such as a token, and the authority of its certificate are those of OpenTelemetry's own variables:
`OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_EXPORTER_OTLP_CERTIFICATE`.

* `OtlpCollectorError(LedgerError)`   a collector did not take what it was sent
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from ledger.errors import LedgerError, UsageError

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
        timeout_s: For each step of a call.

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
            connection = self._connection or self._connect()
            connection.request("POST", self._path + path, body, self._headers)
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

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            self._connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout_s, context=self._tls
            )
        else:
            self._connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return self._connection


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

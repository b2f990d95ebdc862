"""Heads of requests as bytes, and of responses from the shapes of h11, which reads HTTP/1.1. No IO.

* `BadResponseError(RsmError)`   what came is no HTTP/1.1, or larger than it may be
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import h11

from ledger.errors import UsageError
from rsm_spark.errors import RsmError

_TARGET = re.compile(r"[\x21-\x7e]+")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f]")


class BadResponseError(RsmError):
    """Bytes that are no HTTP/1.1 response, or too large a one."""


class Origin(NamedTuple):
    """A server: what the part of a URL before its path says."""

    is_tls: bool
    host: str
    port: int

    @property
    def netloc(self) -> str:
        """Host and port, as a URL has them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        """Return it as a URL without a path."""
        return f"{'https' if self.is_tls else 'http'}://{self.netloc}"


def parse_origin(url: str) -> Origin:
    """Read "https://host:port", "http://host:port" or "host:port"; what follows is passed over.

    Raises:
        UsageError: It is no such address.

    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise UsageError(f"URL {url!r}: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or _FORBIDDEN.search(url):
        raise UsageError(f"URL {url!r}: expected http://host:port or https://host:port")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"URL of {parts.hostname}: a log-in does not belong into a URL; use a token file")
    is_tls = parts.scheme == "https"
    return Origin(is_tls, parts.hostname, port or (443 if is_tls else 80))


class Head(NamedTuple):
    """Status and headers of a response."""

    status: int
    raw_headers: Sequence[tuple[bytes, bytes]]

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by lower-case name, repeated ones joined by commas: few responses are asked for any."""
        headers: dict[str, str] = {}
        for name, value in self.raw_headers:
            key, content = name.decode("latin-1"), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {content}" if key in headers else content
        return headers


def head_of(response: h11.Response) -> Head:
    """Return status and headers of a response that was parsed.

    Raises:
        BadResponseError: It is a response of another version than HTTP/1.

    """
    if not response.http_version.startswith(b"1."):
        raise BadResponseError(f"not an HTTP/1.1 response: it says HTTP/{response.http_version.decode('latin-1')}")
    return Head(response.status_code, response.headers)


def request_head(origin: Origin, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return the head of a request as it is sent; h11 would look at each of its parts anew for every call.

    Raises:
        UsageError: Target or a header holds what none may hold.

    """
    if not _TARGET.fullmatch(target):
        raise UsageError(f"{method} {target[:200]}: cannot be sent over HTTP: only printable ASCII, without spaces")
    lines = [f"{method} {target} HTTP/1.1\r\nHost: {origin.netloc}\r\n"]
    for name, value in headers.items():
        if _FORBIDDEN.search(value) or not value.isascii():
            raise UsageError(f"header {name}: only printable ASCII can be sent")
        lines.append(f"{name}: {value.strip(' ')}\r\n")
    lines.append("\r\n" if body is None else f"Content-Length: {len(body)}\r\n\r\n")
    return "".join(lines).encode("ascii")


@functools.cache
def request_event(method: str) -> h11.Request:
    """Return what h11 is told of a request: its method, which says how the response is framed."""
    return h11.Request(method=method, target="/", headers=[("Host", "-")])

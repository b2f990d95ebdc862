"""HTTP/1.1 as bytes: requests written, heads of responses read. No IO."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from broker.client.errors import BadAnswerError
from ledger.errors import UsageError

__all__ = ["HEAD_BYTES_MAX", "Head", "Origin", "parse_head", "parse_origin", "request_bytes"]

HEAD_BYTES_MAX = 32 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n]*)?\Z")
_LENGTH = re.compile(r"[0-9]{1,18}\Z")
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f]")


class Origin(NamedTuple):
    """A server: what the part of a URL before its path says."""

    is_tls: bool
    host: str
    port: int

    def __str__(self) -> str:
        """Return it as a URL without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


def parse_origin(url: str) -> Origin:
    """Read "https://host:port", "http://host:port" or "host:port"; what follows is passed over.

    Raises:
        UsageError: It is no such address.

    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError as error:
        raise UsageError(f"broker URL {url!r}: {error}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or _FORBIDDEN.search(url):
        raise UsageError(f"broker URL {url!r}: expected http://host:port or https://host:port")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"broker URL of {parts.hostname}: a log-in does not belong into a URL; use a token file")
    is_tls = parts.scheme == "https"
    return Origin(is_tls, parts.hostname, port or (443 if is_tls else 80))


class Head(NamedTuple):
    """Status and headers of a response; names are lower case, repeated ones joined by commas."""

    status: int
    headers: Mapping[str, str]
    is_last: bool

    @property
    def content_length(self) -> int | None:
        """Length of the body; None = chunked, or until the connection ends."""
        text = self.headers.get("content-length")
        if text is None or self.is_chunked:
            return None
        if not _LENGTH.match(text):
            raise BadAnswerError(f"a response of length {text[:40]!r}")
        return int(text)

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return self.headers.get("transfer-encoding", "").strip().lower().endswith("chunked")


def parse_head(text: bytes) -> Head:
    """Read status line and headers, up to and without the empty line.

    Raises:
        BadAnswerError: It is no head of an HTTP/1 response.

    """
    first, *lines = text.rstrip(b"\r\n").split(b"\r\n")
    matched = _STATUS_LINE.match(first)
    if matched is None:
        raise BadAnswerError(f"not an HTTP/1.1 response: {first[:60]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise BadAnswerError(f"not a header of an HTTP response: {line[:60]!r}")
        key = name.decode("latin-1").lower()
        content = value.strip().decode("latin-1")
        headers[key] = f"{headers[key]}, {content}" if key in headers else content
    is_last = headers.get("connection", "").lower() == "close" or matched[1] == b"0"
    return Head(int(matched[2]), headers, is_last)


def request_bytes(origin: Origin, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """Return a request.

    Raises:
        UsageError: A header holds what no header may hold.

    """
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}:{origin.port}"]
    for name, value in headers.items():
        if _FORBIDDEN.search(value) or not value.isascii():
            raise UsageError(f"header {name}: only printable ASCII can be sent")
        lines.append(f"{name}: {value}")
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + (body or b"")

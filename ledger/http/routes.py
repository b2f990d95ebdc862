"""Routes of the small HTTP server: what is answered where, and which right a caller needs for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from ledger.rights.principal import Principal
from ledger.rights.table import Right

_TEXT = "text/plain; charset=utf-8"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of Prometheus' text format."""
BODY_BYTES_MAX = 8 * 1024


class ProbePage(NamedTuple):
    """One answer."""

    status: int
    body: bytes
    content_type: str = _TEXT


class ProbeStream(NamedTuple):
    """Answer that goes on until it ends or its reader leaves; see `ledger.http.probe_streams`.

    Attributes:
        pieces: Of its body; closed when it is over.
        content_type: Of it.

    """

    pieces: AsyncGenerator[bytes, None]
    content_type: str


class ProbeRequest(NamedTuple):
    """Request of a caller that may make it.

    Attributes:
        path: Without what follows `?`.
        query: What follows; the last of several of one name.
        body: Of 8 KiB, or what its route takes.
        principal: Whose it is.
        source: The connection's other end.
        pairs: Names and values of what follows `?`, all of them, in order.
        headers: By lower-case name; the last of several of one name.

    """

    path: str
    query: Mapping[str, str]
    body: bytes
    principal: Principal
    source: str
    pairs: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = MappingProxyType({})


Answer = Callable[[ProbeRequest], ProbePage | Awaitable[ProbePage | ProbeStream]]
Page = Callable[[], ProbePage | Awaitable[ProbePage]]


class ProbeRoute(NamedTuple):
    """Answer to one method and path.

    Attributes:
        answer: Makes the answer.
        right: That a caller needs.
        is_change: It changes something: each use is a line of the audit.
        is_slow: It asks others; few of these run at a time.
        body_bytes_max: Of a body that a caller with that right may send.
        is_stream: It answers with a `ProbeStream`, or with a page that says why not.

    """

    answer: Answer
    right: Right
    is_change: bool = False
    is_slow: bool = False
    body_bytes_max: int = BODY_BYTES_MAX
    is_stream: bool = False


def probe_routes(*, health: Page, readiness: Page, metrics: Page, status: Page) -> dict[str, ProbeRoute]:
    """Return the routes that every process has."""
    return {
        "GET /healthz": ProbeRoute(lambda _: health(), Right.STATUS),
        "GET /readyz": ProbeRoute(lambda _: readiness(), Right.STATUS),
        "GET /status": ProbeRoute(lambda _: status(), Right.STATUS),
        "GET /metrics": ProbeRoute(lambda _: metrics(), Right.CLUSTER_READ),
    }


def json_page(value: Any, status: int = 200) -> ProbePage:
    """Return a page of JSON, with line breaks for people."""
    return ProbePage(status, msgspec.json.format(msgspec.json.encode(value)) + b"\n", "application/json")


def text_page(words: str, status: int = 200) -> ProbePage:
    """Return a page of one line."""
    return ProbePage(status, words.encode() + b"\n")

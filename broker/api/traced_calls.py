"""Spans of calls of the HTTP API: below the `traceparent` of the call, if it has one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ledger.http.problems import HttpProblem
from ledger.http.replies import HttpReply
from ledger.telemetry.trace_context import TRACEPARENT, parse_traceparent
from ledger.telemetry.tracing import Span, SpanKind, tracer, use_context

_HEADER = TRACEPARENT.encode("ascii")


def begin_call(headers: dict[bytes, bytes], name: str) -> Span | None:
    """Begin the span of a call; None = it is not traced."""
    found = tracer()
    if found is None:
        return None
    context = parse_traceparent(headers.get(_HEADER, b"").decode("latin-1"))
    return found.begin(name, SpanKind.SERVER, context or "new")


async def handled(span: Span | None, handle: Callable[[], Awaitable[HttpReply | None]]) -> HttpReply | None:
    """Have a call handled as what belongs to its span, and end that with what it is answered."""
    with use_context(None if span is None else span.context):
        try:
            reply = await handle()
        except HttpProblem as problem:
            _end(span, f"{problem.status} {problem.reason}")
            raise
        except BaseException as error:
            _end(span, type(error).__name__)
            raise
    _end(span, "")
    return reply


def _end(span: Span | None, error: str) -> None:
    if span is not None:
        span.end(error)

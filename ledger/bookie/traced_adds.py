"""Spans of adds: from when a bookie takes one until it is durable and answered."""

from __future__ import annotations

from ledger.bookie.responder import send_answer
from ledger.storage.journal import JournalItem
from ledger.telemetry.trace_context import parse_traceparent
from ledger.telemetry.tracing import Span, SpanKind, tracer
from ledger.wire.packets import AddRequest


def begin_store(request: AddRequest) -> Span | None:
    """Begin the span of an add that came with a context; None = it is not traced."""
    found = tracer()
    if found is None:
        return None
    ids = {"ledger": request.ledger_id, "entry": request.entry_id, "bytes": len(request.body)}
    return found.begin("store entry", SpanKind.SERVER, parse_traceparent(request.trace), ids)


def answer_traced(span: Span, item: JournalItem) -> None:
    """Answer an add that has become durable, and end its span."""
    send_answer(item)
    span.end()

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import pytest

from ledger.telemetry.trace_context import TraceContext
from ledger.telemetry.tracing import (
    ATTRIBUTES_MAX,
    EVENTS_MAX,
    LINKS_MAX,
    VALUE_CHARS_MAX,
    Span,
    SpanKind,
    Tracer,
    begin_span,
    current_context,
    install_tracer,
    use_context,
)

CALLER = TraceContext(7, 8)


@pytest.fixture
def ended() -> Iterator[list[Span]]:
    """Trace all that begins in a test."""
    spans: list[Span] = []
    install_tracer(Tracer(1.0, spans.append))
    yield spans
    install_tracer(None)


def test_nothing_is_traced_until_a_tracer_is_there() -> None:
    assert begin_span("x") is None


def test_a_span_belongs_to_the_current_one_and_is_told_once_when_it_ends(ended: list[Span]) -> None:
    with use_context(CALLER):
        span = begin_span("x", SpanKind.CLIENT, log="orders")
    assert span is not None
    assert (span.context.trace_id, span.parent_id, span.attributes) == (7, 8, {"rsm.log": "orders"})
    assert not ended
    span.end("broke off: password=hunter22")
    span.end("again")
    assert ended == [span]
    assert span.error == "broke off: password=***"
    assert current_context() is None


def test_what_the_caller_does_not_want_to_have_traced_is_not(ended: list[Span]) -> None:
    for context in (TraceContext(7, 8, is_sampled=False), None):
        with use_context(context):
            assert begin_span("x") is None
    assert not ended


def test_a_trace_begins_by_the_rate_and_never_at_0(ended: list[Span]) -> None:
    assert Tracer(0.0, ended.append).begin("x", SpanKind.INTERNAL, "new") is None
    assert Tracer(1.0, ended.append).begin("x", SpanKind.INTERNAL, None) is None
    begun = [Tracer(0.2, ended.append).begin("x", SpanKind.INTERNAL, "new") for _ in range(2_000)]
    assert 250 < sum(span is not None for span in begun) < 550


def test_the_span_of_a_program_that_uses_opentelemetry_is_the_current_one(
    ended: list[Span], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = types.SimpleNamespace(sampled=True)
    theirs = types.SimpleNamespace(is_valid=True, trace_id=11, span_id=12, trace_flags=flags)
    span = types.SimpleNamespace(get_span_context=lambda: theirs)
    api = types.SimpleNamespace(get_current_span=lambda: span)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", api)
    assert current_context() == TraceContext(11, 12)
    theirs.is_valid = False
    assert current_context() is None


def test_a_span_is_bounded(ended: list[Span]) -> None:
    span = begin_span("x")
    assert span is not None
    span.set(**{f"name_{number}": "x" * 100_000 for number in range(1_000)})
    for number in range(1_000):
        span.event("stored", bookie="b" * 100_000)
        span.link(TraceContext(number + 1, 1))
    assert (len(span.attributes), len(span.events), len(span.links)) == (ATTRIBUTES_MAX, EVENTS_MAX, LINKS_MAX)
    assert max(len(str(value)) for value in span.attributes.values()) < VALUE_CHARS_MAX + 40
    assert len(str(span.events[0][2]["rsm.bookie"])) < VALUE_CHARS_MAX + 40

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import pytest

from ledger.telemetry.trace_context import TraceContext, derived_context, is_within, parse_traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
KNOWN = TraceContext(int(TRACE, 16), int(SPAN, 16))


@pytest.mark.parametrize(
    ("text", "context"),
    [
        (f"00-{TRACE}-{SPAN}-01", KNOWN),
        (f"00-{TRACE}-{SPAN}-00", TraceContext(KNOWN.trace_id, KNOWN.span_id, is_sampled=False)),
        (f"00-{TRACE}-{SPAN}-ff", KNOWN),
        (f"cc-{TRACE}-{SPAN}-01", KNOWN),
        (f"cc-{TRACE}-{SPAN}-01-what-will-be", KNOWN),
        (f"00-{TRACE}-{SPAN}-01-what-will-be", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"cc-{TRACE}-{SPAN}-01." + "x" * 20, None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-1", None),
        (f"00-{TRACE}-{SPAN}-01\n", None),
        (f" 00-{TRACE}-{SPAN}-01", None),
        (f"cc-{TRACE}-{SPAN}-01-" + "x" * 1_000_000, None),
        ("٠٠" + f"-{TRACE}-{SPAN}-01", None),
        ("", None),
    ],
)
def test_a_traceparent_is_what_the_w3c_says_or_nothing(text: str, context: TraceContext | None) -> None:
    assert parse_traceparent(text) == context


@hypothesis.given(st.integers(1, (1 << 128) - 1), st.integers(1, (1 << 64) - 1), st.booleans())
def test_a_context_comes_back_from_its_text(trace_id: int, span_id: int, is_sampled: bool) -> None:
    context = TraceContext(trace_id, span_id, is_sampled)
    assert len(context.traceparent) == 55
    assert parse_traceparent(context.traceparent) == context


@hypothesis.given(st.text(max_size=80))
def test_any_text_is_a_context_or_nothing(text: str) -> None:
    found = parse_traceparent(text)
    assert found is None or found.trace_id


def test_a_share_of_the_traces_is_within_the_rate_and_a_greater_rate_has_them_too() -> None:
    traces = [derived_context(f"task {number}", 1.0).trace_id for number in range(4_000)]
    assert not any(is_within(trace, 0.0) for trace in traces)
    assert all(is_within(trace, 1.0) for trace in traces)
    some, more = ({trace for trace in traces if is_within(trace, rate)} for rate in (0.1, 0.3))
    assert some < more
    assert 280 < len(some) < 520


def test_what_has_a_name_has_the_same_context_everywhere() -> None:
    first = derived_context("task broker 7", 1.0)
    assert first == derived_context("task broker 7", 1.0)
    assert first.trace_id != derived_context("task broker 8", 1.0).trace_id
    assert not derived_context("task broker 7", 0.0).is_sampled

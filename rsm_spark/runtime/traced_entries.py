"""Span of an entry of a log: it belongs to the first of its submissions that is traced, and is linked to the others."""

from __future__ import annotations

from ledger.telemetry.trace_context import TraceContext
from ledger.telemetry.tracing import Span, SpanKind, Value, tracer
from rsm_spark.core.batching import Batch


def begin_entry(batch: Batch, log: str) -> Span | None:
    """Begin the span of an entry that is to be appended; None = nothing in it is traced.

    Args:
        batch: The entry, and what waits for it.
        log: Name of the log.

    """
    found = tracer()
    traces: list[TraceContext] = [
        one.trace for one in batch.submissions if one.trace is not None and one.trace.is_sampled
    ]
    if found is None or not traces:
        return None
    envelope = batch.envelope
    attributes: dict[str, Value] = {
        "log": log,
        "epoch": envelope.leader_epoch,
        "revision": envelope.first_revision + envelope.record_count - 1,
        "count": envelope.record_count,
    }
    span = found.begin("append entry", SpanKind.CLIENT, traces[0], attributes)
    if span is not None:
        for other in traces[1:]:
            span.link(other)
    return span

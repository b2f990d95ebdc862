"""Spans as OTLP's protobuf messages, and what a collector says of them. It needs the extra `otel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from ledger.telemetry.trace_context import TraceContext
from ledger.telemetry.tracing import Span, Value

_SAMPLED_FLAG = 1


def encode_spans(spans: Sequence[Span], resource: Mapping[str, Value]) -> bytes:
    """Return the request that tells a collector of spans."""
    scope = trace_pb2.ScopeSpans(
        scope=common_pb2.InstrumentationScope(name="rsm-spark"), spans=[_span(span) for span in spans]
    )
    told = trace_pb2.ResourceSpans(
        resource=resource_pb2.Resource(attributes=attributes_of(resource)), scope_spans=[scope]
    )
    return trace_service_pb2.ExportTraceServiceRequest(resource_spans=[told]).SerializeToString()


def rejected_spans(answer: bytes) -> int:
    """Return how many spans a collector did not take, by its answer; an answer that is none says nothing."""
    try:
        found = trace_service_pb2.ExportTraceServiceResponse.FromString(answer)
    except DecodeError:
        return 0
    return max(0, int(found.partial_success.rejected_spans))


def _span(span: Span) -> trace_pb2.Span:
    code = trace_pb2.Status.STATUS_CODE_ERROR if span.error else trace_pb2.Status.STATUS_CODE_UNSET
    return trace_pb2.Span(
        **_ids(span.context),
        parent_span_id=span.parent_id.to_bytes(8, "big") if span.parent_id else b"",
        flags=_SAMPLED_FLAG,
        name=span.name,
        kind=int(span.kind),  # type: ignore[arg-type]
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=max(span.end_ns, span.start_ns),
        attributes=attributes_of(span.attributes),
        events=[
            trace_pb2.Span.Event(time_unix_nano=when, name=name, attributes=attributes_of(attributes))
            for when, name, attributes in span.events
        ],
        links=[trace_pb2.Span.Link(**_ids(link)) for link in span.links],
        status=trace_pb2.Status(code=code, message=span.error),
    )


def _ids(context: TraceContext) -> dict[str, Any]:
    return {"trace_id": context.trace_id.to_bytes(16, "big"), "span_id": context.span_id.to_bytes(8, "big")}


def attributes_of(attributes: Mapping[str, Value]) -> list[common_pb2.KeyValue]:
    """Return attributes as OTLP has them."""
    return [common_pb2.KeyValue(key=name, value=_value(value)) for name, value in attributes.items()]


def _value(value: Value) -> common_pb2.AnyValue:
    if isinstance(value, bool):
        return common_pb2.AnyValue(bool_value=value)
    if isinstance(value, int):
        if -(1 << 63) <= value < 1 << 63:
            return common_pb2.AnyValue(int_value=value)
        return common_pb2.AnyValue(string_value=str(value))
    if isinstance(value, float):
        return common_pb2.AnyValue(double_value=value)
    return common_pb2.AnyValue(string_value=value.encode("utf-8", "backslashreplace").decode())

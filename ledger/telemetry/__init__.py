"""Traces of what a process does, and their way to a collector by OTLP; off unless a process is told where that is.

    from ledger.telemetry import TelemetrySettings, start_telemetry

    start_telemetry(TelemetrySettings(otlp_url="http://127.0.0.1:4318"), service="shop")

From then on the clients of this process carry the context of each call along, and servers that are told so too add
their spans. It needs the extra `otel`.
"""

from ledger.telemetry.settings import TelemetrySettings
from ledger.telemetry.start import start_from_environment, start_telemetry, stop_telemetry
from ledger.telemetry.trace_context import TraceContext, parse_traceparent
from ledger.telemetry.tracing import Span, SpanKind, begin_span, current_context, use_context

__all__ = [
    "Span",
    "SpanKind",
    "TelemetrySettings",
    "TraceContext",
    "begin_span",
    "current_context",
    "parse_traceparent",
    "start_from_environment",
    "start_telemetry",
    "stop_telemetry",
    "use_context",
]

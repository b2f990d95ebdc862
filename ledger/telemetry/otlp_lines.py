"""Log lines as OTLP's protobuf messages. It needs the extra `otel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1 import resource_pb2

from ledger.telemetry.log_lines import LogLine
from ledger.telemetry.otlp import attributes_of
from ledger.telemetry.tracing import Value

_SAMPLED_FLAG = 1
_SEVERITIES: Final = ((50, 21), (40, 17), (30, 13), (20, 9), (10, 5))
"""Levels of Python, and what OTLP calls the first of their kind: FATAL, ERROR, WARN, INFO, DEBUG."""
_TRACE: Final = 1


def encode_lines(lines: Sequence[LogLine], resource: Mapping[str, Value]) -> bytes:
    """Return the request that tells a collector of lines; each part of the program is a scope."""
    records: dict[str, list[logs_pb2.LogRecord]] = {}
    for line in lines:
        records.setdefault(line.logger, []).append(_record(line))
    told = logs_pb2.ResourceLogs(
        resource=resource_pb2.Resource(attributes=attributes_of(resource)),
        scope_logs=[
            logs_pb2.ScopeLogs(scope=common_pb2.InstrumentationScope(name=logger), log_records=found)
            for logger, found in records.items()
        ],
    )
    return logs_service_pb2.ExportLogsServiceRequest(resource_logs=[told]).SerializeToString()


def rejected_lines(answer: bytes) -> int:
    """Return how many lines a collector did not take, by its answer; an answer that is none says nothing."""
    try:
        found = logs_service_pb2.ExportLogsServiceResponse.FromString(answer)
    except DecodeError:
        return 0
    return max(0, int(found.partial_success.rejected_log_records))


def _record(line: LogLine) -> logs_pb2.LogRecord:
    ids: dict[str, Any] = {}
    if line.context is not None:
        trace_id, span_id = line.context.trace_id, line.context.span_id
        ids = {
            "trace_id": trace_id.to_bytes(16, "big"),
            "span_id": span_id.to_bytes(8, "big"),
            "flags": _SAMPLED_FLAG,
        }
    return logs_pb2.LogRecord(
        time_unix_nano=line.time_ns,
        observed_time_unix_nano=line.time_ns,
        severity_number=next((number for level, number in _SEVERITIES if line.level >= level), _TRACE),  # type: ignore[arg-type]
        severity_text=line.level_name,
        body=common_pb2.AnyValue(string_value=line.message),
        attributes=attributes_of(
            {f"rsm.{name}": _value(value) for name, value in line.fields.items() if value is not None}
        ),
        **ids,
    )


def _value(value: object) -> Value:
    """Return a field as an attribute: what is no plain value is its JSON."""
    return value if isinstance(value, Value) else msgspec.json.encode(value).decode()

"""A collector of OTLP over HTTP for tests: keeps what it is sent, or behaves as badly as it is told."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

_WAIT_S = 60.0


class ReceivedSpan(NamedTuple):
    """Span as it came: ids in hexadecimal, attributes as Python has them."""

    service: str
    instance: str
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[str]
    error: str
    start_ns: int
    end_ns: int


class ReceivedLine(NamedTuple):
    """Log line as it came."""

    service: str
    instance: str
    logger: str
    severity: int
    level: str
    message: str
    attributes: dict[str, Any]
    trace_id: str
    span_id: str
    time_ns: int


class ReceivedPoint(NamedTuple):
    """Point of a metric as it came: of a histogram its count, sum, bounds and counts; of a summary count and sum."""

    service: str
    instance: str
    name: str
    text: str
    kind: str
    labels: dict[str, str]
    value: Any
    start_ns: int
    time_ns: int


class OtlpReceiver:
    """See the module.

    Attributes:
        url: Where it takes spans, metrics and log lines.
        spans: All that came.
        points: All points of metrics that came.
        lines: All log lines that came.
        status: What it answers.
        rejects: So many of each request it says that it does not take.
        headers: Of the last request.
        garbage: What it answers; None = as it should.
        hangs: While it is set nothing is answered.
        dribbles: While it is set an answer comes byte by byte, and never to its end.

    """

    def __init__(self, port: int = 0) -> None:
        self.spans: list[ReceivedSpan] = []
        self.points: list[ReceivedPoint] = []
        self.lines: list[ReceivedLine] = []
        self.garbage: bytes | None = None
        self.status = 200
        self.rejects = 0
        self.request_count = 0
        self.headers: dict[str, str] = {}
        self.hangs = threading.Event()
        self.dribbles = threading.Event()
        self._open: dict[socket.socket, None] = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.request_count += 1
                receiver.headers = dict(self.headers.items())
                while receiver.hangs.is_set():
                    time.sleep(0.05)
                while receiver.dribbles.is_set():
                    try:
                        self.wfile.write(b"H")
                    except OSError:
                        return
                    time.sleep(0.2)
                if receiver.status == 200:
                    receiver._take(self.path, body)
                answer = ExportTraceServiceResponse()
                answer.partial_success.rejected_spans = receiver.rejects
                content = answer.SerializeToString() if receiver.garbage is None else receiver.garbage
                self.send_response(receiver.status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def setup(self) -> None:
                super().setup()
                receiver._open[self.connection] = None

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def _take(self, path: str, body: bytes) -> None:
        match path:
            case "/v1/traces":
                self.spans += spans_of(ExportTraceServiceRequest.FromString(body))
            case "/v1/metrics":
                self.points += points_of(ExportMetricsServiceRequest.FromString(body))
            case "/v1/logs":
                self.lines += lines_of(ExportLogsServiceRequest.FromString(body))

    def close(self) -> None:
        """Take no more; a second time does nothing."""
        if not self._thread.is_alive():
            return
        self.hangs.clear()
        self.dribbles.clear()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def until(self, is_there: Callable[[list[ReceivedSpan]], Any]) -> Any:
        """Return what `is_there` finds among the spans, as soon as that is something."""
        return self._until(lambda: is_there(list(self.spans)))

    def until_points(self, is_there: Callable[[list[ReceivedPoint]], Any]) -> Any:
        """Do the same among the points of metrics."""
        return self._until(lambda: is_there(list(self.points)))

    def until_lines(self, is_there: Callable[[list[ReceivedLine]], Any]) -> Any:
        """Do the same among the log lines."""
        return self._until(lambda: is_there(list(self.lines)))

    def _until(self, find: Callable[[], Any]) -> Any:
        ends = time.monotonic() + _WAIT_S
        while not (found := find()):
            spans = sorted({(span.service, span.name) for span in self.spans})
            lines = sorted({(line.service, line.logger) for line in self.lines})
            points = sorted({(point.service, point.name) for point in self.points})
            assert time.monotonic() < ends, f"not there: {spans} {lines} {points}"
            time.sleep(0.05)
        return found


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    try:
        yield receiver
    finally:
        receiver.close()


def spans_of(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    """Yield the spans of a request."""
    for told in request.resource_spans:
        resource = _attributes(told.resource.attributes)
        for scope in told.scope_spans:
            for span in scope.spans:
                assert span.end_time_unix_nano >= span.start_time_unix_nano > 0
                yield ReceivedSpan(
                    resource["service.name"],
                    resource["service.instance.id"],
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.name,
                    span.kind,
                    _attributes(span.attributes),
                    [(event.name, _attributes(event.attributes)) for event in span.events],
                    [link.trace_id.hex() for link in span.links],
                    span.status.message,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                )


def lines_of(request: ExportLogsServiceRequest) -> Iterator[ReceivedLine]:
    """Yield the log lines of a request."""
    for told in request.resource_logs:
        resource = _attributes(told.resource.attributes)
        for scope in told.scope_logs:
            for line in scope.log_records:
                yield ReceivedLine(
                    resource["service.name"],
                    resource["service.instance.id"],
                    scope.scope.name,
                    line.severity_number,
                    line.severity_text,
                    line.body.string_value,
                    _attributes(line.attributes),
                    line.trace_id.hex(),
                    line.span_id.hex(),
                    line.time_unix_nano,
                )


def points_of(request: ExportMetricsServiceRequest) -> Iterator[ReceivedPoint]:
    """Yield the points of a request."""
    for told in request.resource_metrics:
        resource = _attributes(told.resource.attributes)
        who = (resource["service.name"], resource["service.instance.id"])
        for scope in told.scope_metrics:
            for metric in scope.metrics:
                kind = str(metric.WhichOneof("data"))
                family = getattr(metric, kind)
                if kind == "sum":
                    assert family.is_monotonic
                if kind in {"sum", "histogram"}:
                    assert family.aggregation_temporality == 2  # Cumulative.
                for point in family.data_points:
                    value: Any
                    if kind == "histogram":
                        value = (point.count, point.sum, list(point.explicit_bounds), list(point.bucket_counts))
                    else:
                        value = (point.count, point.sum) if kind == "summary" else point.as_double
                    yield ReceivedPoint(
                        *who, metric.name, metric.description, kind, _attributes(point.attributes), value,
                        point.start_time_unix_nano, point.time_unix_nano,
                    )  # fmt: skip


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}

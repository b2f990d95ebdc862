"""A collector of OTLP over HTTP for tests: keeps the spans that it is sent, or behaves as badly as it is told."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

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


class OtlpReceiver:
    """See the module.

    Attributes:
        url: Where it takes spans.
        spans: All that came.
        status: What it answers.
        rejects: So many of each request it says that it does not take.
        headers: Of the last request.

    """

    def __init__(self, port: int = 0) -> None:
        self.spans: list[ReceivedSpan] = []
        self.status = 200
        self.rejects = 0
        self.request_count = 0
        self.headers: dict[str, str] = {}
        self.hangs = threading.Event()
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
                if self.path == "/v1/traces" and receiver.status == 200:
                    receiver.spans += _spans(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse()
                answer.partial_success.rejected_spans = receiver.rejects
                content = answer.SerializeToString()
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

    def close(self) -> None:
        """Take no more; a second time does nothing."""
        if not self._thread.is_alive():
            return
        self.hangs.clear()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def until(self, is_there: Callable[[list[ReceivedSpan]], Any]) -> Any:
        """Return what `is_there` finds among the spans, as soon as that is something."""
        ends = time.monotonic() + _WAIT_S
        while not (found := is_there(list(self.spans))):
            names = sorted({(span.service, span.name) for span in self.spans})
            assert time.monotonic() < ends, f"not there: {names}"
            time.sleep(0.05)
        return found


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    try:
        yield receiver
    finally:
        receiver.close()


def _spans(request: ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
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


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}

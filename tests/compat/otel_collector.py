"""The OpenTelemetry Collector as a process: what it takes by OTLP it writes to files, and shows Prometheus."""

from __future__ import annotations

import base64
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ledger.dev.ports import HOST, choose_port
from tests.integration.otlp_receiver import (
    ReceivedLine,
    ReceivedPoint,
    ReceivedSpan,
    lines_of,
    points_of,
    spans_of,
)

_WAIT_S = 120.0
_KINDS = ("traces", "metrics", "logs")
_IDS = ("traceId", "spanId", "parentSpanId")
STRATEGIES = {"as told": "UnderscoreEscapingWithoutSuffixes", "as a rule": "UnderscoreEscapingWithSuffixes"}
"""Ways in which the Collector makes names of metrics for Prometheus."""


class OtelCollector:
    """See the module; it runs from the beginning. It ends connections that wait for a moment only.

    Args:
        program: The Collector.
        folder: Of its files.

    Attributes:
        url: Where it takes OTLP over HTTP.

    """

    def __init__(self, program: Path, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "collector.log"
        taken: list[int] = []
        for _ in range(1 + len(STRATEGIES)):
            taken.append(choose_port(taken=taken))
        self.url = f"http://{HOST}:{taken[0]}"
        self._pages = dict(zip(STRATEGIES, (f"http://{HOST}:{port}/metrics" for port in taken[1:]), strict=True))
        config = folder / "collector.yml"
        config.write_text(yaml.safe_dump(self._config(taken)))
        with self._log.open("wb") as said:
            self._process = subprocess.Popen([program, "--config", config], stdout=said, stderr=said)
        self.until(lambda: "Everything is ready" in self.said())

    def _config(self, ports: list[int]) -> dict[str, Any]:
        http = {"endpoint": f"{HOST}:{ports[0]}", "keepalive": {"idle_timeout": "100ms"}}
        exporters: dict[str, Any] = {
            f"file/{kind}": {"path": str(self._file(kind)), "flush_interval": "100ms"} for kind in _KINDS
        }
        for number, strategy in enumerate(STRATEGIES.values(), 1):
            exporters[f"prometheus/{number}"] = {
                "endpoint": f"{HOST}:{ports[number]}", "translation_strategy": strategy,
            }  # fmt: skip
        asked = [name for name in exporters if name.startswith("prometheus")]
        return {
            "receivers": {"otlp": {"protocols": {"http": http}}},
            "exporters": exporters,
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {
                    kind: {"receivers": ["otlp"], "exporters": [f"file/{kind}", *(asked if kind == "metrics" else [])]}
                    for kind in _KINDS
                },
            },
        }

    def said(self) -> str:
        """Return its log."""
        return self._log.read_text()

    def spans(self) -> list[ReceivedSpan]:
        """Return the spans that it has written."""
        requests = (ParseDict(one, ExportTraceServiceRequest()) for one in self._written("traces"))
        return [span for request in requests for span in spans_of(request)]

    def lines(self) -> list[ReceivedLine]:
        """Return the log lines that it has written."""
        requests = (ParseDict(one, ExportLogsServiceRequest()) for one in self._written("logs"))
        return [line for request in requests for line in lines_of(request)]

    def points(self) -> list[ReceivedPoint]:
        """Return the points of metrics that it has written."""
        return [point for request in self._metrics() for point in points_of(request)]

    def units(self) -> dict[str, str]:
        """Return the unit of each metric that it has written, by name."""
        return {
            metric.name: metric.unit
            for request in self._metrics()
            for told in request.resource_metrics
            for scope in told.scope_metrics
            for metric in scope.metrics
        }

    def resources(self) -> dict[str, list[dict[str, str]]]:
        """Return who has told something, as it has written it, by kind."""
        return {
            kind: [
                {pair["key"]: next(iter(pair["value"])) for pair in told["resource"]["attributes"]}
                for request in self._written(kind)
                for told in next(iter(request.values()))
            ]
            for kind in _KINDS
        }

    def page(self, names: str) -> str:
        """Return what it shows Prometheus, with names by one of `STRATEGIES`."""
        with urllib.request.urlopen(self._pages[names], timeout=60) as answer:  # noqa: S310 - our own
            return str(answer.read().decode())

    def until(self, find: Callable[[], Any], what: Callable[[], object] = lambda: "") -> Any:
        """Return what `find` finds, as soon as that is something."""
        ends_s = time.monotonic() + _WAIT_S
        while not (found := find()):
            assert self._process.poll() is None, self.said()[-4000:]
            assert time.monotonic() < ends_s, f"not there: {what()}; {self.said()[-2000:]}"
            time.sleep(0.1)
        return found

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _metrics(self) -> Iterator[ExportMetricsServiceRequest]:
        return (ParseDict(one, ExportMetricsServiceRequest()) for one in self._written("metrics"))

    def _file(self, kind: str) -> Path:
        return self._folder / f"{kind}.json"

    def _written(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yield the requests that it has written; ids are hexadecimal there, and base64 for protobuf's JSON."""
        for line in self._file(kind).read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield json.loads(line, object_hook=_with_bytes)


def _with_bytes(found: dict[str, Any]) -> dict[str, Any]:
    return found | {name: base64.b64encode(bytes.fromhex(found[name])).decode() for name in _IDS if name in found}


@contextmanager
def otel_collector(program: Path, folder: Path) -> Iterator[OtelCollector]:
    """Run the Collector with a folder for its files."""
    folder.mkdir()
    collector = OtelCollector(program, folder)
    try:
        yield collector
    finally:
        collector.close()

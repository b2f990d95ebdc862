"""Telemetry while it runs: an exporter for each kind of what is told. It needs the extra `otel`."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from ledger.logs import add_fields_of_context
from ledger.telemetry.exporter import OtlpExporter, OtlpSignal
from ledger.telemetry.log_lines import LineHandler, LogLine, context_fields
from ledger.telemetry.otlp import encode_spans, rejected_spans
from ledger.telemetry.otlp_collector import OtlpCollector
from ledger.telemetry.otlp_lines import encode_lines, rejected_lines
from ledger.telemetry.otlp_metrics import TimedPage, encode_metrics, rejected_pages
from ledger.telemetry.settings import TelemetrySettings
from ledger.telemetry.tracing import Span, Value

_SPANS_A_BATCH: Final = 512
_QUEUE_BYTES_MAX: Final = 4 << 20
_BATCH_BYTES_MAX: Final = 512 << 10

_LINES: Final = OtlpSignal[LogLine](
    "log lines", "/v1/logs", encode_lines, rejected_lines, lambda line: line.weight, _QUEUE_BYTES_MAX, _BATCH_BYTES_MAX
)
_PAGES: Final = OtlpSignal[TimedPage](
    "metrics", "/v1/metrics", encode_metrics, rejected_pages, lambda page: len(page.text), _QUEUE_BYTES_MAX, 1
)


class RunningTelemetry:
    """See the module; it runs from the beginning.

    Args:
        settings: Where to, and how much.
        resource: What this process is.
        environment: Has the variables of a collector.
        timeout_s: For each step of a call.

    Attributes:
        spans: Sends spans.
        metrics_s: How often metrics are told; 0 = never.

    Raises:
        UsageError: The address or a variable is wrong.

    """

    def __init__(
        self,
        settings: TelemetrySettings,
        resource: Mapping[str, Value],
        environment: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        def collector() -> OtlpCollector:
            return OtlpCollector(settings.otlp_url or "", environment, timeout_s)

        signal = OtlpSignal[Span](
            "spans", "/v1/traces", encode_spans, rejected_spans, lambda _: 1, settings.queue_max, _SPANS_A_BATCH
        )
        self.metrics_s = settings.otlp_metrics_s
        self.spans = OtlpExporter(collector(), resource, signal)
        self._pages = OtlpExporter(collector(), resource, _PAGES) if settings.otlp_metrics_s else None
        self._lines = OtlpExporter(collector(), resource, _LINES) if settings.otlp_logs else None
        self._handler = None if self._lines is None else LineHandler(self._lines.offer)
        self._by_name: dict[str, OtlpExporter[Any]] = {
            name: one
            for name, one in (("spans", self.spans), ("pages", self._pages), ("lines", self._lines))
            if one is not None
        }
        for exporter in self._by_name.values():
            exporter.start()
        add_fields_of_context(context_fields)
        if self._handler is not None:
            logging.getLogger().addHandler(self._handler)

    def tell_metrics(self, text: bytes, time_ns: int, start_ns: int) -> None:
        """Have a page of metrics sent, if metrics are told."""
        if self._pages is not None:
            self._pages.offer(TimedPage(text.decode(), time_ns, start_ns))

    def counts(self) -> dict[str, dict[str, int]]:
        """Return what became of spans, log lines and pages of metrics, each as far as it is told."""
        return {name: dict(one.counts) for name, one in self._by_name.items()}

    def stop(self, wait_s: float) -> None:
        """Send what waits, for so long at most, and end."""
        if self._handler is not None:
            logging.getLogger().removeHandler(self._handler)
        ends_s = time.monotonic() + wait_s
        for one in self._by_name.values():
            one.begin_stop()
        for one in self._by_name.values():
            one.stop(max(0.0, ends_s - time.monotonic()))

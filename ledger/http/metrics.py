"""Prometheus' text format, written from plain numbers when somebody asks: nothing is kept for it.

Bookies and workers do without Prometheus' library, which a light installation has not.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ledger.audit_lines import Refusals
from ledger.http.routes import METRICS_TYPE, ProbePage
from ledger.shown_certificates import certificate_ends
from ledger.telemetry.start import telemetry_counts

_STARTED_S = time.time()
CLOCK_TEXT = "Wall clock of this process, Unix time: Prometheus compares it with its own."
TELEMETRY_COUNTERS = {
    "spans": ("rsm_trace_spans", "Spans of traces of this process, by what became of them."),
    "lines": ("rsm_otlp_log_lines", "Log lines of this process for a collector, by what became of them."),
    "pages": ("rsm_otlp_metric_pages", "Metrics of this process for a collector, by what became of them."),
}
"""Counters of what a process has told a collector, by kind of it: name without `_total`, and what it is."""
CERTIFICATE_TEXT = "When a certificate ends that this process shows, Unix time."


class MetricsPage:
    """Page of metrics; a family's samples are given one after the other."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._family = ""

    def gauge(self, name: str, text: str, value: float, **labels: str) -> None:
        """Tell a value that goes up and down."""
        self._sample(name, "gauge", text, name, value, labels)

    def counter(self, name: str, text: str, value: float, **labels: str) -> None:
        """Tell a value that goes up; the name is what is written, with `_total` where the metric has it."""
        self._sample(name, "counter", text, name, value, labels)

    def summary(self, name: str, text: str, count: int, total: float | None = None, **labels: str) -> None:
        """Tell how often something happened, and the sum of what it took; None = not measured."""
        self._sample(name, "summary", text, f"{name}_count", count, labels)
        if total is not None:
            self._sample(name, "summary", text, f"{name}_sum", total, labels)

    def histogram(self, name: str, text: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> None:
        """Tell a distribution.

        Args:
            name: Of the metric.
            text: What it is.
            bounds: Upper bounds of the buckets, ascending.
            counts: In each bucket alone; one more for what is above all bounds.
            total: Sum of the values.

        """
        below = 0
        for bound, count in zip(bounds, counts, strict=False):
            below += count
            self._sample(name, "histogram", text, f"{name}_bucket", below, {"le": f"{bound:g}"})
        self._sample(name, "histogram", text, f"{name}_bucket", sum(counts), {"le": "+Inf"})
        self._sample(name, "histogram", text, f"{name}_sum", total, {})
        self._sample(name, "histogram", text, f"{name}_count", sum(counts), {})

    def process(self) -> None:
        """Tell what the operating system knows of this process."""
        self.gauge("rsm_clock_timestamp_seconds", CLOCK_TEXT, time.time())
        for path, end_s in certificate_ends().items():
            self.gauge("rsm_certificate_end_timestamp_seconds", CERTIFICATE_TEXT, end_s, file=path)
        for kind, counts in telemetry_counts().items():
            name, text = TELEMETRY_COUNTERS[kind]
            for outcome, count in counts.items():
                self.counter(f"{name}_total", text, count, outcome=outcome)
        times = os.times()
        # Kinds and texts of these are those of Prometheus' library, which replicas have.
        cpu_s = times.user + times.system
        self.counter("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.", cpu_s)
        self.gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", _STARTED_S)
        fds_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.gauge("process_max_fds", "Maximum number of open file descriptors.", fds_max)
        try:
            fds = sum(1 for _ in Path("/proc/self/fd").iterdir())
            self.gauge("process_open_fds", "Number of open file descriptors.", fds)
            pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        except OSError:  # Not Linux.
            return
        self.gauge("process_resident_memory_bytes", "Resident memory size in bytes.", pages * resource.getpagesize())

    def refusals(self, refusals: Refusals, port: str) -> None:
        """Tell what was refused at a port, by reason."""
        for reason, count in sorted(refusals.by_reason.items()):
            text = "Connections and requests that were refused."
            self.counter("rsm_refusals_total", text, count, port=port, reason=reason)

    def page(self) -> ProbePage:
        """Return all of it."""
        return ProbePage(200, ("\n".join(self._lines) + "\n").encode(), METRICS_TYPE)

    def _sample(self, family: str, kind: str, text: str, name: str, value: float, labels: Mapping[str, str]) -> None:
        if family != self._family:
            self._family = family
            self._lines += (f"# HELP {family} {text}", f"# TYPE {family} {kind}")
        said = ",".join(f'{key}="{_escaped(one)}"' for key, one in labels.items())
        self._lines.append(f"{name}{{{said}}} {value:.15g}" if said else f"{name} {value:.15g}")


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

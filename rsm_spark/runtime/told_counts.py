"""Counts of what a process has told a collector, for a page of Prometheus' library."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from ledger.http.metrics import TELEMETRY_COUNTERS
from ledger.telemetry.start import telemetry_counts


class ToldCounts(Collector):
    """See the module; of a process that tells nothing there are none."""

    def collect(self) -> Iterable[Metric]:
        """Return them as they are now."""
        for kind, counts in telemetry_counts().items():
            name, text = TELEMETRY_COUNTERS[kind]
            family = CounterMetricFamily(name, text, labels=["outcome"])
            for outcome, count in counts.items():
                family.add_metric([outcome], count)
            yield family

"""Metrics of HTTP for Prometheus: counted by route and status, read when asked."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from broker.api.edge import Edge


class HttpTelemetry(Collector):
    """Metrics of one edge.

    Args:
        edge: The edge.

    """

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics as they are now."""
        shared = self._edge.shared
        requests = CounterMetricFamily(
            "broker_http_requests", "Requests answered.", labels=["method", "route", "status"]
        )
        seconds = CounterMetricFamily("broker_http_seconds", "Time from head to answer.", labels=["method", "route"])
        for route in self._edge.table.routes:
            for status, count in route.counts.items():
                requests.add_metric([route.method, route.path, str(status)], count)
            if route.counts:
                seconds.add_metric([route.method, route.path], route.seconds)
        for status, count in self._edge.refused.items():
            requests.add_metric(["", "", str(status)], count)
        yield requests
        yield seconds
        yield CounterMetricFamily(
            "broker_http_unexpected", "Requests that ended in an error of our own.", value=self._edge.unexpected
        )
        yield GaugeMetricFamily("broker_http_events_open", "Streams of events open.", value=shared.streams.held)
        seats = shared.seats
        yield GaugeMetricFamily("broker_http_connections", "Connections open, from accept on.", value=seats.taken)
        yield CounterMetricFamily(
            "broker_http_cut", "Connections that asked nothing, cut for who came later.", value=seats.cut_count
        )
        yield CounterMetricFamily(
            "broker_http_turned_away", "Connections for which there was no room.", value=seats.refused_count
        )
        tokens = shared.tokens
        broken = int(bool(tokens is not None and tokens.failure))
        yield GaugeMetricFamily("broker_http_tokens_broken", "1 = the tokens file cannot be read.", value=broken)

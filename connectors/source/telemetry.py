"""Metrics of Spark's streams for Prometheus, from the progress that Spark hands to listeners. Imports no Spark.

| metric | labels | meaning |
| --- | --- | --- |
| rsm_stream_active | query | 1 while it runs, 0 after its end |
| rsm_stream_failures_total | query | how often it ended with an error |
| rsm_stream_batches_total | query | micro-batches that were committed |
| rsm_stream_batch_seconds | query | histogram of how long a micro-batch took, planning and commit included |
| rsm_stream_progress_timestamp_seconds | query | when it last told anything |
| rsm_stream_rows_total | query, source | rows that were read |
| rsm_stream_behind_records | query, source | what waits behind the last micro-batch: records, or entries of ledgers |
| rsm_stream_behind_bytes | query, source | its payload |
| rsm_stream_behind_seconds | query, source | how much later the newest entry was logged than the oldest that waits |
| rsm_stream_lost_records | query, source | skipped since the query's start as they were gone, as far as it is known |

`query` is the query's name, or its id if it has none; `source` is its place in the query: 0, 1, …. The three of
behind and lost are told of sources `ledger` only. They stand still while a micro-batch runs: see the timestamp.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from connectors.source.progress import BEHIND_BYTES, BEHIND_MS, BEHIND_RECORDS, LOSSES

BATCH_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the histogram's buckets."""

_ENDED_KEPT_MAX = 1000


class _Source:
    """Figures of one source of a query."""

    def __init__(self) -> None:
        self.rows = 0
        self.behind: dict[str, float] = {}
        self.lost = 0


class _Query:
    """Figures of one query, over all its runs."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.is_active = True
        self.failures = 0
        self.batch_counts = [0] * (len(BATCH_SECONDS) + 1)
        self.batch_seconds = 0.0
        self.told_s = 0.0
        self.last_batch_id: int | None = None
        self.sources: dict[int, _Source] = {}


class StreamTelemetry(Collector):
    """Keeps the figures of all queries of a session; any thread may tell and ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By query id, in the order of their last start.
        self._queries: OrderedDict[str, _Query] = OrderedDict()

    def begin(self, query_id: str, name: str | None, now_s: float) -> None:
        """Note that a query has started, perhaps not for the first time."""
        with self._lock:
            query = self._query(query_id, name)
            query.is_active, query.told_s, query.last_batch_id = True, now_s, None
            for source in query.sources.values():
                source.lost = 0
            self._queries.move_to_end(query_id)
            self._forget()

    def idle(self, query_id: str, now_s: float) -> None:
        """Note that a query has found nothing to do."""
        with self._lock:
            self._query(query_id, None).told_s = now_s

    def end(self, query_id: str, *, has_failed: bool) -> None:
        """Note that a query has ended."""
        with self._lock:
            query = self._query(query_id, None)
            query.is_active = False
            query.failures += has_failed

    def note(self, progress: Mapping[str, Any], now_s: float) -> None:
        """Take in a query's progress.

        Args:
            progress: A `StreamingQueryProgress`, decoded from its JSON.
            now_s: Seconds since 1970.

        """
        with self._lock:
            query = self._query(progress["id"], progress.get("name"))
            query.told_s = now_s
            # Progress without a micro-batch comes too, with the id of the one before or of the next.
            if "addBatch" in progress.get("durationMs", {}) and progress["batchId"] != query.last_batch_id:
                query.last_batch_id = progress["batchId"]
                seconds = progress["durationMs"].get("triggerExecution", progress.get("batchDuration", 0)) / 1000
                query.batch_counts[bisect_left(BATCH_SECONDS, seconds)] += 1
                query.batch_seconds += seconds
            for place, told in enumerate(progress.get("sources", ())):
                _take_in(query.sources.setdefault(place, _Source()), told)

    def _query(self, query_id: str, name: str | None) -> _Query:
        found = self._queries.get(query_id)
        if found is None:
            found = self._queries[query_id] = _Query(name or query_id)
        elif name:
            found.label = name
        return found

    def _forget(self) -> None:
        """Let go of the queries that ended longest ago: unnamed ones come with ever new ids."""
        ended = [query_id for query_id, query in self._queries.items() if not query.is_active]
        for query_id in ended[: max(0, len(ended) - _ENDED_KEPT_MAX)]:
            del self._queries[query_id]

    def collect(self) -> Iterable[Metric]:
        """Return all metrics, for a registry of `prometheus_client`."""
        with self._lock:
            # Two queries of one name would be one series twice: the one that started last counts.
            queries = list({query.label: query for query in self._queries.values()}.values())
            return [*_of_queries(queries), *_of_sources(queries)]


def _take_in(source: _Source, told: Mapping[str, Any]) -> None:
    source.rows += told.get("numInputRows", 0)
    latest = told.get("latestOffset")
    if isinstance(latest, str):
        try:
            latest = json.loads(latest)
        except ValueError:
            return
    if not isinstance(latest, dict) or BEHIND_RECORDS not in latest:
        return
    source.behind = {"records": latest[BEHIND_RECORDS], "bytes": latest[BEHIND_BYTES]}
    if BEHIND_MS in latest:
        source.behind["seconds"] = latest[BEHIND_MS] / 1000
    source.lost = sum(loss["count"] or 0 for loss in latest.get(LOSSES, ()))


def _of_queries(queries: Iterable[_Query]) -> Iterable[Metric]:
    active = GaugeMetricFamily("rsm_stream_active", "1 while the query runs.", labels=["query"])
    failures = CounterMetricFamily("rsm_stream_failures", "Ends with an error.", labels=["query"])
    batches = CounterMetricFamily("rsm_stream_batches", "Micro-batches committed.", labels=["query"])
    seconds = HistogramMetricFamily("rsm_stream_batch_seconds", "Time a micro-batch took.", labels=["query"])
    told = GaugeMetricFamily("rsm_stream_progress_timestamp_seconds", "When it told of itself.", labels=["query"])
    for query in queries:
        labels = [query.label]
        active.add_metric(labels, query.is_active)
        failures.add_metric(labels, query.failures)
        total, buckets = 0, []
        for bound, count in zip((*map(str, BATCH_SECONDS), "+Inf"), query.batch_counts, strict=True):
            total += count
            buckets.append((bound, total))
        batches.add_metric(labels, total)
        seconds.add_metric(labels, buckets, query.batch_seconds)
        told.add_metric(labels, query.told_s)
    return active, failures, batches, seconds, told


def _of_sources(queries: Iterable[_Query]) -> Iterable[Metric]:
    names = ["query", "source"]
    rows = CounterMetricFamily("rsm_stream_rows", "Rows read.", labels=names)
    behind = {
        "records": GaugeMetricFamily("rsm_stream_behind_records", "Records or entries that wait.", labels=names),
        "bytes": GaugeMetricFamily("rsm_stream_behind_bytes", "Payload that waits.", labels=names),
        "seconds": GaugeMetricFamily("rsm_stream_behind_seconds", "Logged time from oldest to newest.", labels=names),
    }
    lost = GaugeMetricFamily("rsm_stream_lost_records", "Records that were gone and were skipped.", labels=names)
    for query in queries:
        for place, source in sorted(query.sources.items()):
            labels = [query.label, str(place)]
            rows.add_metric(labels, source.rows)
            for unit, value in source.behind.items():
                behind[unit].add_metric(labels, value)
            if source.behind:
                lost.add_metric(labels, source.lost)
    return rows, *behind.values(), lost

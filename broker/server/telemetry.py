"""Metrics of a broker for Prometheus, beside those of its replica: read when asked.

The names are a contract with dashboards and alerts: docs/operations.md lists them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.machine.machine import BrokerMachine
from broker.machine.messages import decode_result, encode
from broker.machine.queries import GetOverview
from broker.machine.statuses import TaskStatus, WorkerStatus
from broker.machine.views import OverviewView
from broker.server.worker_registry import WorkerRegistry
from broker.server.worker_service import WorkerService
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.telemetry import ReplicaTelemetry, of_log


class BrokerTelemetry(Collector):
    """Metrics of one broker, its replica and its process.

    Args:
        replica: The replica.
        machine: Its state.
        registry: Of its workers.
        streams: Of its workers.
        folder: Of its data, whose disk is looked at.
        clock_s: Wall clock, for ages.

    """

    def __init__(
        self,
        replica: Replica,
        machine: BrokerMachine,
        registry: WorkerRegistry,
        streams: WorkerService,
        folder: str = "",
        *,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._machine = machine
        self._replica = replica
        self._registry = registry
        self._streams = streams
        self._clock_s = clock_s
        self._all = ReplicaTelemetry(replica, folder=folder, clock_s=clock_s)
        self._all.add(self)

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return await self._all.text()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics as they are now: those of the log have its name."""
        yield from of_log(self._replica.status().log, self._of_log())

    def _of_log(self) -> Iterable[Metric]:
        shown = decode_result(self._machine.query(encode(GetOverview()), self._replica.revision))
        assert isinstance(shown, OverviewView)
        tasks = GaugeMetricFamily("rsm_broker_tasks", "Tasks by status.", labels=["status"])
        for status in TaskStatus:
            tasks.add_metric([status.name.lower()], shown.by_status.get(status, 0))
        yield tasks
        workers = GaugeMetricFamily("rsm_broker_workers", "Workers by status.", labels=["status"])
        for known in WorkerStatus:
            workers.add_metric([known.name.lower()], shown.workers_by_status.get(known, 0))
        yield workers
        yield _gauge("rsm_broker_threads", "Tasks that connected workers can run at once.", shown.threads)
        yield _gauge("rsm_broker_tenants", "Tenants with tasks that have not ended.", shown.tenant_count)
        # Logged time stands still while nothing is logged, and that may be why a task waits.
        now_s = max(self._clock_s(), shown.logged_ms / 1000)
        oldest_s = max(0.0, now_s - shown.oldest_waiting_ms / 1000) if shown.oldest_waiting_ms else 0.0
        yield _gauge("rsm_broker_oldest_waiting_seconds", "Age of the oldest waiting task; 0 = none.", oldest_s)
        text = "Waiting tasks that no connected worker serves, whatever else they wait for."
        yield _gauge("rsm_broker_unserved_tasks", text, self._machine.scheduler.unserved_count())
        yield _gauge("rsm_broker_streams", "Workers' streams that are open here.", self._streams.stream_count)
        yield _counter("rsm_broker_dispatched", "Assignments handed over by this process.", self._registry.dispatched)
        yield _counter(
            "rsm_broker_undelivered",
            "Assignments whose worker had no stream when they were confirmed; they are given back.",
            self._registry.undelivered,
        )
        yield _counter("rsm_broker_reports", "Commands by which workers' runs were reported.", self._registry.reports)
        yield _counter("rsm_broker_worker_messages", "Messages of workers.", self._streams.messages)
        yield _counter("rsm_broker_refused_streams", "Workers' calls refused for what they said.",
                       self._streams.refused_count)  # fmt: skip


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)

"""Metrics of a replica for Prometheus, read from its status when asked, so that the hot path pays a few additions.

The names are a contract with dashboards and alerts: docs/operations.md lists them.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from ledger.http.metrics import CERTIFICATE_TEXT, CLOCK_TEXT
from ledger.ports import SessionState
from ledger.shown_certificates import certificate_ends
from rsm_spark.core.envelope import record_count_of
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.status import ReplicaRole, ReplicaStatus
from rsm_spark.runtime.told_counts import ToldCounts

METRICS_TYPE = CONTENT_TYPE_LATEST
"""Content type of `ReplicaTelemetry.text`."""

_BATCH_BITS = 16
"""Histogram of batch sizes: 0, 1, 3, 7, … 32,767 records and more."""
_DISK_WAIT_S_MAX = 1.0


class EntryCounts:
    """Confirmed entries as they pass, on leader and follower alike.

    Attributes:
        entries: How many.
        records: Records in them.
        payload_bytes: Their payload.
        by_bits: Entries by the bit length of their record count; the last takes all above.

    """

    def __init__(self) -> None:
        self.entries = 0
        self.records = 0
        self.payload_bytes = 0
        self.by_bits = [0] * (_BATCH_BITS + 1)

    def note(self, payload: bytes) -> None:
        records = record_count_of(payload)
        self.entries += 1
        self.records += records
        self.payload_bytes += len(payload)
        self.by_bits[min(records.bit_length(), _BATCH_BITS)] += 1


class ReplicaTelemetry(Collector):
    """Metrics of one replica and its process.

    Args:
        replica: The replica.
        folder: Of its data, whose disk is looked at; "" = not looked at.
        clock_s: Wall clock, for ages.

    """

    def __init__(self, replica: Replica, *, folder: str = "", clock_s: Callable[[], float] = time.time) -> None:
        self.counts = EntryCounts()
        self._replica = replica
        self._disk = _DataDisk(folder) if folder else None
        self._clock_s = clock_s
        replica.on_entry(self.counts.note)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        self._registry.register(ToldCounts())

    def add(self, collector: Collector) -> None:
        """Tell what another collector has too."""
        self._registry.register(collector)

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format; a disk that does not answer is shown as it was."""
        if self._disk is not None:
            await self._disk.look()
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics as they are now: those of the log have its name, the disk's are of its last look."""
        status = self._replica.status()
        yield from of_log(status.log, self._of_log(status))
        yield _gauge(
            "rsm_metadata_session",
            "1 = the session with ZooKeeper stands.",
            int(status.metadata_session == SessionState.CONNECTED),
        )
        use = self._replica.memory.gauge.look()
        yield _gauge("rsm_memory_used_bytes", "What counts against the limit.", use.used)
        yield _gauge("rsm_memory_limit_bytes", "Of this process, its cgroup or its machine.", use.limit)
        if self._disk is not None:
            yield from self._disk.metrics()
        yield _gauge("rsm_clock_timestamp_seconds", CLOCK_TEXT, self._clock_s())
        yield _certificates()

    def _of_log(self, status: ReplicaStatus) -> Iterable[Metric]:
        yield _gauge("rsm_revision", "Last revision applied; all of it is confirmed.", status.revision)
        yield _gauge("rsm_known_revision", "Highest revision that is known to be confirmed.", status.known_revision)
        yield _gauge("rsm_lag_seconds", "How old the applied state may be; 0 on the leader.", status.lag_ms / 1000)
        yield _gauge("rsm_leader_epoch", "Epoch of the last entry applied, or of the own claim.", status.leader_epoch)
        yield _roles(status)
        yield _gauge("rsm_rows", "Rows of all tables, sessions included.", status.row_count)
        yield _gauge("rsm_sessions", "Open client sessions.", status.session_count)
        yield _gauge("rsm_queued_requests", "Requests that wait for their batch.", status.queued)
        yield _counter("rsm_entries", "Confirmed entries applied since the process began.", self.counts.entries)
        yield _counter("rsm_records", "Records in these entries.", self.counts.records)
        yield _counter("rsm_entry_bytes", "Payload bytes of these entries.", self.counts.payload_bytes)
        yield _reads(status)
        yield _followed(status)
        relays = self._replica.relays
        yield _gauge("rsm_relays", "Clients' streams that are passed on to the leader now.", relays.open_count)
        yield _counter("rsm_relayed_streams", "Clients' streams passed on since the process began.", relays.relay_count)
        yield self._batches()
        yield from self._snapshots(status)
        yield from _trim(status)
        text = "Consumers whose unread records this process trimmed, as leader; each time counts."
        yield _counter("rsm_lapsed_consumers", text, status.lapsed_consumers)
        yield _gauge("rsm_alarms", "What an operator has to look at; /status has the words.", len(status.alarms))
        yield _gauge("rsm_failed", "1 = the replica has stopped by itself.", int(bool(status.failure)))

    def _batches(self) -> Metric:
        metric = HistogramMetricFamily("rsm_batch_records", "Records an entry.")
        total, buckets = 0, []
        for bits, count in enumerate(self.counts.by_bits[:-1]):
            total += count
            buckets.append((str(float((1 << bits) - 1)), float(total)))
        buckets.append(("+Inf", float(self.counts.entries)))
        metric.add_metric([], buckets=buckets, sum_value=float(self.counts.records))
        return metric

    def _snapshots(self, status: ReplicaStatus) -> Iterable[Metric]:
        yield _gauge("rsm_snapshot_revision", "Of the newest local snapshot; 0 = none.", status.snapshot_revision)
        if status.snapshot_ms:
            age_s = max(0.0, self._clock_s() - status.snapshot_ms / 1000)
            yield _gauge("rsm_snapshot_age_seconds", "Since the newest local snapshot was taken.", age_s)
        verified = GaugeMetricFamily(
            "rsm_verified_revision", "Of the newest verified snapshot of a place.", labels=["place"]
        )
        for place, revision in status.verified.items():
            verified.add_metric([place], revision)
        yield verified


def of_log(log: str, metrics: Iterable[Metric]) -> Iterable[Metric]:
    """Give every sample the name of a log as a label."""
    for metric in metrics:
        metric.samples = [one._replace(labels={"log": log, **one.labels}) for one in metric.samples]
        yield metric


class _DataDisk:
    """Room of the disk with the replica's folder; the event loop never waits for the disk."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._last: os.statvfs_result | None = None
        self._looking: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Look again; a look that takes too long goes on alone, and there is no second one beside it."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        await asyncio.wait({self._looking}, timeout=_DISK_WAIT_S_MAX)

    async def _look(self) -> None:
        try:
            self._last = await asyncio.to_thread(os.statvfs, self._folder)
        except OSError:  # What the replica writes there says why.
            self._last = None
        finally:
            self._looking = None

    def metrics(self) -> Iterable[Metric]:
        """Return what the last look found; nothing if it failed or none has ended."""
        found = self._last
        if found is None:
            return
        for name, text, blocks in (
            ("rsm_data_disk_free_bytes", "Free bytes of the disk with the replica's folder.", found.f_bavail),
            ("rsm_data_disk_bytes", "Size of that disk.", found.f_blocks),
        ):
            metric = GaugeMetricFamily(name, text, labels=["folder"])
            metric.add_metric([self._folder], blocks * found.f_frsize)
            yield metric


def _certificates() -> Metric:
    metric = GaugeMetricFamily("rsm_certificate_end_timestamp_seconds", CERTIFICATE_TEXT, labels=["file"])
    for path, end_s in certificate_ends().items():
        metric.add_metric([path], end_s)
    return metric


def _trim(status: ReplicaStatus) -> Iterable[Metric]:
    """Only the leader knows what may go."""
    if status.trim is not None:
        yield _gauge("rsm_trimmable_ledgers", "Ledgers that may go at the next trim.", len(status.trim.ledger_ids))
        yield _gauge("rsm_trim_overdue", "1 = nothing is trimmed though it is long due.", int(bool(status.trim.alarm)))


def _reads(status: ReplicaStatus) -> Metric:
    metric = CounterMetricFamily(
        "rsm_reads",
        "Linearizable reads answered, by what proved that they may be: index = as a follower.",
        labels=["by"],
    )
    metric.add_metric(["check"], status.reads_by_check)
    metric.add_metric(["lease"], status.reads_by_lease)
    metric.add_metric(["entry"], status.reads_by_entry)
    metric.add_metric(["index"], status.reads_by_index)
    return metric


def _followed(status: ReplicaStatus) -> Metric:
    metric = CounterMetricFamily(
        "rsm_followed_entries",
        "Entries applied as a follower, by where they came from: the leader that confirmed them, or bookies.",
        labels=["by"],
    )
    metric.add_metric(["leader"], status.entries_told)
    metric.add_metric(["bookies"], status.entries_read)
    return metric


def _roles(status: ReplicaStatus) -> Metric:
    metric = GaugeMetricFamily("rsm_role", "1 for the present role, 0 for the others.", labels=["role"])
    for role in ReplicaRole:
        metric.add_metric([role.value], int(role is status.role))
    return metric


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)

"""Pages of a worker over HTTP: whether a broker serves it, what runs, what has ended."""

from __future__ import annotations

from broker.worker.settings import WorkerSettings
from broker.worker.worker import Worker
from ledger.audit_lines import Refusals
from ledger.http.metrics import MetricsPage
from ledger.http.routes import ProbePage, ProbeRoute, json_page, probe_routes, text_page


class WorkerPages:
    """Pages of one worker.

    Args:
        worker: What is shown.
        settings: Of the worker.
        refusals: Counts of the HTTP port.

    """

    def __init__(self, worker: Worker, settings: WorkerSettings, refusals: Refusals) -> None:
        self._worker = worker
        self._settings = settings
        self._refusals = refusals

    def routes(self) -> dict[str, ProbeRoute]:
        """Return what is answered where."""
        return probe_routes(health=self._health, readiness=self._readiness, metrics=self.metrics, status=self._status)

    def _health(self) -> ProbePage:
        return text_page("has left", 503) if self._worker.has_left else text_page("ok")

    def _readiness(self) -> ProbePage:
        worker = self._worker
        if worker.is_draining:
            return text_page(f"not ready: drains, {worker.running} tasks run", 503)
        if not worker.is_connected:
            return text_page(f"not ready: no broker serves it: {worker.trouble}", 503)
        return text_page("ready")

    def _status(self) -> ProbePage:
        worker, counts = self._worker, self._worker.counts
        return json_page(
            {
                "worker_id": worker.worker_id,
                "incarnation": worker.incarnation,
                "connected": worker.is_connected,
                "trouble": worker.trouble,
                "draining": worker.is_draining,
                "threads": self._settings.threads,
                "running": worker.running,
                "running_by_type": {name: count for name, count in sorted(counts.running.items()) if count},
                "ended": [
                    {"type": name, "status": status, "count": count}
                    for (name, status), count in sorted(counts.ended.items())
                ],
            }
        )

    def metrics(self) -> ProbePage:
        """Return what this process counts, for Prometheus."""
        page, worker, counts = MetricsPage(), self._worker, self._worker.counts
        page.gauge("rsm_worker_connected", "1 = a broker serves it.", worker.is_connected)
        page.gauge("rsm_worker_draining", "1 = it takes nothing more.", worker.is_draining)
        page.gauge("rsm_worker_threads", "Tasks that it can run at once.", self._settings.threads)
        page.gauge("rsm_worker_held_tasks", "Tasks that it holds.", worker.running)
        for name, count in sorted(counts.running.items()):
            page.gauge("rsm_worker_running_tasks", "Tasks that run, by type.", count, type=name)
        for name, count in sorted(counts.begun.items()):
            page.counter("rsm_worker_begun_tasks_total", "Tasks that were begun, by type.", count, type=name)
        for (name, status), count in sorted(counts.ended.items()):
            text = "Tasks that ended, by type."
            page.counter("rsm_worker_ended_tasks_total", text, count, type=name, status=status)
        page.refusals(self._refusals, "http")
        page.process()
        return page.page()

"""Pages of a process that runs auto-recovery alone."""

from __future__ import annotations

import msgspec

from ledger.audit_lines import Refusals
from ledger.http.metrics import MetricsPage
from ledger.http.routes import ProbePage, ProbeRoute, json_page, probe_routes, text_page
from ledger.ports import SessionState
from ledger.replication.app import AutoRecovery
from ledger.replication.cluster_pages import ClusterPages
from ledger.replication.telemetry import add_recovery_metrics, add_session_metric
from ledger.rights.table import Right
from ledger.zookeeper.ledgers import LedgerStore


class RecoveryPages:
    """Pages of auto-recovery.

    Args:
        ledgers: Metadata of the cluster.
        recovery: What runs.
        refusals: Counts of the HTTP port.

    """

    def __init__(self, ledgers: LedgerStore, recovery: AutoRecovery, refusals: Refusals) -> None:
        self._ledgers = ledgers
        self._recovery = recovery
        self._refusals = refusals

    def routes(self) -> dict[str, ProbeRoute]:
        """Return what is answered where."""
        return {
            **probe_routes(
                health=lambda: text_page("ok"), readiness=self._readiness, metrics=self.metrics, status=self._status
            ),
            "GET /heartbeat": ProbeRoute(lambda _: text_page("OK"), Right.STATUS),
            **ClusterPages(self._ledgers, lambda: self._recovery).routes(),
        }

    def _readiness(self) -> ProbePage:
        state = self._ledgers.store.session_state
        if state is SessionState.CONNECTED:
            return text_page("ready")
        return text_page(f"not ready: its session with ZooKeeper is {state.value}", 503)

    def _status(self) -> ProbePage:
        recovery = self._recovery
        return json_page(
            {
                "owner": recovery.marks.owner,
                "metadata_session": self._ledgers.store.session_state,
                "auditor": msgspec.to_builtins(recovery.auditor_counts),
                "worker": msgspec.to_builtins(recovery.worker_counts),
            }
        )

    def metrics(self) -> ProbePage:
        """Return what this process counts, for Prometheus."""
        page = MetricsPage()
        add_session_metric(page, self._ledgers.store.session_state)
        add_recovery_metrics(page, self._recovery)
        page.refusals(self._refusals, "http")
        page.process()
        return page.page()

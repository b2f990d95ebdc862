"""Metrics of auto-recovery; those that BookKeeper has have its names."""

from __future__ import annotations

from ledger.http.metrics import MetricsPage
from ledger.ports import SessionState
from ledger.replication.app import AutoRecovery


def add_session_metric(page: MetricsPage, state: SessionState) -> None:
    """Add whether the metadata store is there."""
    page.gauge("rsm_metadata_session", "1 = the session with ZooKeeper stands.", state is SessionState.CONNECTED)


def add_recovery_metrics(page: MetricsPage, recovery: AutoRecovery) -> None:
    """Add what auditor and worker of a process count; what the cluster lacks is told by its auditor alone."""
    auditor, worker = recovery.auditor_counts, recovery.worker_counts
    page.gauge("rsm_auditor", "1 = this process is the cluster's auditor.", auditor.is_leading)
    if auditor.is_leading:
        page.gauge("rsm_under_replicated_ledgers", "Ledgers that lack copies.", auditor.standing_count)
        page.gauge("rsm_lost_bookies", "Bookies that are missing for longer than the delay.", len(auditor.lost))
    if auditor.is_leading and auditor.audited_ms:
        about = "by the last audit"
        page.gauge("rsm_audited_ledgers", f"Ledgers of the cluster, {about}.", auditor.ledger_count)
        page.gauge("rsm_audit_timestamp_seconds", "When that was, Unix time.", auditor.audited_ms / 1000)
        prefix = "replication_auditor_NUM_LEDGERS_HAVING"
        text = f"Ledgers with entries of which nobody who serves has a copy, {about}."
        page.gauge(f"{prefix}_NO_REPLICA_OF_AN_ENTRY", text, auditor.unreadable_count)
        text = f"Ledgers with entries that have fewer copies than an acknowledgement needs, {about}."
        page.gauge(f"{prefix}_LESS_THAN_AQ_REPLICAS_OF_AN_ENTRY", text, auditor.short_count)
    page.counter("rsm_auditor_marks_total", "Marks that this auditor made or added to.", auditor.marked_count)
    name = "replication_replication_worker_NUM"
    page.counter(f"{name}_ENTRIES_WRITTEN", "Entries copied.", worker.entry_count)
    text = "Ledgers that this worker gave all their copies again."
    page.counter(f"{name}_FULL_OR_PARTIAL_LEDGERS_REPLICATED", text, worker.repaired_count)
    page.counter("rsm_replication_failures_total", "Attempts that came to nothing, or half-way.", worker.failed_count)
    page.counter("rsm_replaced_bookies_total", "Places of lost bookies given to others.", worker.swap_count)

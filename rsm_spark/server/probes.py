"""Pages of a replica over HTTP, for supervisors, load balancers and Prometheus.

    GET /healthz   200 while the process works; 503 once the replica has stopped by itself, with why
    GET /readyz    200 while requests make sense here: it leads, or follows closely enough, and has a session; else 503
    GET /metrics   Prometheus' text format
    GET /status    the replica's status as JSON

The server is `ledger.http.probe_server`.
"""

from __future__ import annotations

from ledger.http.routes import ProbePage
from ledger.ports import SessionState
from rsm_spark.runtime.status import ReplicaRole, ReplicaStatus


def health(status: ReplicaStatus) -> ProbePage:
    """Say whether the process has to be restarted."""
    return ProbePage(503, f"stopped: {status.failure}\n".encode()) if status.failure else ProbePage(200, b"ok\n")


def readiness(status: ReplicaStatus, *, lag_ms_max: int) -> ProbePage:
    """Say whether clients should be sent here.

    Args:
        status: Of the replica.
        lag_ms_max: A follower whose state may be older than this is not ready.

    """
    if status.failure:
        return ProbePage(503, f"stopped: {status.failure}\n".encode())
    if status.metadata_session == SessionState.LOST:
        return ProbePage(503, b"not ready: its session with ZooKeeper is lost, and there is no new one yet\n")
    if status.role is ReplicaRole.LEADER:
        return ProbePage(200, b"ready: leads\n")
    if status.role is ReplicaRole.CANDIDATE:
        return ProbePage(503, b"not ready: takes the log over\n")
    if status.logged_ms == 0:
        return ProbePage(503, b"not ready: it has read nothing of the log yet\n")
    if status.lag_ms > lag_ms_max:
        return ProbePage(
            503, f"not ready: {status.lag_ms / 1000:.1f} s behind, {lag_ms_max / 1000:g} s allowed\n".encode()
        )
    return ProbePage(200, f"ready: follows, {status.lag_ms / 1000:.1f} s behind\n".encode())

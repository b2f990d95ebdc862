"""Interface of a broker that the HTTP edge needs; `BrokerService` implements it."""

from __future__ import annotations

from typing import Protocol

from broker.machine.commands import BrokerCommand
from broker.machine.queries import BrokerQuery
from broker.machine.replies import BrokerReply
from broker.machine.views import BrokerResult, Nothing, TaskView
from ledger.http.routes import ProbePage
from rsm_spark.core.commands import Audited
from rsm_spark.core.freshness import STALE, Freshness
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.runtime.status import ReplicaStatus


class StatusSource(Protocol):
    """A replica, as far as it is shown here."""

    def status(self) -> ReplicaStatus:
        """Return what is shown of it."""


class AuditSink(Protocol):
    """Audit of changes and their authors; `rsm_spark.runtime.auditing.AuditTrail` is one."""

    async def asked(self, audited: Audited) -> None:
        """Log what is about to be done; without that it must not be done.

        Raises:
            RsmError: It cannot be logged.

        """

    async def ended(self, audited: Audited, outcome: str) -> None:
        """Log what came of it."""

    def refused(self, audited: Audited, now_s: float) -> None:
        """Count what was refused."""


class Broker(Protocol):
    @property
    def audit(self) -> AuditSink:
        """Audit of the broker's log."""

    @property
    def replica(self) -> StatusSource:
        """Replica of the broker."""

    async def execute(self, command: BrokerCommand, *, timeout_s: float = 30) -> BrokerReply:
        """Execute a command exactly once.

        Raises:
            NotLeaderError: This broker does not lead.
            OverloadedError: Too much waits already; nothing was executed.
            OutcomeUnknownError: It may or may not have been executed.

        """

    async def query(self, query: BrokerQuery, *, freshness: Freshness = STALE) -> tuple[BrokerResult, int]:
        """Return what is asked, and the revision of the state that it was read from.

        Raises:
            TooStaleError: This broker's state is not new enough.
            NotLeaderError: A linearizable read, of a follower.

        """

    def readiness(self) -> ProbePage:
        """Say whether clients should be sent here."""

    def leader_http(self) -> str | None:
        """Return the URL of the leading broker, as far as known."""

    def weight_of(self, tenant: str) -> float:
        """Return the weight of a tenant as its policy says it here; of one that is not known, the default."""

    def feed(self) -> ChangeFeed:
        """Return the records of the log as they are confirmed."""

    async def metrics(self) -> bytes:
        """Return the metrics of the process in Prometheus' text format."""

    async def wait_task(self, tenant: str, task_id: int, timeout_s: float) -> TaskView | Nothing:
        """Return a task when it has ended, or as it is when the time has passed."""

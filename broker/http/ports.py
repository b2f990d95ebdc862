"""What the HTTP edge needs of a broker: what `BrokerService` is, as far as it is asked from here."""

from __future__ import annotations

from typing import Protocol

from broker.core.commands import BrokerCommand
from broker.core.queries import BrokerQuery
from broker.core.replies import BrokerReply
from broker.core.shown import BrokerResult, Nothing, TaskShown
from rsm_spark.core.freshness import STALE, Freshness
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.runtime.status import ReplicaStatus

__all__ = ["Broker", "StatusSource"]


class StatusSource(Protocol):
    """A replica, as far as it is shown here."""

    def status(self) -> ReplicaStatus:
        """Return what is shown of it."""


class Broker(Protocol):
    """See the module."""

    @property
    def replica(self) -> StatusSource:
        """Return the broker's replica."""

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

    def leader_http(self) -> str | None:
        """Return the URL of the leading broker, as far as known."""

    def feed(self) -> ChangeFeed:
        """Return the records of the log as they are confirmed."""

    def metrics(self) -> bytes:
        """Return the metrics of the process in Prometheus' text format."""

    async def wait_task(self, tenant: str, task_id: int, timeout_s: float) -> TaskShown | Nothing:
        """Return a task when it has ended, or as it is when the time has passed."""

"""One replica of a state machine: leads or follows its log, in one process, changing roles as the chain demands."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rsm_spark.core.commands import Answer, AnswerStatus, Request
from rsm_spark.core.machine import StateMachine
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaStatus, Role

if TYPE_CHECKING:
    from ledger.client import LedgerClient
    from rsm_spark.core.chain import Leadership
    from rsm_spark.core.position import LogPosition
    from rsm_spark.snapshots import SnapshotStore

__all__ = ["Replica"]

Result = TypeVar("Result")


class Replica:
    """A replica. Everything happens on the event loop that called `start`.

    Args:
        machine: The state, empty; the replica alone calls it from now on.
        log: Name of the log.
        replica_id: Stable name of this replica within the log.
        client: Connected ledger client; stays the caller's to close.
        snapshots: Local snapshots.
        lake: Snapshots to boot from when there is no local one.
        advertised: Address that clients should use ("host:port").
        settings: See `ReplicaSettings`.
        clock_ms: Wall clock.
        rng: Entropy for ids and for the spread of retries.
        run_blocking: Runs a blocking function elsewhere (snapshots); default `asyncio.to_thread`.

    Attributes:
        role: See `Role`.
        leader_epoch: Of the own leadership, else of the last entry applied.
        revision: Applied and confirmed.
        position: Last confirmed entry applied, or None.
        prefix_hash: Of the log up to `position`.
        digest: Of the state at `revision`.
        leader: Who claimed the log last, as far as known.
        leader_address: Its advertised address, as far as known.

    """

    role: Role
    leader_epoch: int
    revision: int
    position: LogPosition | None
    prefix_hash: bytes
    digest: int
    leader: Leadership | None
    leader_address: str | None

    def __init__(
        self,
        machine: StateMachine,
        *,
        log: str,
        replica_id: str,
        client: LedgerClient,
        snapshots: SnapshotStore,
        lake: SnapshotStore | None = None,
        advertised: str = "",
        settings: ReplicaSettings | None = None,
        clock_ms: Callable[[], int] | None = None,
        rng: random.Random | None = None,
        run_blocking: Callable[[Callable[[], Result]], Awaitable[Result]] | None = None,
    ) -> None:
        self.role = Role.FOLLOWER
        self.leader_epoch = 0
        self.revision = 0
        self.position = None
        self.prefix_hash = b""
        self.digest = 0
        self.leader = None
        self.leader_address = None

    async def start(self) -> None:
        """Boot from a snapshot and the log, then follow, and lead when elected.

        Returns when the state is loaded and the replica follows; catching up and elections go on behind.

        Raises:
            MissingLogError: No snapshot reaches what is left of the log.
            CorruptLogError: The log or the state is not what it must be.

        """
        raise NotImplementedError

    async def stop(self) -> None:
        """Leave in an orderly way: pending requests are answered, the election node goes at once."""
        raise NotImplementedError

    async def __aenter__(self) -> Replica:
        """Start."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self.stop()

    async def wait_stopped(self) -> None:
        """Wait until the replica has stopped.

        Raises:
            RsmError: It stopped by itself: a corrupt log, a state that differs from the leader's.

        """
        raise NotImplementedError

    def submit(self, requests: Sequence[Request], *, stale: bool = False) -> asyncio.Future[list[Answer]]:
        """Queue requests and return one future of their answers, in order. Never raises for what a replica may be.

        Args:
            requests: Decided in this order, those of one session above all.
            stale: A follower answers queries from its applied state instead of NOT_LEADER.

        """
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        future.set_result([Answer(AnswerStatus.NOT_LEADER, self.revision, b"") for _ in requests])
        return future

    def status(self) -> ReplicaStatus:
        """Return what `rsm status` shows."""
        raise NotImplementedError

    def on_role(self, listener: Callable[[Role], None]) -> Callable[[], None]:
        """Call `listener` at every change of role; return what unsubscribes it."""
        raise NotImplementedError

    def on_applied(self, listener: Callable[[int], None]) -> Callable[[], None]:
        """Call `listener` with the revision after every confirmed entry applied; return what unsubscribes it."""
        raise NotImplementedError

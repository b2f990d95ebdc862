"""The calm after the trouble: everything is answered, all replicas agree, a new one comes to the same state."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from ledger.errors import LedgerError
from rsm_spark.errors import MissingLogError
from rsm_spark.testing.cluster import ReplicaCluster
from rsm_spark.testing.linearizability import check_history
from rsm_spark.testing.sessions import SessionClient

__all__ = ["CALM_S_MAX", "Judge"]

CALM_S_MAX = 60.0
_STATES_MAX = 200_000


class Judge:
    """Judges a cluster.

    Args:
        cluster: The replicas.
        clients: Who worked on it.
        tell: Takes lines of the story.
        make_client: Makes the client that asks in the calm.

    Attributes:
        excuses: Whether a replica may stop for this reason.

    """

    def __init__(
        self,
        cluster: ReplicaCluster,
        clients: list[SessionClient],
        tell: Callable[[str], None],
        make_client: Callable[[random.Random, str], SessionClient] | None = None,
    ) -> None:
        self._make_client = make_client or (lambda rng, name: SessionClient(cluster, rng, name))
        self._cluster = cluster
        self._clients = clients
        self._tell = tell
        self._exits_seen = 0
        self.excuses: Callable[[object], bool] = lambda _reason: False

    def check_exits(self) -> None:
        """Fail if a replica ended by itself, other than as it booted: the metadata store, or all peers, were away."""
        stopped = self._cluster.stopped
        for name, reason in stopped[self._exits_seen :]:
            if self.excuses(reason):
                continue
            if isinstance(reason, Exception) and not isinstance(reason, LedgerError | MissingLogError):
                self._cluster.ghosts.fail("no-crash", f"{name} stopped: {reason!r}")
        self._exits_seen = len(stopped)

    async def converge(self, tasks: list[asyncio.Task[None]]) -> None:
        """Without faults everything is answered and all replicas are at the same place within a minute."""
        cluster = self._cluster
        for client in self._clients:
            client.is_calm = True
        await self._until(lambda: all(task.done() for task in tasks), "all clients are answered")
        for task in tasks:
            task.result()
        probe = self._make_client(random.Random(1), "probe")
        try:
            async with asyncio.timeout(CALM_S_MAX):
                while probe.acknowledged == 0:
                    await probe.step()
        except TimeoutError:
            cluster.ghosts.fail("convergence", f"a new client's command is not answered in {CALM_S_MAX:.0f} s of calm")
        self._clients.append(probe)
        await self._until(self._all_are_there, "all replicas are up and have applied everything")
        self._compare()
        victim = next(host for host in cluster.hosts if host.name != cluster.leader)
        self._tell(f"{victim.name} begins again on an empty disk")
        victim.kill()
        cluster.wipe(victim)
        await self._until(self._all_are_there, "a replica with an empty disk comes to the same state")
        self._compare()

    def _all_are_there(self) -> bool:
        cluster = self._cluster
        replicas = list(cluster.replicas.values())
        return len(replicas) == len(cluster.hosts) and all(
            replica.revision >= cluster.ghosts.revision for replica in replicas
        )

    def _compare(self) -> None:
        cluster = self._cluster
        for replica in cluster.replicas.values():
            replica._context.state.validate()
        lost = cluster.ghosts.acknowledged - cluster.ghosts.replies.keys()
        if lost:
            cluster.ghosts.fail("acked-is-durable", f"{len(lost)} acknowledged commands are not in the log")

    def judge_history(self) -> None:
        """Judge what clients were told: linearizable, counter by counter."""
        verdict = check_history(
            (call for client in self._clients for call in client.history), state_count_max=_STATES_MAX
        )
        if not verdict.is_linearizable:
            self._cluster.ghosts.fail("linearizable", verdict.explain())

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + CALM_S_MAX
        while not holds():
            await asyncio.sleep(0.2)
            self.check_exits()
            if loop.time() > deadline_s:
                at = {name: (str(replica.role), replica.revision) for name, replica in self._cluster.replicas.items()}
                self._cluster.ghosts.fail(
                    "convergence",
                    f"{what}: not within {CALM_S_MAX:.0f} s of calm; the log ends at revision "
                    f"{self._cluster.ghosts.revision}, replicas are at {at}",
                )

"""A rolling upgrade of a simulated cluster: hosts get the next version of their machine one by one, some go back."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence

from ledger.errors import LedgerError
from ledger.testing.hosts import SimHost
from ledger.testing.metadata import SimMetadata
from rsm_spark.core.machine import StateMachine
from rsm_spark.errors import RsmError
from rsm_spark.log.admin_requests import AdminRequests, RaiseVersionRequest
from rsm_spark.testing.cluster import LOG, ReplicaCluster
from rsm_spark.testing.version_witness import VersionWitness

_SESSION_MS = 10_000
_ORDER_S = 5.0


class RollingUpgrade:
    """Replaces the processes of a cluster by ones of the next version, while whatever else happens.

    Args:
        cluster: The replicas; all hosts begin with the first version.
        metadata: Where operators place their orders.
        versions: Makers of an empty machine, oldest version first.
        rng: Decides what and when.
        witness: Is told of orders.

    Attributes:
        counts: What was done, by name: upgrades, downgrades, orders to raise the version.
        back_rate: How many steps go back.
        order_rate: How many are orders to raise the version.
        force_rate: How many of those raise it whoever is behind.
        ambush_rate: How often a leader is killed just as the log is raised: nobody else has heard of it then.

    """

    def __init__(
        self,
        cluster: ReplicaCluster,
        metadata: SimMetadata,
        versions: Sequence[Callable[[], StateMachine]],
        rng: random.Random,
        witness: VersionWitness,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._cluster, self._metadata, self._rng, self._witness = cluster, metadata, rng, witness
        self._versions = versions
        self._at = dict.fromkeys((host.name for host in cluster.hosts), 0)
        self.back_rate = rng.choice((0.0, 0.2, 0.4))
        self.order_rate = rng.choice((0.0, 0.2))
        self.force_rate = rng.choice((0.0, 0.0, 0.5))
        self.ambush_rate = rng.choice((0.0, 0.5))
        witness.on_raise = self._ambush
        self._is_over = False
        for host in cluster.hosts:
            cluster.machines[host.name] = versions[0]

    async def run(self, duration_s: float) -> None:
        """Upgrade, go back, and place orders, now and then, for so long."""
        loop = asyncio.get_running_loop()
        end = loop.time() + duration_s
        pause_s = duration_s / (2 * len(self._cluster.hosts) * len(self._versions))
        while loop.time() < end:
            await asyncio.sleep(self._rng.uniform(0.2, 1.8) * pause_s)
            if self._rng.random() < self.order_rate:
                await self._order(is_forced=self._rng.random() < self.force_rate)
            elif self._rng.random() < self.back_rate:
                self._step(self._rng.choice(self._cluster.hosts), -1)
            else:
                self._step(min(self._cluster.hosts, key=lambda host: (self._at[host.name], self._rng.random())), 1)

    async def finish(self) -> None:
        """Bring every host to the last version; return when the log is of it."""
        self._is_over = True
        for host in self._cluster.hosts:
            while self._step(host, 1):
                pass
        wanted = self._versions[-1]().description.version
        while self._witness.version < wanted:
            await asyncio.sleep(0.5)
            if not self._cluster.settings.raise_version:
                await self._order(is_forced=False)

    def _ambush(self) -> None:
        leader = self._cluster.leader
        if leader is None or self._is_over or self._rng.random() >= self.ambush_rate:
            return
        self._cluster.simulation.after(self._rng.uniform(0.0, 0.005), self._cluster.simulation.hosts[leader].kill)
        self.counts["leader killed as it raised"] += 1

    def _step(self, host: SimHost, by: int) -> bool:
        """Kill a host's process: the next one runs another version; return whether there was one."""
        at = self._at[host.name] + by
        if not 0 <= at < len(self._versions):
            return False
        self._at[host.name] = at
        self._cluster.machines[host.name] = self._versions[at]
        self._cluster.simulation.loop.note(f"version {at} {host.name}".encode())
        host.kill()
        self.counts["upgrade" if by > 0 else "downgrade"] += 1
        return True

    async def _order(self, *, is_forced: bool) -> None:
        """Have an operator raise the version; what is refused, or not answered, is tried another time."""
        self._witness.is_forced |= is_forced
        try:
            store = await self._metadata.connect(session_timeout_ms=_SESSION_MS)
            try:
                orders = AdminRequests(store, LOG)
                answer = await orders.place(RaiseVersionRequest(force=is_forced), timeout_s=_ORDER_S)
            finally:
                await store.close()
        except (LedgerError, RsmError):
            return
        if not answer.refusal:
            self._witness.told(answer.outcome["version"])
            self.counts["forced raise" if is_forced else "ordered raise"] += 1

"""The leader's confirmed entries in a simulated cluster: told from host to host, late, lost, and not over cut paths."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rsm_spark.core.confirmed_tail import ToldEntries
from rsm_spark.core.position import LogPosition
from rsm_spark.errors import ConnectionLostError

if TYPE_CHECKING:
    # The cluster makes the tails of its replicas, and they find each other by it: two halves of one cluster.
    from ledger.testing.hosts import SimHost
    from rsm_spark.testing.cluster import ReplicaCluster

_LOST_RATE = 0.02
_LATE_RATE = 0.05
_LATE_S_MAX = 1.0


class SimTails:
    """The `TailPeers` of one replica.

    Args:
        cluster: All replicas; `cluster.cut_peers` are the paths, (from, to), over which nothing passes.
        host: Of the one that asks.

    """

    def __init__(self, cluster: ReplicaCluster, host: SimHost) -> None:
        self._cluster = cluster
        self._host = host
        self._rng = cluster.simulation.random(f"tails of {host.name} {len(host.exits)}")

    async def entries_after(self, address: str, framed: str, position: LogPosition) -> ToldEntries:
        """Ask a leader, whose event loop answers."""
        del framed
        name, own, rng = address.partition(":")[0], self._host.name, self._rng
        await asyncio.sleep(rng.uniform(0.0002, 0.002))
        replica = self._cluster.replicas.get(name)
        if replica is None or (own, name) in self._cluster.cut_peers or rng.random() < _LOST_RATE:
            raise ConnectionLostError(f"replica {name} does not answer")
        told: asyncio.Future[ToldEntries] = asyncio.get_running_loop().create_future()

        async def _tell() -> None:
            answer = await replica.tell_entries(position)
            delay_s = rng.uniform(0.0002, _LATE_S_MAX if rng.random() < _LATE_RATE else 0.002)
            if (name, own) not in self._cluster.cut_peers and rng.random() > _LOST_RATE:
                self._cluster.simulation.after(delay_s, _deliver, told, answer)

        self._cluster.simulation.hosts[name].spawn(_tell())
        return await told  # Who asks gives up by itself.

    async def close(self) -> None:
        """There is nothing to close."""


def _deliver(told: asyncio.Future[ToldEntries], answer: ToldEntries) -> None:
    if not told.done():
        told.set_result(answer)

"""Beats of a simulated cluster: from host to host, late, and not over cut paths."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from rsm_spark.core.beats import BeatAnswer
from rsm_spark.errors import ConnectionLostError

if TYPE_CHECKING:
    # The cluster makes the ears of its replicas, and they find each other by it: two halves of one cluster.
    from ledger.testing.hosts import SimHost
    from rsm_spark.testing.cluster import ReplicaCluster

_LATENCY_S_MAX = 0.02


class SimBeats:
    """The `BeatPeers` of one replica.

    Args:
        cluster: All replicas; `cluster.cut_peers` are the paths, (from, to), over which nothing passes.
        host: Of the one that listens.

    """

    def __init__(self, cluster: ReplicaCluster, host: SimHost) -> None:
        self._cluster = cluster
        self._host = host
        self._rng = cluster.simulation.random(f"beats of {host.name} {len(host.exits)}")

    async def listen(self, address: str, incarnation: str, on_beat: Callable[[], None]) -> None:
        """Call `on_beat` for each beat, which the event loop of the other host makes."""
        name = address.partition(":")[0]
        arrived = asyncio.Event()
        is_listening = True
        simulation, cut = self._cluster.simulation, self._cluster.cut_peers

        async def _beat() -> None:
            while is_listening:
                if (name, self._host.name) not in cut:
                    simulation.after(self._rng.uniform(0.0, _LATENCY_S_MAX), arrived.set)
                await asyncio.sleep(self._cluster.settings.beat_s)

        self._check(name, incarnation)
        simulation.hosts[name].spawn(_beat())
        try:
            while True:
                try:
                    async with asyncio.timeout(1.0):
                        await arrived.wait()
                except TimeoutError:
                    self._check(name, incarnation)
                else:
                    arrived.clear()
                    on_beat()
        finally:
            is_listening = False

    async def ask(self, address: str, incarnation: str, timeout_s: float) -> BeatAnswer:
        """Ask a replica what it hears."""
        name, own = address.partition(":")[0], self._host.name
        cut = self._cluster.cut_peers
        host, replica = self._cluster.simulation.hosts[name], self._cluster.replicas.get(name)
        await asyncio.sleep(self._rng.uniform(0.0, _LATENCY_S_MAX))
        is_cut = (name, own) in cut or (own, name) in cut
        if replica is None or not host.is_up or host.is_paused or is_cut:
            await asyncio.sleep(timeout_s)
            raise ConnectionLostError(f"replica {name} does not answer")
        return replica.hears(incarnation)

    def _check(self, name: str, incarnation: str) -> None:
        replica = self._cluster.replicas.get(name)
        if replica is None or replica.incarnation != incarnation:
            raise ConnectionLostError(f"replica {name} is another process now, or none")

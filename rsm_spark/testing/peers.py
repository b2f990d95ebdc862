"""The other replicas of a simulated cluster, as one of them asks them: late, lost, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rsm_spark.core.commands import Answer, Report
from rsm_spark.errors import ConnectionLostError, CorruptSnapshotError, SnapshotGoneError
from rsm_spark.runtime.peers import LogIndex, PeerSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.testing.snapshots import digest_of

if TYPE_CHECKING:
    # The cluster makes the peers of its replicas, and they find each other by it: two halves of one cluster.
    from ledger.testing.hosts import SimHost
    from rsm_spark.testing.cluster import ReplicaCluster


T = TypeVar("T")

_PATIENCE_S = 2.0
_LOST_RATE = 0.03


class SimPeers:
    """The `Peers` of one replica.

    Args:
        cluster: All replicas.
        host: Of the one that asks.

    """

    def __init__(self, cluster: ReplicaCluster, host: SimHost) -> None:
        self._cluster = cluster
        self._host = host
        self._rng = cluster.simulation.random(f"peers of {host.name} {len(host.exits)}")

    async def list(self, replica_id: str) -> PeerSnapshots:
        """Return what a replica has."""
        await self._reach(replica_id, 0.002)
        store = self._cluster.snapshots[replica_id]
        protected = tuple(manifest.revision for manifest in store.protected_manifests())
        damaged = tuple(f"{damage.place} {damage.reason}" for damage in store.damaged())
        return PeerSnapshots(replica_id, replica_id, tuple(store.manifests()), damaged, protected)

    async def download(self, replica_id: str, manifest: SnapshotManifest, *, read_back: bool) -> SnapshotManifest:
        """Copy a snapshot of a replica into the own store."""
        await self._reach(replica_id, 0.5)
        own, store = self._cluster.snapshots[self._host.name], self._cluster.snapshots[replica_id]
        if manifest not in store.manifests():
            raise SnapshotGoneError(f"replica {replica_id} has no snapshot of revision {manifest.revision} any more")
        if manifest in own.manifests() and not read_back:
            return manifest
        rows = list(store.lend(manifest))
        if read_back and digest_of(rows) != manifest.digest:
            raise CorruptSnapshotError(f"replica {replica_id}: snapshot of revision {manifest.revision} is wrong")
        await self._reach(replica_id, 0.5)
        if manifest not in own.manifests():
            own.write(manifest, rows)
        return manifest

    async def report(self, report: Report) -> Answer:
        """Tell the leader."""
        leader = self._cluster.leader
        if leader is None:
            raise ConnectionLostError("nobody leads")
        replica = await self._reach(leader, 0.002)
        (answer,) = await self._within(leader, _answer(replica.report(report)))
        return answer

    async def read_index(self, address: str) -> LogIndex:
        """Ask a replica, as the leader, how far the log is."""
        name = address.partition(":")[0]
        replica = await self._reach(name, 0.002)
        index: LogIndex = await self._within(name, replica.read_index())
        await asyncio.sleep(self._rng.uniform(0.0002, 0.002))
        return index

    async def _reach(self, name: str, delay_s_max: float) -> Any:
        """Pass a message; return the replica that it reaches."""
        await asyncio.sleep(self._rng.uniform(0.0002, delay_s_max))
        host, replica = self._cluster.simulation.hosts[name], self._cluster.replicas.get(name)
        if replica is None or not host.is_up or host.is_paused or self._rng.random() < _LOST_RATE:
            await asyncio.sleep(self._rng.uniform(0.0, _PATIENCE_S))
            raise ConnectionLostError(f"replica {name} does not answer")
        return replica

    async def _within(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Run something on another host; wait for it as long as a caller would."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        async def _run() -> None:
            value = await work
            if not done.done():
                done.set_result(value)

        self._cluster.simulation.hosts[name].spawn(_run())
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await done
        except TimeoutError:
            raise ConnectionLostError(f"replica {name} does not answer") from None


async def _answer(future: asyncio.Future[Sequence[Answer]]) -> Sequence[Answer]:
    return await future

"""Replicas on simulated hosts, on the twin of the ledger: what the log's leaders and followers do, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ledger.testing.hosts import SimHost
from ledger.testing.metadata_session import SimMetadataSession
from ledger.testing.simulation import Simulation
from rsm_spark.core.chain import LogChain
from rsm_spark.core.commands import AnswerStatus, Command, OpenSession, ReportVerified
from rsm_spark.core.machine import StateMachine
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.testing.cluster import LOG, ReplicaCluster
from rsm_spark.testing.counter_map import CounterMap, command
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld

SESSION = b"s" * 16


class LogWorld:
    """A cluster; `add` goes to its leader.

    Attributes:
        cluster: The replicas.
        ledgers: What they write to.
        store: The test's own session with the metadata store.

    """

    def __init__(self, simulation: Simulation, cluster: ReplicaCluster, ledgers: LedgerWorld) -> None:
        self.simulation = simulation
        self.cluster = cluster
        self.ledgers = ledgers
        self.store: SimMetadataSession
        self._sequence = 0

    @property
    def leader(self) -> Replica:
        """The replica that leads."""
        assert self.cluster.leader is not None
        return self.cluster.replicas[self.cluster.leader]

    @property
    def leader_host(self) -> SimHost:
        """Its host."""
        assert self.cluster.leader is not None
        return self.simulation.hosts[self.cluster.leader]

    async def until(self, holds: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(limit_s):
            while not holds():
                await asyncio.sleep(0.005)

    async def until_led(self) -> None:
        """Wait until exactly one replica leads, and open the session."""
        await self.until(lambda: self.cluster.leader is not None)
        await self.leader.submit([OpenSession(SESSION)])

    async def add(self, amount: int = 1) -> int:
        """Add to "k"; return the revision."""
        self._sequence += 1
        one = Command(SESSION, self._sequence, self._sequence - 1, command("add", "k", amount))
        (answer,) = await self.leader.submit([one])
        assert answer.status is AnswerStatus.OK
        return answer.revision

    async def chain(self) -> LogChain:
        """The chain as it is."""
        return (await ChainStore(self.store, LOG).read())[0]

    async def until_key(self, key_id: str) -> None:
        """Wait until the log's next ledger is of a key."""
        async with asyncio.timeout(60.0):
            while (await self.chain()).key_id != key_id:
                await asyncio.sleep(0.05)

    async def roll(self) -> None:
        """Fill the leader's ledger with records until it rolls."""
        before = len((await self.chain()).ledgers)
        while len((await self.chain()).ledgers) == before:
            await self.add()
            await asyncio.sleep(0.01)

    async def snapshot(self) -> SnapshotManifest:
        """Have the leader take a snapshot; wait until it does."""
        while (manifest := await self.leader.snapshot()) is None:
            await asyncio.sleep(0.001)
        return manifest

    async def verify(self, *replica_ids: str) -> int:
        """Put snapshots of the present state on these replicas' disks, log that they are verified; their revision."""
        leader = self.leader
        await self.add()  # A snapshot at the very end of a ledger does not cover it.
        manifest = await self.snapshot()
        revision = manifest.revision
        await self.until(lambda: leader._context.state.checkpoints.get(revision) is not None)
        await self.until(lambda: leader._context.state_is_confirmed)
        checkpoint = leader._context.state.checkpoints.get(revision)
        assert checkpoint is not None
        rows = list(self.cluster.snapshots[self.leader_host.name].read(manifest))
        for replica_id in replica_ids:
            if manifest not in self.cluster.snapshots[replica_id].manifests():
                self.cluster.snapshots[replica_id].write(manifest, rows)
            report = ReportVerified(
                f"replica:{replica_id}", replica_id, checkpoint.revision, checkpoint.digest,
                checkpoint.prefix_hash, checkpoint.row_count, "test",
            )  # fmt: skip
            (answer,) = await leader.report(report)
            assert answer.status is AnswerStatus.OK, answer.payload
        return checkpoint.revision


def run(
    scenario: Callable[[LogWorld], Coroutine[Any, Any, None]],
    *,
    seed: int = 1,
    replica_count: int = 3,
    limit_s: float = 300.0,
    machine: Callable[[], StateMachine] = CounterMap,
    prepare: Callable[[LogWorld], None] | None = None,
    **settings: Any,
) -> None:
    """Run a scenario on a cluster that is led."""
    simulation = Simulation(seed)
    ledgers = LedgerWorld(simulation.random("ledgers"))

    async def connect(host: SimHost) -> TwinClient:
        del host
        return TwinClient(ledgers, await simulation.metadata.connect(session_timeout_ms=4000))

    cluster = ReplicaCluster(
        simulation, connect, replica_count=replica_count, settings=ReplicaSettings(**settings), machine=machine
    )
    world = LogWorld(simulation, cluster, ledgers)

    async def program() -> None:
        world.store = await simulation.metadata.connect(session_timeout_ms=10_000)
        if prepare is not None:
            prepare(world)
        cluster.start()
        await world.until_led()
        await world.until(lambda: len(cluster.replicas) == replica_count)
        await scenario(world)

    simulation.run(program(), limit_s=limit_s)

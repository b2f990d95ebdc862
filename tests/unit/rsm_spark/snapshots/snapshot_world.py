"""Replicas in virtual time whose snapshots are real files: on the twin of the ledger, with peers and a lake."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from ledger.testing.hosts import SimHost
from ledger.testing.simulation import Simulation
from rsm_spark.core.chain import LogChain
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Report
from rsm_spark.errors import ConnectionLostError, SnapshotGoneError
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.runtime.peers import LogIndex, PeerSnapshots
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.snapshots.disk import SnapshotDisk
from rsm_spark.snapshots.lake import LakeSnapshots
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.snapshots.pace import no_pace
from rsm_spark.testing.counter_map import CounterMap, command
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld

LOG = "counters"
SESSION = b"s" * 16
SETTINGS: dict[str, Any] = {
    "snapshot_s": 5.0, "verify_s": 1.0, "lake_s": 5.0, "trim_s": 1.0, "retention_ms": 0, "roll_records": 40,
    "checkpoint_records": 20,
}  # fmt: skip
"""Everything soon: a minute of virtual time is a day of an idle cluster."""


class WorldPeers:
    """The other replicas of the world; the bytes go the way that they go over gRPC."""

    def __init__(self, world: SnapshotWorld, me: str) -> None:
        self._world = world
        self._me = me

    async def list(self, replica_id: str) -> PeerSnapshots:
        await asyncio.sleep(0.001)
        store = self._reach(replica_id)
        damaged = tuple(one.reason for one in store.damaged())
        protected = tuple(one.revision for one in store.protected_manifests())
        return PeerSnapshots(replica_id, replica_id, tuple(store.manifests()), damaged, protected)

    async def download(self, replica_id: str, manifest: SnapshotManifest, *, read_back: bool) -> SnapshotManifest:
        own = self._world.stores[self._me]
        if not read_back and manifest in own.manifests():
            return manifest
        incoming = own.receive(manifest)
        for file in manifest.files:
            while (arrived := incoming.arrived(file)) < file.bytes:
                await asyncio.sleep(0.001)
                lent = self._reach(replica_id).lend(manifest, file.name)
                if lent is None:
                    incoming.discard()
                    raise SnapshotGoneError(f"{file.name} is gone")
                with lent[0] as opened:
                    opened.seek(arrived)
                    incoming.append(file, opened.read(1_000))
        incoming.seal()
        if read_back:
            own.check_arrived(incoming)
        self._world.downloads.append((self._me, replica_id, manifest.revision))
        return own.install(incoming)

    async def read_index(self, address: str) -> LogIndex:
        del address
        return LogIndex(AnswerStatus.NOT_LEADER, 0)

    async def report(self, report: Report) -> Answer:
        await asyncio.sleep(0.001)
        self._world.reports.append(report)
        if self._world.leader_name is None or self._world.is_deaf:
            raise ConnectionLostError("nobody leads")
        (answer,) = await self._world.leader.report(report)
        return answer

    def _reach(self, replica_id: str) -> LocalSnapshots:
        if replica_id in self._world.silent or not self._world.simulation.hosts[replica_id].is_up:
            raise ConnectionLostError(f"replica {replica_id} is silent")
        return self._world.stores[replica_id]


class SnapshotWorld:
    """A cluster.

    Attributes:
        replicas: The running ones, by name.
        stores: Their local snapshots; those of the present process.
        silent: Replicas that answer no peer.
        is_deaf: No report reaches a leader over the network.
        downloads: (who, from whom, revision) of each copy that was installed.
        reports: What leaders were told by others.
        exits: (who, why) of each process that ended by itself.

    """

    def __init__(self, simulation: Simulation, folder: Path, names: tuple[str, ...], **settings: Any) -> None:
        self.simulation = simulation
        self.folder = folder
        self.settings = ReplicaSettings(**{**SETTINGS, **settings})
        self.ledgers = LedgerWorld(simulation.random("ledgers"))
        self.replicas: dict[str, Replica] = {}
        self.stores: dict[str, LocalSnapshots] = {}
        self.disks: dict[str, SnapshotDisk] = {}
        self.silent: set[str] = set()
        self.is_deaf = False
        self.downloads: list[tuple[str, str, int]] = []
        self.reports: list[Report] = []
        self.exits: list[tuple[str, Any]] = []
        self.has_lake = True
        self._boots = 0
        self._sequence = 0
        self.hosts = {name: simulation.host(name, self._program) for name in names}
        for host in self.hosts.values():
            host.on_exit.append(self._on_exit)

    async def _program(self, host: SimHost) -> None:
        self._boots += 1
        client = TwinClient(self.ledgers, await self.simulation.metadata.connect(session_timeout_ms=4000))
        store = LocalSnapshots(self.folder / host.name, disk=self.disks.get(host.name), pace=lambda: no_pace)
        self.stores[host.name] = store
        replica = Replica(
            CounterMap(), log=LOG, replica_id=host.name, client=client, snapshots=store,  # type: ignore[arg-type]
            lake=self.lake() if self.has_lake else None, peers=WorldPeers(self, host.name),
            advertised=f"{host.name}:1", settings=self.settings, clock_ms=host.clock_ms,
            rng=random.Random(f"{self.simulation.seed}.{host.name}.{self._boots}"), run_blocking=_inline,
        )  # fmt: skip
        await replica.start()
        self.replicas[host.name] = replica
        await replica.wait_stopped()

    def _on_exit(self, host: SimHost) -> None:
        self.replicas.pop(host.name, None)
        if host.exits[-1] != "killed":
            self.exits.append((host.name, host.exits[-1]))

    def lake(self) -> LakeSnapshots:
        return LakeSnapshots(str(self.folder / "lake" / LOG), retention_hours=0, pace=lambda: no_pace)

    # ---- who is where

    @property
    def leader_name(self) -> str | None:
        leading = [name for name, replica in self.replicas.items() if replica.role is ReplicaRole.LEADER]
        return leading[0] if len(leading) == 1 else None

    @property
    def leader(self) -> Replica:
        assert self.leader_name is not None
        return self.replicas[self.leader_name]

    @property
    def verified(self) -> dict[str, int]:
        """Revisions that are verified, by place, as the leader knows."""
        return {place: one.revision for place, one in self.leader._context.state.verified.items()}

    async def chain(self) -> LogChain:
        store = await self.simulation.metadata.connect(session_timeout_ms=10_000)
        return (await ChainStore(store, LOG).read())[0]

    async def until(self, holds: Callable[[], bool], limit_s: float = 120.0) -> None:
        async with asyncio.timeout(limit_s):
            while not holds():
                await asyncio.sleep(0.05)

    async def start(self, *names: str) -> None:
        for name in names or self.hosts:
            self.hosts[name].start()
        await self.until(lambda: self.leader_name is not None and all(self.hosts[n].is_up for n in names))

    def kill(self, *names: str) -> None:
        for name in names or self.hosts:
            if self.hosts[name].is_up:
                self.hosts[name].kill()

    def wipe(self, *names: str) -> None:
        for name in names or self.hosts:
            shutil.rmtree(self.folder / name, ignore_errors=True)

    # ---- work

    async def add(self, count: int = 1) -> int:
        """Add to counters, one entry each; return the revision."""
        revision = 0
        for _ in range(count):
            if self._sequence == 0:
                await self.leader.submit([OpenSession(SESSION)])
            self._sequence += 1
            payload = command("add", f"k{self._sequence % 7}", 1)
            (answer,) = await self.leader.submit([Command(SESSION, self._sequence, self._sequence - 1, payload)])
            assert answer.status is AnswerStatus.OK, answer
            revision = answer.revision
        return revision

    async def work_until(self, holds: Callable[[], bool], limit_s: float = 120.0) -> None:
        """Add now and then until something holds."""
        async with asyncio.timeout(limit_s):
            while not holds():
                if self.leader_name is not None:
                    await self.add(20)
                await asyncio.sleep(0.5)

    async def first_revision(self) -> int:
        return (await self.chain()).ledgers[0].first_revision

    async def until_trimmed(self, beyond: int = 1) -> None:
        """Work until the log begins after a revision."""
        async with asyncio.timeout(240.0):
            while await self.first_revision() <= beyond:
                if self.leader_name is not None:
                    await self.add(20)
                await asyncio.sleep(0.5)

    async def agree(self) -> tuple[int, int]:
        """Wait until all running replicas are at the same place; return revision and digest."""

        def _same() -> bool:
            tips = {replica._context.tip for replica in self.replicas.values()}
            confirmed = all(replica._context.state_is_confirmed for replica in self.replicas.values())
            return confirmed and len({tip.revision for tip in tips}) == 1 and self.leader_name is not None

        await self.until(_same)
        for replica in self.replicas.values():
            replica._context.state.validate()
        (digest,) = {replica.digest for replica in self.replicas.values()}
        return self.leader.revision, digest


def run(
    folder: Path,
    scenario: Callable[[SnapshotWorld], Coroutine[Any, Any, None]],
    *,
    names: tuple[str, ...] = ("a", "b", "c"),
    seed: int = 1,
    prepare: Callable[[SnapshotWorld], None] | None = None,
    **settings: Any,
) -> None:
    """Run a scenario on a cluster that is led."""
    simulation = Simulation(seed)
    world = SnapshotWorld(simulation, folder, names, **settings)
    if prepare is not None:
        prepare(world)

    async def program() -> None:
        await world.start()
        await world.until(lambda: len(world.replicas) == len(names))
        await scenario(world)

    simulation.run(program(), limit_s=900.0)


async def _inline(work: Callable[[], Any]) -> Any:
    await asyncio.sleep(0.002)
    return work()

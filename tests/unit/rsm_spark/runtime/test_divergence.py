"""A replica that differs stops and keeps its evidence, on simulated replicas: real replicas, virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from ledger.testing.hosts import SimHost
from ledger.testing.simulation import Simulation
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query, Report
from rsm_spark.core.freshness import STALE
from rsm_spark.core.machine import RowChange
from rsm_spark.errors import ConnectionLostError
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.testing.counter_map import CounterMap, command
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld
from rsm_spark.testing.snapshots import MemorySnapshots

SESSION = b"s" * 16


class WrongCounters(CounterMap):
    """Once told to be wrong, it makes one more of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.is_wrong = False

    def apply(self, record_type: int, fields: tuple[Any, ...], revision: int) -> RowChange | None:
        if self.is_wrong:
            fields = (fields[0], fields[1] + 1)
        return super().apply(record_type, fields, revision)


class DirectPeers:
    """Reports go to whoever leads, at once."""

    def __init__(self, replicas: dict[str, Replica]) -> None:
        self._replicas = replicas

    async def report(self, report: Report) -> Answer:
        leading = [replica for replica in self._replicas.values() if replica.role is ReplicaRole.LEADER]
        if not leading:
            raise ConnectionLostError("nobody leads")
        (answer,) = await leading[0].report(report)
        return answer


class World:
    """Three replicas, each with a quarantine; none is started again."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._ledgers = LedgerWorld(simulation.random("ledgers"))
        self._sequence = 0
        self.machines: dict[str, WrongCounters] = {}
        self.replicas: dict[str, Replica] = {}
        self.quarantines: dict[str, MemorySnapshots] = {}
        self.hosts = [simulation.host(f"replica-{i}", self._program) for i in range(3)]

    async def _program(self, host: SimHost) -> None:
        client = TwinClient(self._ledgers, await self._simulation.metadata.connect(session_timeout_ms=4000))
        self.machines[host.name] = WrongCounters()
        self.quarantines[host.name] = MemorySnapshots()
        replica = Replica(
            self.machines[host.name],
            log="counters",
            replica_id=host.name,
            client=client,  # type: ignore[arg-type]
            snapshots=MemorySnapshots(),
            quarantine=self.quarantines[host.name],
            settings=ReplicaSettings(campaign=host.name == "replica-0", checkpoint_records=10),
            clock_ms=host.clock_ms,
            rng=self._simulation.random(host.name),
            run_blocking=_inline,
        )
        replica._context.peers = DirectPeers(self.replicas)  # type: ignore[assignment]
        self.replicas[host.name] = replica
        await replica.start()
        await replica._main  # type: ignore[misc]  # its end is looked at by the tests

    def status(self, name: str) -> str:
        return self.replicas[name].status().failure

    async def begin(self) -> None:
        for host in self.hosts:
            host.start()
        await self.until(lambda: len(self.replicas) == 3 and self.leader.role is ReplicaRole.LEADER)
        await self.leader.submit([OpenSession(SESSION)])

    @property
    def leader(self) -> Replica:
        return self.replicas["replica-0"]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.01)

    async def add(self, count: int) -> list[AnswerStatus]:
        statuses = []
        for _ in range(count):
            self._sequence += 1
            add = Command(SESSION, self._sequence, self._sequence - 1, command("add", "k", 1))
            statuses += [answer.status for answer in await self.leader.submit([add])]
        return statuses

    async def caught_up(self, names: Sequence[str]) -> None:
        await self.until(lambda: all(self.replicas[name].revision == self.leader.revision for name in names))


async def _inline(work: Callable[[], Any]) -> Any:
    await asyncio.sleep(0.002)
    return work()


def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    simulation = Simulation(1)
    world = World(simulation)

    async def program() -> None:
        await world.begin()
        await scenario(world)

    simulation.run(program(), limit_s=120)


def test_follower_that_differs_stops_keeps_its_state_and_the_leader_goes_on() -> None:
    async def scenario(world: World) -> None:
        await world.add(3)
        await world.caught_up(["replica-1", "replica-2"])
        world.machines["replica-1"].is_wrong = True
        await world.add(1)
        await world.until(lambda: world.replicas["replica-1"].revision == world.leader.revision)
        await world.add(20)
        await world.until(lambda: "StateDivergedError" in world.status("replica-1"))
        (kept,) = world.quarantines["replica-1"].manifests()
        rows = {row.key: row for row in world.quarantines["replica-1"].read(kept)}
        assert len(rows) == kept.row_count
        assert kept.revision < world.leader.revision
        assert "Its state is wrong" in kept.contradiction
        assert f"revision {kept.revision}" in kept.contradiction
        assert await world.add(20) == [AnswerStatus.OK] * 20
        assert list(world.leader._driver._composer.contradictions) == ["replica-1"]  # type: ignore[union-attr]
        assert world.status("replica-2") == world.status("replica-0") == ""

    run(scenario)


def test_follower_that_differs_answers_no_read_any_more() -> None:
    async def scenario(world: World) -> None:
        world.machines["replica-1"].is_wrong = True
        await world.add(20)
        await world.until(lambda: "StateDivergedError" in world.status("replica-1"))
        (answer,) = await world.replicas["replica-1"].submit([Query(command("k"))], freshness=STALE)
        assert answer.status is AnswerStatus.NOT_READY

    run(scenario)


def test_leader_that_two_replicas_contradict_stops_and_keeps_its_evidence() -> None:
    async def scenario(world: World) -> None:
        await world.add(3)
        await world.caught_up(["replica-1", "replica-2"])
        world.machines["replica-0"].is_wrong = True
        await world.add(20)
        await world.until(lambda: "StateDivergedError" in world.status("replica-0"))
        assert "is contradicted: replica-1" in world.status("replica-0")
        for name in world.replicas:
            (kept,) = world.quarantines[name].manifests()
            assert kept.contradiction
        assert world.leader.role is not ReplicaRole.LEADER
        assert set(await world.add(1)) <= {AnswerStatus.NOT_LEADER, AnswerStatus.NOT_READY}

    run(scenario)


@pytest.mark.parametrize("name", ["replica-1", "replica-2"])
def test_one_replica_alone_does_not_depose_a_leader_though_it_says_so_twice(name: str) -> None:
    async def scenario(world: World) -> None:
        world.machines[name].is_wrong = True
        await world.add(20)
        await world.until(lambda: "StateDivergedError" in world.status(name))
        peers = DirectPeers(world.replicas)
        (report,) = world.leader._driver._composer.contradictions.values()  # type: ignore[union-attr]
        assert (await peers.report(report)).status is AnswerStatus.OK
        assert await world.add(1) == [AnswerStatus.OK]

    run(scenario)

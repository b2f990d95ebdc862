"""Reads of every freshness on leader and followers, on simulated replicas: real replicas, virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ledger.testing.hosts import SimHost
from ledger.testing.simulation import Simulation
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query
from rsm_spark.core.freshness import LINEARIZABLE, STALE, Freshness, at_least, bounded
from rsm_spark.runtime import replica as replica_module
from rsm_spark.runtime.context import ReplicaContext
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.serving import SESSION_WAIT_S
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.testing.cluster import ReplicaCluster
from rsm_spark.testing.counter_map import command, unpack
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld

SESSION = b"s" * 16
GET = Query(command("k"))


class World:
    """Three replicas, one leads; `add` goes to it."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self._sequence = 0

    @property
    def leader(self) -> Replica:
        assert self.cluster.leader is not None
        return self.cluster.replicas[self.cluster.leader]

    @property
    def follower(self) -> Replica:
        return self.cluster.replicas[self.follower_name]

    @property
    def follower_name(self) -> str:
        return next(name for name in sorted(self.cluster.replicas) if name != self.cluster.leader)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                await asyncio.sleep(0.001)

    async def begin(self) -> None:
        self.cluster.start()
        await self.until(lambda: self.cluster.leader is not None and len(self.cluster.replicas) == 3)
        await self.leader.submit([OpenSession(SESSION)])
        # The leader has told them its clock: they know how old their state is.
        await self.until(lambda: all(one._serving.lag_ms is not None for one in self.cluster.replicas.values()))

    async def add(self, amount: int = 1) -> int:
        """Add to "k"; return the revision."""
        self._sequence += 1
        add = Command(SESSION, self._sequence, self._sequence - 1, command("add", "k", amount))
        (answer,) = await self.leader.submit([add])
        assert answer.status is AnswerStatus.OK
        return answer.revision

    def cut_off(self, name: str) -> None:
        """Let a replica reach neither bookies, metadata store nor leader; it does not notice by itself."""
        self.cluster.clients[name].is_cut_off = True
        self.cluster.cut_peers.update((name, host.name) for host in self.cluster.hosts)


def run(scenario: Callable[[World], Coroutine[Any, Any, None]], **settings: Any) -> None:
    simulation = Simulation(1)
    ledgers = LedgerWorld(simulation.random("ledgers"))

    async def connect(host: SimHost) -> TwinClient:
        return TwinClient(ledgers, await simulation.metadata.connect(session_timeout_ms=4000))

    cluster = ReplicaCluster(simulation, connect, settings=ReplicaSettings(**settings))
    world = World(cluster)

    async def program() -> None:
        await world.begin()
        await scenario(world)

    simulation.run(program(), limit_s=120)


async def read(replica: Replica, freshness: Freshness) -> Answer:
    (answer,) = await replica.submit([GET], freshness=freshness)
    return answer


def value(answer: Answer) -> int:
    assert answer.status is AnswerStatus.OK
    count: int = unpack(answer.payload)
    return count


def test_a_session_read_on_a_follower_waits_until_its_revision_is_there() -> None:
    async def scenario(world: World) -> None:
        for n in range(1, 20):
            revision = await world.add()
            answer = await read(world.follower, at_least(revision))
            assert value(answer) == n
            assert answer.revision >= revision

    run(scenario)


def test_a_session_read_of_a_revision_that_does_not_come_fails_soon_with_the_known_lag() -> None:
    async def scenario(world: World) -> None:
        await world.add()
        loop = asyncio.get_running_loop()
        began = loop.time()
        answer = await read(world.follower, at_least(10_000))
        assert answer.status is AnswerStatus.TOO_STALE
        assert 0 <= int(answer.payload) < 2_000
        assert SESSION_WAIT_S <= loop.time() - began < 2 * SESSION_WAIT_S

    run(scenario)


def test_a_follower_that_is_cut_off_knows_that_it_is_not_fresh() -> None:
    """It cannot reach metadata store or bookies, and hears of neither: what it has, it may have for long."""

    async def scenario(world: World) -> None:
        await world.add()
        await asyncio.sleep(2)
        name = world.follower_name
        follower = world.cluster.replicas[name]
        assert value(await read(follower, bounded(max_lag_ms=1_500))) == 1
        world.cut_off(name)
        await asyncio.sleep(3)
        await world.add()
        answer = await read(follower, bounded(max_lag_ms=1_500))
        assert answer.status is AnswerStatus.TOO_STALE
        assert 2_500 <= int(answer.payload) <= 5_000
        assert (await read(follower, bounded(max_lag_revisions=1_000))).status is AnswerStatus.TOO_STALE
        assert value(await read(follower, STALE)) == 1
        assert value(await read(follower, bounded(max_lag_ms=5_000))) == 1

    run(scenario)


def test_followers_of_an_idle_leader_stay_fresh() -> None:
    async def scenario(world: World) -> None:
        await world.add()
        await asyncio.sleep(1)
        lags: list[int] = []
        for _ in range(200):
            await asyncio.sleep(0.05)
            lag_ms = world.follower._serving.lag_ms
            assert lag_ms is not None
            lags.append(lag_ms)
        assert max(lags) < 1_000

    run(scenario)


def test_only_the_leader_answers_linearizable_reads_and_only_it_executes() -> None:
    async def scenario(world: World) -> None:
        await world.add()
        assert value(await read(world.leader, LINEARIZABLE)) == 1
        assert (await read(world.follower, LINEARIZABLE)).status is AnswerStatus.NOT_LEADER
        add = Command(SESSION, 2, 0, command("add", "k", 1))
        denied, found = await world.follower.submit([add, GET], freshness=STALE)
        assert denied.status is AnswerStatus.NOT_LEADER
        assert found.status is AnswerStatus.OK

    run(scenario)


def test_a_leader_never_shows_what_is_not_confirmed_to_any_reader() -> None:
    async def scenario(world: World) -> None:
        shown: list[tuple[int, int]] = []
        for n in range(1, 30):
            adding = asyncio.get_running_loop().create_task(world.add())
            await asyncio.sleep(0.0001 * n)
            # Whatever is answered was confirmed then: the next linearizable read is not behind it.
            for freshness in (STALE, at_least(1), bounded(max_lag_ms=1_000)):
                answer = await read(world.leader, freshness)
                assert answer.revision <= world.leader.revision
                shown.append((value(answer), answer.revision))
            await adding
        assert shown == sorted(shown)

    run(scenario)


def test_a_leader_that_was_paused_while_another_led_answers_no_read_from_its_old_state() -> None:
    """It holds its ephemeral node as far as it knows, and its bookies answer: nothing tells it but a failed add."""

    async def scenario(world: World) -> None:
        await world.add()
        name = world.cluster.leader
        assert name is not None
        old, host = world.cluster.replicas[name], world.cluster.simulation.hosts[name]
        host.pause()
        others = [replica for other, replica in world.cluster.replicas.items() if other != name]
        await world.until(lambda: any(replica.role is ReplicaRole.LEADER for replica in others))
        (new,) = [replica for replica in others if replica.role is ReplicaRole.LEADER]
        add = Command(SESSION, 2, 1, command("add", "k", 1))
        assert (await new.submit([add]))[0].status is AnswerStatus.OK
        assert old.role is ReplicaRole.LEADER
        linearizable = old.submit([GET, add])
        fresh = old.submit([GET], freshness=bounded(max_lag_ms=1_000))
        at_new = old.submit([GET], freshness=at_least(new.revision))
        host.resume()
        read_there, added = await linearizable
        assert read_there.status is AnswerStatus.NOT_LEADER
        # Its session was lost with the add on its way: it cannot say.
        assert added.status in {AnswerStatus.NOT_LEADER, AnswerStatus.OUTCOME_UNKNOWN}
        assert (await fresh)[0].status is AnswerStatus.TOO_STALE
        (answer,) = await at_new
        assert answer.status is AnswerStatus.TOO_STALE or value(answer) == 2

    run(scenario)


def test_reads_fail_at_once_while_a_snapshot_is_installed() -> None:
    async def scenario(world: World) -> None:
        await world.add()
        follower = world.follower
        follower._context.has_state = False
        for freshness in (STALE, at_least(1), at_least(10_000), bounded(max_lag_ms=10_000)):
            future = follower.submit([GET], freshness=freshness)
            assert future.done()
            assert future.result()[0].status is AnswerStatus.NOT_READY
        follower._context.has_state = True
        assert (await read(follower, STALE)).status is AnswerStatus.OK

    run(scenario)


def test_a_replica_that_boots_again_has_no_state_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    original = vars(replica_module)["boot"]
    seen: list[AnswerStatus] = []

    async def scenario(world: World) -> None:
        await world.add()
        follower = world.follower

        async def boot(context: ReplicaContext) -> int:
            seen.append((await read(follower, STALE)).status)
            return await original(context)

        monkeypatch.setattr(replica_module, "boot", boot)
        await follower._rebuild()
        assert seen == [AnswerStatus.NOT_READY]
        assert (await read(follower, STALE)).status is AnswerStatus.OK

    run(scenario)


def test_session_reads_that_wait_are_bounded() -> None:
    async def scenario(world: World) -> None:
        follower = world.follower
        waiting = [follower.submit([GET] * 4, freshness=at_least(10_000)) for _ in range(3)]
        assert [future.done() for future in waiting] == [False, False, True]
        assert waiting[2].result()[0].status is AnswerStatus.OVERLOADED
        assert follower._serving.overloaded == 4
        await asyncio.wait(waiting)
        assert follower._serving.too_stale == 8
        # The places are free again.
        assert not follower.submit([GET] * 8, freshness=at_least(10_000)).done()

    run(scenario, queue_requests_max=10)


def test_a_leader_with_full_queues_refuses_at_once() -> None:
    async def scenario(world: World) -> None:
        answers = [world.leader.submit([GET] * 4) for _ in range(4)]
        assert [future.done() for future in answers] == [False, False, True, True]
        assert answers[3].result()[0].status is AnswerStatus.OVERLOADED
        assert value((await answers[0])[0]) == 0

    run(scenario, queue_requests_max=10)


def test_a_bounded_read_asks_the_leader_where_the_age_of_the_state_is_not_known() -> None:
    async def scenario(world: World) -> None:
        revision = await world.add()
        await world.until(lambda: world.follower.revision >= revision)
        gauge = world.follower._serving._gauge
        for _ in range(200):  # A message may be lost, and the state be older than the bound.
            gauge.is_known = False
            answer = await read(world.follower, bounded(max_lag_ms=2_000))
            if answer.status is AnswerStatus.OK:
                break
        assert value(answer) == 1
        assert gauge.is_known

    run(scenario)


def test_a_bounded_read_is_refused_where_the_leader_does_not_tell_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it is cut off from the leader alone: it has every entry, and does not know how late."""

    async def scenario(world: World) -> None:
        revision = await world.add()
        follower = world.follower
        await world.until(lambda: follower.revision >= revision)
        monkeypatch.setattr(follower._serving._gauge, "on_clock", lambda *_: None)
        follower._serving._gauge.is_known = False
        answer = await read(follower, bounded(max_lag_ms=2_000))
        assert (answer.status, answer.payload) == (AnswerStatus.TOO_STALE, b"")
        assert value(await read(follower, STALE)) == 1

    run(scenario)

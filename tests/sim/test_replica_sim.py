"""Three replicas under faults, in virtual time: the invariants of the log hold after every entry and every reply."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest

from ledger.testing.cluster import SimCluster
from ledger.testing.hosts import SimHost
from ledger.testing.simulation import Simulation
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.testing.cluster import ReplicaCluster
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld
from rsm_spark.testing.nemesis import Nemesis
from rsm_spark.testing.sessions import SessionClient

TROUBLE_S = 40.0
CALM_S_MAX = 60.0
ACKNOWLEDGED_MIN = 10


class Outcome:
    """What one seed came to."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.faults: Counter[str] = Counter()
        self.epochs = 0
        self.entries = 0
        self.calm_s = 0.0
        self.signature = ""


def _settings(rng: random.Random) -> ReplicaSettings:
    return ReplicaSettings(
        roll_s=rng.choice((2.0, 5.0, 20.0)),
        checkpoint_records=rng.choice((5, 20, 100)),
        snapshot_s=rng.choice((2.0, 10.0, 0.0)),
        snapshot_bytes=rng.choice((0, 2_000)),
        session_ttl_ms=rng.choice((5_000, 3_600_000)),
        entry_commands_max=rng.choice((3, 2000)),
        ensemble_size=rng.choice((2, 3)),
    )


def run_seed(seed: int, trouble_s: float = TROUBLE_S) -> Outcome:
    """Run one seed on the twin of the ledger."""
    simulation = Simulation(seed)
    rng = simulation.random("test")
    world = LedgerWorld(simulation.random("ledgers"))

    async def connect(host: SimHost) -> TwinClient:
        return TwinClient(world, await simulation.metadata.connect(session_timeout_ms=4000))

    cluster = ReplicaCluster(simulation, connect, settings=_settings(rng))
    nemesis = Nemesis(cluster, simulation.metadata, rng, world=world)
    return _run(simulation, _scenario(cluster, nemesis, rng, trouble_s), trouble_s)


def run_seed_on_bookies(seed: int, trouble_s: float) -> Outcome:
    """Run one seed on the real client and real bookies."""
    simulation = Simulation(seed)
    rng = simulation.random("test")
    ledger = SimCluster(simulation)
    cluster = ReplicaCluster(simulation, ledger.connect, settings=_settings(rng))

    def supervise(host: SimHost) -> None:
        simulation.after(rng.uniform(0.5, 8.0), lambda: None if host.is_up else host.start())

    for bookie in ledger.bookies:
        bookie.on_exit.append(supervise)

    async def scenario() -> Outcome:
        ledger.start()
        nemesis = Nemesis(cluster, simulation.metadata, rng, bookies=ledger.bookies)
        return await _scenario(cluster, nemesis, rng, trouble_s)

    return _run(simulation, scenario(), trouble_s)


def _run(simulation: Simulation, scenario: Coroutine[Any, Any, Outcome], trouble_s: float) -> Outcome:
    outcome = simulation.run(scenario, limit_s=trouble_s + 300)
    outcome.signature = simulation.signature
    return outcome


async def _scenario(cluster: ReplicaCluster, nemesis: Nemesis, rng: random.Random, trouble_s: float) -> Outcome:
    loop = asyncio.get_running_loop()
    outcome = Outcome()
    clients = [SessionClient(cluster, random.Random(rng.random())) for _ in range(5)]
    tasks = [loop.create_task(client.run()) for client in clients]
    cluster.start()
    while sum(client.acknowledged for client in clients) < ACKNOWLEDGED_MIN:  # A floor of work in every run.
        await asyncio.sleep(0.1)
        _check(cluster, tasks)
    trouble = loop.create_task(nemesis.run(trouble_s))
    while not trouble.done():
        await asyncio.sleep(0.5)
        _check(cluster, tasks)
    trouble.result()
    outcome.calm_s = await _calm_down(cluster, clients, tasks)
    outcome.acknowledged = sum(client.acknowledged for client in clients)
    outcome.faults = nemesis.counts
    outcome.epochs = len(set(cluster.ghosts.epochs))
    outcome.entries = len(cluster.ghosts.hashes)
    return outcome


def _check(cluster: ReplicaCluster, tasks: list[asyncio.Task[None]]) -> None:
    if cluster.broken is not None:
        raise cluster.broken
    for task in tasks:
        if task.done():
            task.result()
    for name, reason in cluster.stopped:
        if isinstance(reason, Exception) and not _may_stop(reason):
            raise AssertionError(f"{name} stopped: {reason!r}") from reason


def _may_stop(reason: Exception) -> bool:
    """Whether a process may end by this: it could not reach the metadata store while it booted."""
    from ledger.errors import LedgerError

    return isinstance(reason, LedgerError)


async def _calm_down(cluster: ReplicaCluster, clients: list[SessionClient], tasks: list[asyncio.Task[None]]) -> float:
    """Without faults everything is answered and all replicas are at the same place within a minute."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    for client in clients:
        client.is_calm = True
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0.2)
        _check(cluster, tasks)
        assert loop.time() - began < CALM_S_MAX, "calm: a client still waits"
    probe = SessionClient(cluster, random.Random(1))
    while probe.acknowledged == 0:
        await asyncio.wait_for(probe.step(), CALM_S_MAX)
    revision = max(replica.revision for replica in cluster.replicas.values())
    while len(cluster.replicas) < len(cluster.hosts) or any(
        replica.revision < revision for replica in cluster.replicas.values()
    ):
        await asyncio.sleep(0.2)
        _check(cluster, tasks)
        assert loop.time() - began < CALM_S_MAX, "calm: a replica lags"
    for replica in cluster.replicas.values():
        replica._context.state.validate()
    return loop.time() - began


def _is_worth_something(outcome: Outcome) -> bool:
    return outcome.acknowledged >= ACKNOWLEDGED_MIN and sum(outcome.faults.values()) >= 1


@pytest.mark.parametrize("seed", range(60))
def test_invariants_hold_and_calm_converges_under_faults(seed: int) -> None:
    assert _is_worth_something(run_seed(seed))


@pytest.mark.parametrize("seed", range(8))
def test_invariants_hold_on_real_bookies_under_faults(seed: int) -> None:
    assert _is_worth_something(run_seed_on_bookies(seed, 20.0))


def test_same_seed_gives_the_same_run() -> None:
    assert run_seed(3, 10.0).signature == run_seed(3, 10.0).signature

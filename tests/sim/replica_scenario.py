"""One seed of the replica simulation: clients on replicas in trouble, then calm, then judgement.

`python -m tests.sim.replica_scenario SEED` replays one seed and tells its last events.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from ledger.core.read_lease import RATE_RATIO_MAX
from ledger.testing.cluster import SimCluster
from ledger.testing.hosts import SimHost
from ledger.testing.loop import SimulationError
from ledger.testing.simulation import Simulation
from rsm_spark.core.machine import StateMachine
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.testing.cluster import ReplicaCluster
from rsm_spark.testing.counter_map import CounterMap
from rsm_spark.testing.ghosts import BrokenInvariantError
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld
from rsm_spark.testing.nemesis import ReplicaNemesis
from rsm_spark.testing.replica_faults import ReplicaFaults
from rsm_spark.testing.sessions import SessionClient
from rsm_spark.testing.snapshots import MemorySnapshots
from tests.sim.outcome import SeedOutcome
from tests.sim.replica_judge import CALM_S_MAX, Judge
from tests.sim.replica_lacs import LacWatch
from tests.sim.replica_setup import draw_settings
from tests.sim.replica_witness import ChainWatch, witnessed

__all__ = ["Outcome", "Scenario", "run_scenario", "run_seed", "run_seed_on_bookies"]

TROUBLE_S = 40.0
CLIENTS = 5
_ACKED_MIN = 10
_STORY_LINES = 40
_AS_DRAWN: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Outcome(SeedOutcome):
    command: str = "tests.sim.replica_scenario"

    @property
    def is_worth_counting(self) -> bool:
        return self.counts["acked"] >= _ACKED_MIN and self.counts["faults"] >= 1


class Scenario:
    """One seed's world.

    Attributes:
        world: The twin of the ledger; None on real bookies.
        lacs: What readers take for confirmed; None = nobody looks.

    """

    def __init__(
        self,
        seed: int,
        *,
        on_bookies: bool,
        trouble_s: float,
        faults: Mapping[str, Any] | None,
        settings: Mapping[str, Any],
        machine: Callable[[], StateMachine] = CounterMap,
        lake: MemorySnapshots | None = None,
        beats: bool | None = None,
        told: bool | None = None,
        leases: bool | None = False,
    ) -> None:
        self.simulation = Simulation(seed)
        self.rng = self.simulation.random("test")
        self.trouble_s = trouble_s
        self.story: deque[str] = deque(maxlen=_STORY_LINES)
        self.world: LedgerWorld | None = None
        self.bookies: SimCluster | None = None
        if on_bookies:
            self.bookies = SimCluster(self.simulation)
            connect: Callable[[SimHost], Any] = self.bookies.connect
            for bookie in self.bookies.bookies:
                bookie.on_exit.append(self._supervise)
        else:
            self.world = world = LedgerWorld(self.simulation.random("ledgers"))

            async def connect(host: SimHost) -> TwinClient:
                session = await self.simulation.metadata.connect(session_timeout_ms=4000)
                return TwinClient(world, session, clock=host.monotonic)

        drawn = msgspec.structs.replace(draw_settings(self.rng), **settings)
        is_told = self.simulation.random("told").random() < 0.7 if told is None else told
        drawn = msgspec.structs.replace(drawn, told_entries=is_told)
        drawn = self._with_leases(drawn, leases)
        own = self.simulation.random("beats")
        self.beats = own.random() < 0.5 if beats is None else beats
        self.cluster = ReplicaCluster(
            self.simulation, connect, settings=drawn, machine=machine, lake=lake, beats=self.beats
        )
        self._made: list[Replica] = []
        self.cluster.listeners.append(self._on_replica)
        self.chain = ChainWatch(self.cluster, self.simulation.metadata, self.world)
        self.lacs: LacWatch | None = LacWatch(self.cluster.ghosts, self.world)
        rates = ReplicaFaults.draw(self.rng)
        rates = ReplicaFaults() if faults is None else msgspec.structs.replace(rates, **faults)
        bookies = self.bookies.bookies if self.bookies is not None else ()
        metadata = self.simulation.metadata
        self.nemesis = ReplicaNemesis(self.cluster, metadata, rates, self.rng, world=self.world, bookies=bookies)
        self.nemesis.on_event = lambda name, host: self.tell(f"FAULT {name} {host}")
        self.clients = [self.make_client(random.Random(self.rng.random()), f"c{number}") for number in range(CLIENTS)]
        self.judge = Judge(self.cluster, self.clients, self.tell, self.make_client)

    def _with_leases(self, drawn: ReplicaSettings, leases: bool | None) -> ReplicaSettings:
        """Return settings with or without leases; clocks go as differently as leases allow."""
        rng = self.simulation.random("leases")
        has_leases = rng.random() < 0.5 if leases is None else leases
        if not has_leases or not drawn.check_reads or drawn.read_leases_ms:
            return drawn
        hosts = [f"replica-{number}" for number in range(3)]
        for name in hosts + [bookie.name for bookie in (self.bookies.bookies if self.bookies is not None else ())]:
            self.simulation.host(name).clock_rate = rng.uniform(1 / RATE_RATIO_MAX, 1.0)
        if self.world is not None:
            self.world.clock_rate = rng.uniform(1 / RATE_RATIO_MAX, 1.0)
        return msgspec.structs.replace(drawn, read_leases_ms=rng.choice((20, 100, 250)))

    def make_client(self, rng: random.Random, name: str) -> SessionClient:
        """Return a client."""
        return SessionClient(self.cluster, rng, name)

    def tell(self, what: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.simulation.loop.time():8.3f} {what}")

    def _on_replica(self, name: str, who: str, what: Any) -> None:
        if name == "made":
            self._made.append(what)
        if name in ("role", "exit"):
            self.tell(f"{who} {name} {what!r}")

    def _supervise(self, bookie: SimHost) -> None:
        self.simulation.after(self.rng.uniform(0.5, 8.0), lambda: None if bookie.is_up else bookie.start())

    async def main(self) -> None:
        """Work, trouble, calm, judgement."""
        loop = asyncio.get_running_loop()
        if self.bookies is not None:
            self.bookies.start()
        self.cluster.start()
        tasks = [loop.create_task(client.run()) for client in self.clients]
        while sum(client.acknowledged for client in self.clients) < _ACKED_MIN:  # A floor of work in every run.
            await self._check(0.1, tasks)
        trouble = loop.create_task(self.nemesis.run(self.trouble_s))
        cutting = loop.create_task(self._cut_peers())
        while not trouble.done():
            await self._check(0.5, tasks)
        trouble.result()
        cutting.cancel()
        self.tell("calm")
        await self.calm()
        await self.judge.converge(tasks)
        self.judge.judge_history()

    async def _cut_peers(self) -> None:
        """Cut paths of beats between replicas, one way, now and then."""
        rng, cut = self.simulation.random("cut beats"), self.cluster.cut_peers
        while self.beats:
            await asyncio.sleep(rng.uniform(0.2, 6.0))
            source, target = (host.name for host in rng.sample(self.cluster.hosts, 2))
            cut.add((source, target))
            self.simulation.after(rng.uniform(0.2, 5.0), cut.discard, (source, target))

    @property
    def told_count(self) -> int:
        """Entries that followers have applied by their leader's word."""
        return sum(replica.status().entries_told for replica in self._made)

    async def calm(self) -> None:
        """End what is not a fault, before everybody must come to the same state."""

    async def _check(self, pause_s: float, tasks: list[asyncio.Task[None]]) -> None:
        await asyncio.sleep(pause_s)
        self.judge.check_exits()
        for task in tasks:
            if task.done():
                task.result()

    def count(self) -> Counter[str]:
        """Return what was done."""
        faults = self.nemesis.counts
        counts = Counter(
            acked=sum(client.acknowledged for client in self.clients),
            faults=sum(faults.values()),
            epochs=len(set(self.cluster.ghosts.epochs)),
            entries=len(self.cluster.ghosts.hashes),
            trimmed=self.chain.trimmed_count,
            told=self.told_count,
            leased=sum(replica.status().reads_by_lease for replica in self._made),
        )
        for client in self.clients:
            counts.update({f"reads {kind.name.lower()}": count for kind, count in client.reads.items()})
        return counts + faults


def run_seed(
    seed: int,
    trouble_s: float = TROUBLE_S,
    *,
    on_bookies: bool = False,
    has_faults: bool = True,
    faults: Mapping[str, Any] = _AS_DRAWN,
    settings: Mapping[str, Any] = _AS_DRAWN,
    beats: bool | None = None,
    told: bool | None = None,
    leases: bool | None = None,
    watch: Callable[[Scenario], None] = lambda _scenario: None,
) -> Outcome:
    """Run one seed.

    Args:
        seed: Decides everything.
        trouble_s: How long anything fails.
        on_bookies: Real bookies and the real client instead of the twin of the ledger.
        has_faults: Whether anything fails at all.
        faults: Attributes of `ReplicaFaults` that are not as the seed draws them.
        settings: Attributes of `ReplicaSettings`, likewise.
        beats: Whether replicas listen to beats; None = as drawn.
        told: Whether followers are told entries by their leader; None = as drawn.
        leases: Whether leaders take leases for reads; None = as drawn.
        watch: Called with the world before it begins.

    """
    scenario = Scenario(
        seed,
        on_bookies=on_bookies,
        trouble_s=trouble_s,
        faults=faults if has_faults else None,
        settings=settings,
        beats=beats,
        told=told,
        leases=leases,
    )
    watch(scenario)
    return run_scenario(scenario, limit_s=trouble_s + 6 * CALM_S_MAX)


def run_scenario(scenario: Scenario, *, limit_s: float, command: str = "tests.sim.replica_scenario") -> Outcome:
    """Run one seed's world to its end; `command` replays it."""
    simulation = scenario.simulation
    outcome = Outcome(simulation.seed, command=command)
    try:
        with witnessed(), scenario.lacs.installed() if scenario.lacs is not None else nullcontext():
            simulation.run(scenario.main(), limit_s=limit_s)
    except (BrokenInvariantError, SimulationError, AssertionError) as error:
        outcome.broken = str(error) or repr(error)
    outcome.story = list(scenario.story)
    outcome.signature = simulation.signature
    outcome.steps = simulation.loop.step_count
    outcome.simulated_s = simulation.loop.time()
    outcome.counts = scenario.count()
    return outcome


def run_seed_on_bookies(seed: int, trouble_s: float = TROUBLE_S / 2) -> Outcome:
    """Run one seed on the real client and real bookies."""
    return run_seed(seed, trouble_s, on_bookies=True)


def _main(arguments: list[str]) -> None:
    """Replay the seeds named; with `--signatures` first, print only each one's signature (the replay gate)."""
    if arguments[0] == "--signatures":
        for seed in map(int, arguments[1:]):
            print(seed, run_seed(seed).signature)
        return
    for seed in map(int, arguments):
        outcome = run_seed(seed)
        print(outcome.report() if outcome.broken else f"seed {seed} holds: {dict(outcome.counts)}")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    _main(sys.argv[1:])

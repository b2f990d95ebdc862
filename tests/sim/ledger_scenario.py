"""One seed of the ledger simulation: clients on real bookies in trouble, then calm, then judgement.

`python -m tests.sim.ledger_scenario SEED` replays one seed and tells its last events.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from ledger.replication.app import AutoRecovery
from ledger.testing import Faults, Nemesis, SimHost, Simulation, SimulationError
from ledger.testing.cluster import SIM_CLIENT, SimCluster
from ledger.testing.faults import EVENTS
from ledger.zookeeper.ledgers import LedgerStore
from tests.sim.ledger_history import BrokenInvariantError, History
from tests.sim.ledger_judge import CALM_S_MAX, Judge
from tests.sim.ledger_setup import Setup
from tests.sim.ledger_witness import watch_metadata, witnessed
from tests.sim.ledger_work import CLIENTS, Work
from tests.sim.outcome import SeedOutcome

__all__ = ["Outcome", "run_seed"]

_TROUBLE_S = 12.0
_ACKED_MIN = 10
_AS_DRAWN: Mapping[str, Any] = MappingProxyType({})


@dataclass
class Outcome(SeedOutcome):
    command: str = "tests.sim.ledger_scenario"

    @property
    def is_worth_counting(self) -> bool:
        return self.counts["acked"] >= _ACKED_MIN and any(self.counts[name] for name in ("exits", *EVENTS))


def run_seed(
    seed: int, *, has_faults: bool = True, faults: Mapping[str, Any] = _AS_DRAWN, setup: Mapping[str, Any] = _AS_DRAWN
) -> Outcome:
    """Run one seed.

    Args:
        seed: Decides everything.
        has_faults: Whether anything fails at all.
        faults: Attributes of `Faults` that are not as the seed draws them.
        setup: Attributes of `Setup` that are not as the seed draws them.

    """
    simulation = Simulation(seed)
    scenario = _Scenario(simulation, faults if has_faults else None, setup)
    outcome = Outcome(seed)
    try:
        with witnessed(scenario.history):
            simulation.run(scenario.main(), limit_s=_TROUBLE_S + 6 * CALM_S_MAX)
    except (BrokenInvariantError, SimulationError) as error:
        outcome.broken = str(error) or type(error).__name__
    history = scenario.history
    outcome.story = list(history.story)
    outcome.signature = simulation.signature
    outcome.steps = simulation.loop.step_count
    outcome.simulated_s = simulation.loop.time()
    outcome.counts = scenario.nemesis.counts + Counter(
        acked=history.acked_count, reads=history.read_count, closes=history.close_count, ledgers=len(history.ledgers)
    )
    return outcome


class _Scenario:
    def __init__(self, simulation: Simulation, forced: Mapping[str, Any] | None, setup: Mapping[str, Any]) -> None:
        self.simulation = simulation
        self.history = History(simulation.loop.time, simulation.loop.fail)
        rng = simulation.random("scenario")
        self.setup = msgspec.structs.replace(Setup.draw(rng), **setup)
        self.cluster = SimCluster(
            simulation,
            bookie_count=self.setup.bookie_count,
            collect_s=self.setup.collect_s,
            self_repair=self.setup.replication,
            store=self.setup.store,
            takes_any_ledger=self.setup.takes_any_ledger,
        )
        watch_metadata(self.history, simulation.metadata, self.cluster.root)
        faults = Faults()
        if forced is not None:
            drawn = Faults.draw(rng).with_damages(simulation.random("damages"))
            faults = msgspec.structs.replace(drawn, **forced)
        self.work = Work(
            simulation, self.cluster, self.history, settings=self.setup.client, is_damage_due=faults.is_damaging
        )
        self.clients = [simulation.host(name, self.work.run) for name in CLIENTS]
        self.repairers = [simulation.host(f"a{number}", self._repair) for number in range(self.setup.recovery_count)]
        self.nemesis = Nemesis(
            simulation,
            simulation.metadata,
            faults,
            servers=self.cluster.bookies,
            others=[*self.clients, *self.repairers],
        )
        self.nemesis.disk_faults = self.cluster.disk_faults(self.nemesis.damaged, simulation.random("disk faults"))
        self.nemesis.on_event = lambda name, host: self.history.tell(f"FAULT {name} {host}")
        for host in (*self.cluster.bookies, *self.clients, *self.repairers):
            host.on_exit.append(lambda host: self.history.tell(f"{host.name} ended: {host.exits[-1]!r}"))

    async def main(self) -> None:
        self.cluster.start()
        setup = self.simulation.host("setup")
        await setup.spawn(self._set_up(setup))
        for host in (*self.clients, *self.repairers):
            host.start()
        trouble = asyncio.get_running_loop().create_task(self.nemesis.run())
        await asyncio.sleep(_TROUBLE_S)
        self.history.tell("calm")
        self.work.is_over = True
        self.nemesis.calm()
        trouble.cancel()
        for host in self.repairers:
            if not host.is_up:
                host.start()
        is_repaired = self.setup.replication is not None
        judge = Judge(self.simulation, self.cluster, self.history, self.nemesis, is_repaired=is_repaired)
        await judge.converge(self.clients)
        await judge.judge()

    async def _repair(self, host: SimHost) -> None:
        """Run auto-recovery, as its process does."""
        assert self.setup.replication is not None
        store = await self.simulation.metadata.connect(session_timeout_ms=4_000)
        rng = self.simulation.random(f"{host.name} {len(host.exits)}")
        recovery = AutoRecovery(
            LedgerStore(store, self.cluster.root),
            f"{host.name}:1.{len(host.exits)}",
            rng,
            self.setup.replication,
            SIM_CLIENT,
            wall_ms=host.clock_ms,
        )
        await recovery.run()

    async def _set_up(self, host: SimHost) -> None:
        client = await self.cluster.connect(host)
        await self.cluster.wait_until_writable(client)
        await client.close()


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

"""One seed of a partitioned log: writers that depose each other, growth, readers, in trouble and in the calm after it.

`python -m tests.sim.partition_scenario SEED` replays one seed and tells its last events.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from ledger.testing.loop import SimulationError
from ledger.testing.simulation import Simulation
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.testing.ghosts import BrokenInvariantError
from rsm_spark.testing.ledger_world import LedgerWorld
from rsm_spark.testing.nemesis import ReplicaNemesis
from rsm_spark.testing.replica_faults import ReplicaFaults
from tests.sim.outcome import SeedOutcome
from tests.sim.partition_cluster import PartitionCluster, final_state, kept_faults

__all__ = ["run_partition_seed"]

TROUBLE_S = 20.0
_ACKED_MIN = 20
_CALM_S = 30.0
_STORY_LINES = 40
_AS_DRAWN: Mapping[str, Any] = {}


@dataclass
class PartitionOutcome(SeedOutcome):
    command: str = "tests.sim.partition_scenario"

    @property
    def is_worth_counting(self) -> bool:
        return self.counts["acked"] >= _ACKED_MIN and self.counts["faults"] >= 1


def draw_settings(rng: random.Random) -> ReplicaSettings:
    """Draw the settings of one seed."""
    return ReplicaSettings(
        roll_s=rng.choice((0.5, 2.0, 20.0)),
        roll_records=rng.choice((20, 10_000)),
        ensemble_size=rng.choice((2, 3)),
        trim_s=rng.choice((0.5, 3.0)),
        retry_s=rng.choice((0.05, 0.5)),
        tail_entries_max=rng.choice((2, 256)),
    )


class PartitionScenario:
    """One seed's world."""

    def __init__(self, seed: int, trouble_s: float, faults: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        self.simulation = Simulation(seed)
        self.rng = self.simulation.random("test")
        self.trouble_s = trouble_s
        self.story: deque[str] = deque(maxlen=_STORY_LINES)
        self.world = LedgerWorld(self.simulation.random("ledgers"))
        drawn = msgspec.structs.replace(draw_settings(self.rng), **settings)
        self.cluster = PartitionCluster(self.simulation, self.world, drawn)
        self.cluster.truth.on_broken = self.simulation.loop.fail
        kept = {**kept_faults(), **faults}
        rates = msgspec.structs.replace(ReplicaFaults.draw(self.rng), **kept)
        self.nemesis = ReplicaNemesis(
            cast("Any", self.cluster), self.simulation.metadata, rates, self.rng, world=self.world
        )
        self.nemesis.on_event = lambda name, host: self.tell(f"FAULT {name} {host}")

    def tell(self, what: str) -> None:
        self.story.append(f"{self.simulation.loop.time():8.3f} {what}")

    async def main(self) -> None:
        """Work, trouble, calm, judgement."""
        self.cluster.start()
        while len(self.cluster.truth.acked) < _ACKED_MIN:  # A floor of work in every run.
            await asyncio.sleep(0.1)
        await self.nemesis.run(self.trouble_s)
        self.tell("calm")
        await asyncio.sleep(_CALM_S / 3)
        self.cluster.is_over = True
        await asyncio.sleep(_CALM_S)  # Whoever was on his way has an outcome, readers are at the end.
        found, trimmed = await final_state(self.cluster)
        await asyncio.sleep(_CALM_S)
        self.cluster.truth.judge(found, trimmed)

    def count(self) -> Counter[str]:
        """Return what was done."""
        cluster, faults = self.cluster, self.nemesis.counts
        return faults + Counter(
            acked=len(cluster.truth.acked),
            denied=len(cluster.truth.denied),
            seen=sum(len(part.seen) for part in cluster.truth.parts.values()),
            growths=cluster.truth.growths,
            writers=cluster.writers_opened,
            truncations=cluster.truncations,
            faults=sum(faults.values()),
        )


def run_partition_seed(
    seed: int,
    trouble_s: float = TROUBLE_S,
    *,
    faults: Mapping[str, Any] = _AS_DRAWN,
    settings: Mapping[str, Any] = _AS_DRAWN,
) -> PartitionOutcome:
    """Run one seed.

    Args:
        seed: Decides everything.
        trouble_s: How long anything fails.
        faults: Attributes of `ReplicaFaults` that are not as the seed draws them.
        settings: Attributes of `ReplicaSettings`, likewise.

    """
    scenario = PartitionScenario(seed, trouble_s, faults, settings)
    outcome = PartitionOutcome(seed)
    try:
        scenario.simulation.run(scenario.main(), limit_s=trouble_s + 20 * _CALM_S)
    except (BrokenInvariantError, SimulationError, AssertionError) as error:
        outcome.broken = str(error) or repr(error)
    outcome.story = list(scenario.story)
    outcome.signature = scenario.simulation.signature
    outcome.steps = scenario.simulation.loop.step_count
    outcome.simulated_s = scenario.simulation.loop.time()
    outcome.counts = scenario.count()
    return outcome


def _main(arguments: list[str]) -> None:
    """Replay the seeds named; with `--signatures` first, print only each one's signature (the replay gate)."""
    if arguments[0] == "--signatures":
        for seed in map(int, arguments[1:]):
            print(seed, run_partition_seed(seed).signature)
        return
    for seed in map(int, arguments):
        outcome = run_partition_seed(seed)
        print(outcome.report() if outcome.broken else f"seed {seed} holds: {dict(outcome.counts)}")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    _main(sys.argv[1:])

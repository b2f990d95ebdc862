"""One seed of a plain log: writers that depose each other, readers, truncations, in trouble and in the calm after it.

`python -m tests.sim.log_scenario SEED` replays one seed and tells its last events.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec

from ledger.testing.loop import SimulationError
from ledger.testing.simulation import Simulation
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.testing.ghosts import BrokenInvariantError
from rsm_spark.testing.ledger_world import LedgerWorld
from rsm_spark.testing.nemesis import ReplicaNemesis
from rsm_spark.testing.replica_faults import ReplicaFaults
from tests.sim.log_cluster import LogCluster, final_records
from tests.sim.outcome import SeedOutcome

TROUBLE_S = 20.0
_ACKED_MIN = 20
_CALM_S = 30.0
_STORY_LINES = 40
AS_DRAWN: Mapping[str, Any] = {}

Outcome = TypeVar("Outcome", bound="LogOutcome")


@dataclass
class LogOutcome(SeedOutcome):
    command: str = "tests.sim.log_scenario"

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


class LogScenario:
    """One seed's world. Scenarios of other logs have other clusters, and judge another end."""

    finished_readers = 0
    """Readers of finished batches among all others."""

    def __init__(self, seed: int, trouble_s: float, faults: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        self.simulation = Simulation(seed)
        self.rng = self.simulation.random("test")
        self.trouble_s = trouble_s
        self.story: deque[str] = deque(maxlen=_STORY_LINES)
        self.world = LedgerWorld(self.simulation.random("ledgers"))
        drawn = msgspec.structs.replace(draw_settings(self.rng), **settings)
        self.cluster = self.make_cluster(drawn)
        self.cluster.truth.on_broken = self.simulation.loop.fail
        kept = {"lose_disk": 0.0, "rot_snapshot": 0.0, "elect_wrongly": 0.0, **faults}
        rates = msgspec.structs.replace(ReplicaFaults.draw(self.rng), **kept)
        self.nemesis = ReplicaNemesis(
            cast("Any", self.cluster), self.simulation.metadata, rates, self.rng, world=self.world
        )
        self.nemesis.on_event = lambda name, host: self.tell(f"FAULT {name} {host}")

    def make_cluster(self, settings: ReplicaSettings) -> Any:
        return LogCluster(self.simulation, self.world, settings, finished_readers=self.finished_readers)

    async def final(self) -> tuple[Any, Any]:
        """Return all that the log holds in the end, and where it begins."""
        return await final_records(self.cluster)

    def own_counts(self) -> dict[str, int]:
        truth = self.cluster.truth
        batches = {"batched": self.cluster.batches.batched, "finished": self.cluster.finished.batch_count}
        return {"seen": len(truth.seen), "produced": self.cluster.produced, **batches}

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
        found, start = await self.final()
        await asyncio.sleep(_CALM_S)
        self.cluster.truth.judge(found, start)

    def count(self) -> Counter[str]:
        """Return what was done."""
        cluster, faults = self.cluster, self.nemesis.counts
        return faults + Counter(
            acked=len(cluster.truth.acked),
            denied=len(cluster.truth.denied),
            writers=cluster.writers_opened,
            truncations=cluster.truncations,
            faults=sum(faults.values()),
            **self.own_counts(),
        )


class FinishedScenario(LogScenario):
    """Some read finished batches only."""

    finished_readers = 2


def run_log_seed(
    seed: int,
    trouble_s: float = TROUBLE_S,
    *,
    faults: Mapping[str, Any] = AS_DRAWN,
    settings: Mapping[str, Any] = AS_DRAWN,
    has_finished: bool = False,
) -> LogOutcome:
    """Run one seed.

    Args:
        seed: Decides everything.
        trouble_s: How long anything fails.
        faults: Attributes of `ReplicaFaults` that are not as the seed draws them.
        settings: Attributes of `ReplicaSettings`, likewise.
        has_finished: Some read finished batches only.

    """
    kind = FinishedScenario if has_finished else LogScenario
    return played(kind(seed, trouble_s, faults, settings), LogOutcome(seed))


def played(scenario: LogScenario, outcome: Outcome) -> Outcome:
    """Play a scenario to its end; return what came of it."""
    try:
        scenario.simulation.run(scenario.main(), limit_s=scenario.trouble_s + 20 * _CALM_S)
    except (BrokenInvariantError, SimulationError, AssertionError) as error:
        outcome.broken = str(error) or repr(error)
    outcome.story = list(scenario.story)
    outcome.signature = scenario.simulation.signature
    outcome.steps = scenario.simulation.loop.step_count
    outcome.simulated_s = scenario.simulation.loop.time()
    outcome.counts = scenario.count()
    return outcome


def replay(run: Callable[[int], LogOutcome], arguments: list[str]) -> None:
    """Replay the seeds named; with `--signatures` first, print only each one's signature (the replay gate)."""
    if arguments[0] == "--signatures":
        for seed in map(int, arguments[1:]):
            print(seed, run(seed).signature)
        return
    for seed in map(int, arguments):
        outcome = run(seed)
        print(outcome.report() if outcome.broken else f"seed {seed} holds: {dict(outcome.counts)}")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    replay(run_log_seed, sys.argv[1:])

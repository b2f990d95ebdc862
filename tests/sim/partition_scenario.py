"""One seed of a partitioned log: writers that depose each other, growth, readers, in trouble and in the calm after it.

`python -m tests.sim.partition_scenario SEED` replays one seed and tells its last events.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rsm_spark.runtime.settings import ReplicaSettings
from tests.sim.log_scenario import AS_DRAWN, TROUBLE_S, LogOutcome, LogScenario, played, replay
from tests.sim.partition_cluster import PartitionCluster, final_state


@dataclass
class PartitionOutcome(LogOutcome):
    command: str = "tests.sim.partition_scenario"


class PartitionScenario(LogScenario):
    """One seed's world."""

    def make_cluster(self, settings: ReplicaSettings) -> PartitionCluster:
        return PartitionCluster(self.simulation, self.world, settings)

    async def final(self) -> tuple[Any, Any]:
        """Return all that the partitions hold in the end, and where each begins."""
        return await final_state(self.cluster)

    def own_counts(self) -> dict[str, int]:
        truth = self.cluster.truth
        return {
            "seen": sum(len(part.seen) for part in truth.parts.values()),
            "growths": truth.growths,
            "shared": truth.shared,
            "produced": self.cluster.produced,
            "batched": self.cluster.batches.batched,
            "finished": self.cluster.finished.row_count,
        }


class ProducedScenario(PartitionScenario):
    """One seed's world, in which programs that are not the writer append too."""

    def make_cluster(self, settings: ReplicaSettings) -> PartitionCluster:
        return PartitionCluster(self.simulation, self.world, settings, has_producers=True)


class SharedScenario(PartitionScenario):
    """One seed's world, in which two readers share a subscription, each with partitions of its own."""

    def make_cluster(self, settings: ReplicaSettings) -> PartitionCluster:
        return PartitionCluster(self.simulation, self.world, settings, has_members=True)


class BatchedScenario(PartitionScenario):
    """One seed's world, in which writers write batches, beside programs that append."""

    def make_cluster(self, settings: ReplicaSettings) -> PartitionCluster:
        return PartitionCluster(self.simulation, self.world, settings, has_batches=True)


class FinishedPartsScenario(PartitionScenario):
    """One seed's world, in which writers write batches, and some read finished ones only. Some logs end meanwhile."""

    def make_cluster(self, settings: ReplicaSettings) -> PartitionCluster:
        cluster = PartitionCluster(self.simulation, self.world, settings, has_batches=True, has_finished=True)
        if self.simulation.random("end").random() < 0.5:
            cluster.ends_from_s = self.trouble_s / 2
        return cluster


def run_finished_seed(seed: int, trouble_s: float = TROUBLE_S) -> PartitionOutcome:
    """Run one seed of a log with writers of batches and readers of finished ones."""
    return played(FinishedPartsScenario(seed, trouble_s, AS_DRAWN, AS_DRAWN), PartitionOutcome(seed))


def run_batched_seed(seed: int, trouble_s: float = TROUBLE_S) -> PartitionOutcome:
    """Run one seed of a log with writers of batches."""
    return played(BatchedScenario(seed, trouble_s, AS_DRAWN, AS_DRAWN), PartitionOutcome(seed))


def run_shared_seed(seed: int, trouble_s: float = TROUBLE_S) -> PartitionOutcome:
    """Run one seed of a log with readers that share a subscription."""
    return played(SharedScenario(seed, trouble_s, AS_DRAWN, AS_DRAWN), PartitionOutcome(seed))


def run_produced_seed(seed: int, trouble_s: float = TROUBLE_S) -> PartitionOutcome:
    """Run one seed of a log with producers."""
    return played(ProducedScenario(seed, trouble_s, AS_DRAWN, AS_DRAWN), PartitionOutcome(seed))


def run_partition_seed(
    seed: int,
    trouble_s: float = TROUBLE_S,
    *,
    faults: Mapping[str, Any] = AS_DRAWN,
    settings: Mapping[str, Any] = AS_DRAWN,
) -> PartitionOutcome:
    """Run one seed; the arguments are those of `run_log_seed`."""
    return played(PartitionScenario(seed, trouble_s, faults, settings), PartitionOutcome(seed))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    replay(run_partition_seed, sys.argv[1:])

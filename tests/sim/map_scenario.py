"""One seed of the map on simulated replicas: what expires, leases and watches, in trouble and in the calm after it.

`python -m tests.sim.map_scenario SEED` replays one seed and tells its last events.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rsm_spark.map.machine import MapMachine
from rsm_spark.map.records import MAP_DESCRIPTION, said_revision
from rsm_spark.runtime.change_feed import ChangeFeed
from rsm_spark.runtime.replica import Replica
from rsm_spark.testing.cluster import LOG
from rsm_spark.transport.watch_service import MESSAGE_BYTES, WatchService
from tests.sim.map_clients import MapCaller, Watcher
from tests.sim.map_truth import MapTruth
from tests.sim.replica_judge import CALM_S_MAX
from tests.sim.replica_scenario import TROUBLE_S, Outcome, Scenario, run_scenario

__all__ = ["MapScenario", "run_map_seed"]

WATCHERS = 3
_AS_DRAWN: Mapping[str, Any] = {}


class MapScenario(Scenario):
    """One seed's world; `Scenario` with another machine, other clients, and watchers."""

    watcher_class: type[Watcher] = Watcher

    def __init__(self, seed: int, *, machine: type[MapMachine] = MapMachine, **drawn: Any) -> None:
        super().__init__(seed, machine=machine, **drawn)
        self.services: dict[str, WatchService] = {}
        self._ring_bytes = self.rng.choice((500, 5_000, 1 << 20))
        self._message_bytes = self.rng.choice((60, 500, MESSAGE_BYTES))
        self.cluster.listeners.append(self._on_made)
        self.watchers = [
            self.watcher_class(
                self.cluster,
                self.services,
                self.truth,
                self._first_retained,
                random.Random(self.rng.random()),
                f"watcher {number}",
            )
            for number in range(WATCHERS)
        ]

    def make_client(self, rng: random.Random, name: str) -> MapCaller:
        """Return a client; the first one brings the truth along."""
        if not hasattr(self, "truth"):
            self.truth = MapTruth(self.cluster.ghosts, self.simulation.loop.time)
        return MapCaller(self.cluster, rng, name, self.truth)

    def _on_made(self, name: str, who: str, what: Any) -> None:
        if name == "made":
            assert isinstance(what, Replica)
            feed = ChangeFeed(what._context, ring_bytes=self._ring_bytes)
            self.services[who] = WatchService(
                LOG,
                MAP_DESCRIPTION,
                feed,
                said_revision=said_revision,
                message_bytes=self._message_bytes,
                **self.olds_of(feed, who),
            )
        elif name == "exit":
            self.services.pop(who, None)

    def olds_of(self, _feed: ChangeFeed, _who: str) -> dict[str, Any]:
        """Return what serves old values to watchers of a replica."""
        return {}

    def _first_retained(self) -> int:
        chain = self.chain.chain
        return chain.ledgers[0].first_revision if chain is not None and chain.ledgers else 1

    async def main(self) -> None:
        """Work, trouble, calm; then all that has an end comes to it, and watchers have seen everything."""
        watching = [asyncio.get_running_loop().create_task(watcher.run()) for watcher in self.watchers]
        await super().main()
        await self.judge._until(lambda: self.truth.is_settled, "all that has an end comes to it")
        await self.judge._until(lambda: all(one.is_at_end for one in self.watchers), "watchers see everything")
        await self.judge._until(self.judge._all_are_there, "all replicas have applied everything")
        for name, replica in self.cluster.replicas.items():
            machine = replica._context.machine
            assert isinstance(machine, MapMachine)
            machine.validate()
            rows = {key: self.truth.rows.get(key) for key in machine._rows.entries}
            if rows != self.truth.rows:
                self.cluster.ghosts.fail("same-state", f"{name} has the keys {sorted(rows)}")
        for task in watching:
            task.cancel()

    def count(self) -> Counter[str]:
        """Return what was done."""
        return super().count() + Counter(
            seen=sum(watcher.seen_count for watcher in self.watchers),
            skipped=sum(watcher.skipped_count for watcher in self.watchers),
            log_reads=sum(service._feed.log_reads for service in self.services.values()),
            ended_by_time=self.truth.ended_by_time,
        )


def run_map_seed(
    seed: int,
    trouble_s: float = TROUBLE_S / 2,
    *,
    faults: Mapping[str, Any] | None = _AS_DRAWN,
    settings: Mapping[str, Any] = _AS_DRAWN,
    on_bookies: bool = False,
) -> Outcome:
    """Run one seed.

    Args:
        seed: Decides everything.
        trouble_s: How long anything fails.
        on_bookies: Real bookies and the real client instead of the twin of the ledger.
        faults: Attributes of `ReplicaFaults` that are not as the seed draws them; None = nothing fails.
        settings: Attributes of `ReplicaSettings`, likewise.

    """
    scenario = MapScenario(seed, on_bookies=on_bookies, trouble_s=trouble_s, faults=faults, settings=settings)
    return run_scenario(scenario, limit_s=trouble_s + 9 * CALM_S_MAX, command="tests.sim.map_scenario")


def _main(arguments: list[str]) -> None:
    """Replay the seeds named; with `--signatures` first, print only each one's signature (the replay gate)."""
    if arguments[0] == "--signatures":
        for seed in map(int, arguments[1:]):
            print(seed, run_map_seed(seed).signature)
        return
    for seed in map(int, arguments):
        outcome = run_map_seed(seed)
        print(outcome.report() if outcome.broken else f"seed {seed} holds: {dict(outcome.counts)}")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    _main(sys.argv[1:])

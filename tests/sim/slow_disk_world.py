"""A world in which all disks are slow at once, those of the metadata store too, while all replicas are started anew.

Whoever asks is answered soon after the disks are well again, and where they are not too slow, before.

`python -m tests.sim.slow_disk_world SEED` plays one seed and tells what happened.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from typing import Any, NamedTuple

from ledger.testing.cluster import SimCluster
from ledger.testing.simulation import Simulation
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.testing.cluster import ReplicaCluster
from rsm_spark.testing.sessions import SessionClient

__all__ = ["SLOW", "STALLED", "SlowAnswerError", "SlowDisks", "play"]

_FIRST_ACKED = 5
_LIMIT_S = 600.0
_STORY_LINES = 60
ANSWERED_S_MAX = 12.0
"""From when the disks are well to the first command that is answered."""
_STEP_S = 0.05


class SlowAnswerError(AssertionError):
    """Nobody was answered in time."""


class SlowDisks(NamedTuple):
    """How slow disks are, and how long.

    Attributes:
        bookie_slowness: Multiplies the time of all that a bookie's disk does, which is 0.2 to 4 ms.
        write_s: (least, most) of a write of the metadata store.
        lasts_s: From the end of the replicas on.
        answered_s_max: A command is answered within this time from then on; None = perhaps none is.

    """

    bookie_slowness: float
    write_s: tuple[float, float]
    lasts_s: float
    answered_s_max: float | None = None


SLOW = SlowDisks(200.0, (1.5, 2.5), 80.0, answered_s_max=80.0)
"""Each step of a take-over takes seconds, and all of them longer than a leadership may stand still."""
STALLED = SlowDisks(1500.0, (2.0, 3.5), 40.0)
"""Bookies and metadata store answer later than anybody waits for them."""


class SlowDiskWorld:
    """One seed's world.

    Args:
        seed: Decides everything that `slow` does not.
        slow: The disks.

    Attributes:
        answered_slow_s: Until the first command was answered, from the end of the replicas on; None = none was while
            disks were slow.
        answered_well_s: Until the first one that was asked when they were well again, from then on.
        story: What happened last.

    """

    def __init__(self, seed: int, slow: SlowDisks) -> None:
        self.simulation = Simulation(seed)
        self.slow = slow
        self.answered_slow_s: float | None = None
        self.answered_well_s = float("inf")
        self.story: deque[str] = deque(maxlen=_STORY_LINES)
        self._bookies = SimCluster(self.simulation)
        self._cluster = ReplicaCluster(self.simulation, self._bookies.connect, settings=ReplicaSettings(), beats=True)
        self._cluster.listeners.append(self._on_replica)
        rng = self.simulation.random("clients")
        self._clients = [SessionClient(self._cluster, rng, f"c{n}") for n in range(3)]

    def _on_replica(self, name: str, who: str, what: Any) -> None:
        if name in {"role", "exit"}:
            self.tell(f"{who} {name} {what!r}")

    def tell(self, what: str) -> None:
        self.story.append(f"{self._now():8.3f} {what}")

    def _now(self) -> float:
        return float(self.simulation.loop.time())

    @property
    def _acked(self) -> int:
        return sum(client.acknowledged for client in self._clients)

    async def main(self) -> None:
        """Work, slow disks with a restart of all replicas, well disks."""
        loop = asyncio.get_running_loop()
        self._bookies.start()
        self._cluster.start()
        tasks = [loop.create_task(client.run()) for client in self._clients]
        await self._more(_FIRST_ACKED, _LIMIT_S)
        self._set(self.slow.bookie_slowness, self.slow.write_s)
        began_s, acked = self._now(), self._acked
        self.tell("disks are slow, all replicas end")
        for host in self._cluster.hosts:
            host.kill()
        while self._now() - began_s < self.slow.lasts_s:
            await asyncio.sleep(_STEP_S)
            if self.answered_slow_s is None and self._acked > acked:
                self.answered_slow_s = self._now() - began_s
                self.tell("somebody is answered")
        self._set(1.0, (0.0, 0.0))
        self.tell("disks are well")
        well_s = self._now()
        probe = SessionClient(self._cluster, self.simulation.random("probe"), "probe")
        while not probe.acknowledged:
            await probe.step()
        self.answered_well_s = self._now() - well_s
        self.tell("the probe is answered")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _more(self, count: int, limit_s: float) -> None:
        wanted = self._acked + count
        async with asyncio.timeout(limit_s):
            while self._acked < wanted:
                await asyncio.sleep(_STEP_S)

    def _set(self, slowness: float, write_s: tuple[float, float]) -> None:
        for bookie in self._bookies.bookies:
            bookie.disk.slowness = slowness
        self.simulation.metadata.write_s = write_s


def play(seed: int, slow: SlowDisks) -> SlowDiskWorld:
    """Play one seed to its end.

    Raises:
        SlowAnswerError: Commands were answered too late.

    """
    world = SlowDiskWorld(seed, slow)
    world.simulation.run(world.main(), limit_s=_LIMIT_S)
    if slow.answered_s_max is not None and (world.answered_slow_s or float("inf")) > slow.answered_s_max:
        raise SlowAnswerError(f"seed {seed}: nobody was answered for {slow.answered_s_max:g} s of slow disks")
    if world.answered_well_s > ANSWERED_S_MAX:
        raise SlowAnswerError(f"seed {seed}: nobody was answered for {world.answered_well_s:.1f} s of well disks")
    return world


def _main(arguments: list[str]) -> None:
    slow = SlowDisks(float(arguments[1]), (float(arguments[2]), float(arguments[3])), float(arguments[4]))
    for seed in range(*map(int, arguments[0].split("-"))):
        world = play(seed, slow)
        print(seed, world.answered_slow_s, round(world.answered_well_s, 2), flush=True)
        if "-v" in arguments:
            print("\n".join(world.story))


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    _main(sys.argv[1:])

"""What may happen to the processes of a replicated map, one fault after the other or two at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial

from ledger.dev import DevCluster
from tests.integration.store_processes import StoreProcess, Stores

SESSION_MS = 2_000
PAUSE_S = 3.5
"""Of a frozen process: longer than its session, by more than a heartbeat."""

FAULTS = (
    "kill leader",
    "pause leader",
    "kill follower",
    "pause follower",
    "kill bookie",
    "pause bookie",
    "kill zookeeper",
    "pause zookeeper",
)


def kind_of(fault: str) -> str:
    """Return what kind of process a fault befalls."""
    whom = fault.split()[1]
    return "replica" if whom in ("leader", "follower") else whom


_Mending = Callable[[], Awaitable[None]]


class StoreFaults:
    """Breaks processes and makes them whole again."""

    def __init__(self, cluster: DevCluster, replicas: Stores, rng: random.Random, options: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._rng = rng
        self._options = options
        # Rank and what makes whole: a replica starts only where ZooKeeper answers.
        self._broken: list[tuple[int, _Mending]] = []

    async def begin(self, name: str) -> None:
        """Break what is named."""
        what, _, whom = name.partition(" ")
        if whom == "zookeeper":
            self._broken.append((0, await self._zookeeper_fault(what)))
        elif whom == "bookie":
            number = self._rng.randrange(len(self._cluster.bookies))
            self._broken.append((1, await self._bookie_fault(what, number)))
        else:
            self._broken.append((2, await self._replica_fault(what, await self._victim(whom))))

    async def mend(self) -> None:
        """Make whole what is broken."""
        broken, self._broken = self._broken, []
        for _, mending in sorted(broken, key=lambda one: one[0]):
            await mending()

    async def _victim(self, whom: str) -> StoreProcess:
        leader = await self._replicas.leader()
        if whom == "leader":
            return leader
        return self._rng.choice([one for one in self._replicas.alive.values() if one is not leader])

    async def _replica_fault(self, what: str, victim: StoreProcess) -> _Mending:
        if what == "pause":
            victim.pause()
            return partial(asyncio.to_thread, victim.resume)
        await asyncio.to_thread(victim.kill)
        self._replicas.gone(victim.replica_id)
        return partial(asyncio.to_thread, self._replicas.start, victim.replica_id, *self._options)  # type: ignore[return-value]

    async def _bookie_fault(self, what: str, number: int) -> _Mending:
        if what == "pause":
            self._cluster.pause_bookie(number)
            return partial(asyncio.to_thread, self._cluster.resume_bookie, number)
        await asyncio.to_thread(self._cluster.kill_bookie, number)
        return partial(asyncio.to_thread, self._cluster.start_bookie, number)

    async def _zookeeper_fault(self, what: str) -> _Mending:
        if what == "pause":
            self._cluster.pause_zookeeper()
            return partial(asyncio.to_thread, self._cluster.resume_zookeeper)
        await asyncio.to_thread(self._cluster.kill_zookeeper)
        return partial(asyncio.to_thread, self._cluster.start_zookeeper)

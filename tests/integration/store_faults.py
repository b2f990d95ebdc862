"""What may happen to the processes of a replicated map, one fault after the other or two at once."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

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


class StoreFaults:
    """Breaks processes and makes them whole again."""

    def __init__(self, cluster: DevCluster, replicas: Stores, rng: random.Random, options: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._rng = rng
        self._options = options

    @contextlib.asynccontextmanager
    async def fault(self, name: str) -> AsyncIterator[None]:
        """Break what is named; whole again behind the block."""
        what, _, whom = name.partition(" ")
        if whom in ("leader", "follower"):
            async with self._replica_fault(what, await self._victim(whom)):
                yield
        elif whom == "bookie":
            async with self._bookie_fault(what, self._rng.randrange(len(self._cluster.bookies))):
                yield
        else:
            async with self._zookeeper_fault(what):
                yield

    async def _victim(self, whom: str) -> StoreProcess:
        leader = await self._replicas.leader()
        if whom == "leader":
            return leader
        return self._rng.choice([one for one in self._replicas.alive.values() if one is not leader])

    @contextlib.asynccontextmanager
    async def _replica_fault(self, what: str, victim: StoreProcess) -> AsyncIterator[None]:
        if what == "pause":
            victim.pause()
            try:
                yield
            finally:
                victim.resume()
            return
        await asyncio.to_thread(victim.kill)
        self._replicas.gone(victim.replica_id)
        yield
        await asyncio.to_thread(self._replicas.start, victim.replica_id, *self._options)

    @contextlib.asynccontextmanager
    async def _bookie_fault(self, what: str, number: int) -> AsyncIterator[None]:
        if what == "pause":
            self._cluster.pause_bookie(number)
            try:
                yield
            finally:
                self._cluster.resume_bookie(number)
            return
        await asyncio.to_thread(self._cluster.kill_bookie, number)
        yield
        await asyncio.to_thread(self._cluster.start_bookie, number)

    @contextlib.asynccontextmanager
    async def _zookeeper_fault(self, what: str) -> AsyncIterator[None]:
        if what == "pause":
            self._cluster.pause_zookeeper()
            try:
                yield
            finally:
                self._cluster.resume_zookeeper()
            return
        await asyncio.to_thread(self._cluster.kill_zookeeper)
        yield
        await asyncio.to_thread(self._cluster.start_zookeeper)

"""One seed of a disaster: the metadata are wiped, ledger ids begin again at 0, the replicas' disks are as they were.

A log of the same name then is another log, however much its ledgers are called the same: what a disk holds must not be
taken for it, nor it for what the disk holds (design D7, D8).

`python -m tests.sim.lost_metadata PAUSED SEED` replays one seed; see `Meanwhile`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import Counter
from enum import Enum, auto

from ledger.errors import LedgerError
from ledger.testing.hosts import SimHost
from ledger.testing.loop import SimulationError
from rsm_spark.core.chain import chain_path
from rsm_spark.errors import ForkedLogError, MissingLogError, NoSuchLogError
from rsm_spark.testing.cluster import LOG
from rsm_spark.testing.ghosts import BrokenInvariantError, Ghosts
from rsm_spark.testing.sessions import SessionClient
from tests.sim.replica_judge import CALM_S_MAX, Judge
from tests.sim.replica_scenario import CLIENTS, Outcome, Scenario
from tests.sim.replica_witness import ChainWatch, witnessed

__all__ = ["Meanwhile", "run_disaster"]

_WORK_S = 6.0
_KEPT_S = 8.0
_SETTINGS = {
    "roll_s": 0.5,
    "snapshot_s": 1.0,
    "snapshot_bytes": 0,
    "checkpoint_records": 20,
    "session_ttl_ms": 3_600_000,
    "retention_ms": 48 * 3_600_000,
    "verify_s": 0.7,
}


class Meanwhile(Enum):
    """What replicas do while it happens.

    DOWN: they are stopped.
    UP: they run, and lose their sessions.
    PAUSED: they stand still, and go on when the new log has grown and its leader has just been killed.
    """

    DOWN = auto()
    UP = auto()
    PAUSED = auto()


class _Disaster(Scenario):
    """A world that loses its metadata.

    Args:
        seed: Decides everything.
        meanwhile: See there.

    """

    def __init__(self, seed: int, meanwhile: Meanwhile) -> None:
        super().__init__(seed, on_bookies=False, trouble_s=0.0, faults=None, settings=_SETTINGS)
        self._meanwhile = meanwhile
        self._path = chain_path(LOG)

    async def main(self) -> None:
        """A log, the disaster, nothing, another log, and everybody on it."""
        loop = asyncio.get_running_loop()
        self.cluster.start()
        tasks = [loop.create_task(client.run()) for client in self.clients]
        while loop.time() < _WORK_S or not all(store.manifests() for store in self.cluster.snapshots.values()):
            await self._check(0.1, tasks)
        for task in tasks:
            task.cancel()
        assert self.world is not None
        known = max(self.world.ledgers)
        self._lose_metadata()
        if self._meanwhile is not Meanwhile.PAUSED:
            await self._stays_lost()
        fresh = self.rng.choice(self.cluster.hosts)
        self._begin_on(fresh)
        await self._works_beside(fresh, known)
        for host in self.cluster.hosts:
            if host is not fresh:
                host.kill()
                self.cluster.wipe(host)
        self.judge._exits_seen = len(self.cluster.stopped)
        await self.judge.converge([])
        self.judge.judge_history()

    def _lose_metadata(self) -> None:
        metadata, world, cluster = self.simulation.metadata, self.world, self.cluster
        self.tell("FAULT the metadata are wiped")
        assert world is not None
        metadata.on_change.remove(self.chain._on_change)
        world.listeners.remove(self.chain._on_ledger)
        for host in cluster.hosts:
            if self._meanwhile is Meanwhile.DOWN:
                host.kill()
            elif self._meanwhile is Meanwhile.PAUSED:
                host.pause()
        for session_id in metadata.session_ids():
            metadata.expire(session_id)
        for path in sorted(metadata.leader.nodes, key=len, reverse=True):
            if path != "/":
                metadata.commit(metadata.leader.delete(path, -1))
        world.ledgers.clear()
        world._next_id = 0
        cluster.ghosts = Ghosts(self.simulation.loop.time)
        cluster.ghosts.on_broken = self.simulation.loop.fail
        self.chain = ChainWatch(cluster, metadata, world)

    async def _stays_lost(self) -> None:
        """As long as every disk holds the log that was there, nobody begins another one under its name."""
        deadline_s = self.simulation.loop.time() + _KEPT_S
        while self.simulation.loop.time() < deadline_s:
            await asyncio.sleep(0.2)
            if self.simulation.metadata.leader.exists(self._path) is not None:
                self.cluster.ghosts.fail(
                    "acked-is-durable", "another log takes the name of the one that every disk holds"
                )

    def _begin_on(self, host: SimHost) -> None:
        """Let an operator begin anew: one replica with an empty disk."""
        self.tell(f"{host.name} begins again on an empty disk")
        host.kill()
        self.cluster.wipe(host)
        self.clients = [
            SessionClient(self.cluster, random.Random(self.rng.random()), f"n{number}") for number in range(CLIENTS)
        ]
        for client in self.clients:
            client._target = host.name
            if self._meanwhile is Meanwhile.PAUSED:
                client._old_read_share = 0.0  # Who has just woken up answers those, until it has looked at the chain.
        self.judge = Judge(self.cluster, self.clients, self.tell)

    async def _works_beside(self, fresh: SimHost, known: int) -> None:
        """The new log grows over all ledger ids of the old one; whose disk holds that one takes no part."""
        cluster, world, loop = self.cluster, self.world, asyncio.get_running_loop()
        assert world is not None
        began_s, exits_before = loop.time(), len(cluster.stopped)
        tasks = [loop.create_task(client.run()) for client in self.clients]
        wakes_at = self.rng.randint(1, known + 1) if self._meanwhile is Meanwhile.PAUSED else None
        while max(world.ledgers, default=-1) < known + 2:
            await asyncio.sleep(0.1)
            if wakes_at is not None and wakes_at in world.ledgers:
                wakes_at = None
                self.tell("FAULT the others go on, the leader is killed")
                fresh.kill()
                for host in cluster.hosts:
                    host.resume()
            for task in tasks:
                if task.done():
                    task.result()
            leader = self.chain.chain.leader if self.chain.chain is not None else None
            if leader is not None and leader.replica_id != fresh.name:
                cluster.ghosts.fail("no-gap", f"{leader.replica_id} claims the log, its disk holds another one")
            if loop.time() - began_s > CALM_S_MAX:
                cluster.ghosts.fail("convergence", "the new log does not grow")
        for client in self.clients:
            client.is_calm = True
        await asyncio.wait(tasks, timeout=CALM_S_MAX)
        for task in tasks:
            task.result()
        refused = {name for name, reason in cluster.stopped[exits_before:] if isinstance(reason, ForkedLogError)}
        if refused != {host.name for host in cluster.hosts} - {fresh.name}:
            cluster.ghosts.fail("no-gap", f"only {sorted(refused)} say that their disks hold another log")
        for name, reason in cluster.stopped:
            if not isinstance(reason, LedgerError | MissingLogError | ForkedLogError | NoSuchLogError):
                cluster.ghosts.fail("no-crash", f"{name} stopped: {reason!r}")


def run_disaster(seed: int, meanwhile: Meanwhile) -> Outcome:
    """Run one seed."""
    scenario = _Disaster(seed, meanwhile)
    outcome = Outcome(seed, command=f"tests.sim.lost_metadata {meanwhile.name}")
    try:
        with witnessed():
            scenario.simulation.run(scenario.main(), limit_s=_WORK_S + _KEPT_S + 6 * CALM_S_MAX)
    except (BrokenInvariantError, SimulationError, AssertionError) as error:
        outcome.broken = str(error) or repr(error)
    outcome.story = list(scenario.story)
    outcome.counts = Counter(scenario.count())
    return outcome


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    found = run_disaster(int(sys.argv[2]), Meanwhile[sys.argv[1]])
    print(found.report() if found.broken else f"seed {found.seed} holds: {dict(found.counts)}")

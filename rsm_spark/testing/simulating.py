"""A cluster of replicas of a user's machine in virtual time: killed, paused, cut off, seed by seed.

Everything is the real code but the ledger, which is a twin as bad as a ledger may be. A seed decides everything: a run
that fails can be had again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from ledger.errors import LedgerError
from ledger.testing.hosts import SimHost
from ledger.testing.loop import SimulationError
from ledger.testing.simulation import Simulation
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Request
from rsm_spark.core.evolution import check_evolution
from rsm_spark.core.machine import StateMachine
from rsm_spark.errors import MissingLogError
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.testing.cluster import ReplicaCluster, UnreachableError
from rsm_spark.testing.ghosts import BrokenInvariantError
from rsm_spark.testing.ledger_twin import TwinClient
from rsm_spark.testing.ledger_world import LedgerWorld
from rsm_spark.testing.nemesis import ReplicaNemesis
from rsm_spark.testing.replica_faults import ReplicaFaults
from rsm_spark.testing.rolling_upgrade import RollingUpgrade
from rsm_spark.testing.version_witness import VersionWitness

_CLIENTS = 4
_ACKED_MIN = 10
_CALM_S_MAX = 120.0
_FINAL = frozenset({AnswerStatus.OK, AnswerStatus.REFUSED, AnswerStatus.TOO_LARGE})


class SimulationSummary(msgspec.Struct, frozen=True):
    """Result of many seeds.

    Attributes:
        seeds: How many were run.
        acknowledged: Commands that were answered for good.
        refused: Of those, commands on which the machine failed.
        faults: Faults done, by name; upgrades and downgrades of replicas too.

    """

    seeds: int
    acknowledged: int
    refused: int
    faults: dict[str, int]


def simulate(
    make: Callable[[], StateMachine],
    commands: Callable[[random.Random], bytes],
    *,
    older: Callable[[], StateMachine] | None = None,
    seeds: int = 100,
    first_seed: int = 0,
    invariant: Callable[[Any], None] = lambda _machine: None,
    trouble_s: float = 20.0,
) -> SimulationSummary:
    """Run a machine on a simulated cluster of three replicas under faults, once a seed.

    While replicas are killed, paused, cut off from the metadata store or the ledger, and lose disks, clients execute
    commands, and send each again until they know its outcome. All replicas must come to the same states along one log,
    every acknowledged command must be in it once with the reply that its client was told, and in the calm that follows
    everybody is answered and everything is applied.

    With `older` the replicas begin with that version and are rolled to the other while all this happens; some go back,
    and operators raise the log's version, by force too. Nobody raises it past a live replica unasked, nobody leads a
    log that is newer than its code, and in the calm the log is of the new version.

    Args:
        make: Makes an empty machine.
        commands: Draws a command; what a version refuses is an answer.
        older: Makes an empty machine of the version before; None = there is none.
        seeds: How many runs.
        first_seed: The first of them: a failure names its seed, `first_seed=…, seeds=1` runs it again.
        invariant: Called with machines of replicas that stand between two entries; raises AssertionError.
        trouble_s: Simulated seconds of faults in each run.

    Returns:
        What was done: silence means something only if enough was.

    Raises:
        BrokenInvariantError: The message begins with the invariant's name and tells the seed.
        AssertionError: The machine's own invariant does not hold; likewise.

    """
    total: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + seeds):
        run = _Run(seed, make, commands, invariant, trouble_s, older)
        try:
            with _quiet():
                run.simulation.run(run.main(), limit_s=trouble_s + 4 * _CALM_S_MAX)
        except (BrokenInvariantError, SimulationError, AssertionError) as error:
            kind = AssertionError if isinstance(error, AssertionError) else BrokenInvariantError
            at = f"seed {seed}, simulated second {run.simulation.loop.time():.3f}"
            raise kind(f"{str(error) or repr(error)}\n  {at}; to run it again: first_seed={seed}, seeds=1") from error
        for caller in run.callers:
            total += caller.counts
        faults += run.nemesis.counts
        if run.upgrade is not None:
            faults += run.upgrade.counts
    return SimulationSummary(seeds, total["acknowledged"], total["refused"], dict(sorted(faults.items())))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep replicas that are killed by the dozen from telling the log of the test."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class _Run:
    """One seed's world."""

    def __init__(
        self,
        seed: int,
        make: Callable[[], StateMachine],
        commands: Callable[[random.Random], bytes],
        invariant: Callable[[Any], None],
        trouble_s: float,
        older: Callable[[], StateMachine] | None,
    ) -> None:
        self.simulation = Simulation(seed)
        rng = self.simulation.random("user")
        self._invariant, self._trouble_s = invariant, trouble_s
        world = LedgerWorld(self.simulation.random("ledgers"))

        async def connect(_host: SimHost) -> TwinClient:
            return TwinClient(world, await self.simulation.metadata.connect(session_timeout_ms=4000))

        settings = ReplicaSettings(
            roll_s=rng.choice((2.0, 20.0)),
            checkpoint_records=rng.choice((5, 100)),
            snapshot_s=rng.choice((2.0, 10.0)),
            entry_commands_max=rng.choice((3, 2000)),
            retention_ms=rng.choice((1_000, 48 * 3_600_000)),
            trim_s=rng.choice((0.5, 3.0)),
            verify_s=rng.choice((0.7, 3.0)),
        )
        self.cluster = ReplicaCluster(self.simulation, connect, settings=settings, machine=make)
        self.cluster.ghosts.counts_counters = False
        metadata, faults = self.simulation.metadata, ReplicaFaults.draw(rng)
        self.nemesis = ReplicaNemesis(self.cluster, metadata, faults, rng, world=world)
        self.upgrade: RollingUpgrade | None = None
        if older is not None:
            # Older and newer must fit each other: told without a search.
            check_evolution(older().description, make().description)
            self._witness = VersionWitness(self.cluster, metadata, world)
            rolled = self.simulation.random("upgrade")
            self.upgrade = RollingUpgrade(self.cluster, metadata, (older, make), rolled, self._witness)
        self.callers = [_Caller(self.cluster, random.Random(rng.random()), commands) for _ in range(_CLIENTS)]
        self._exits_seen = 0

    async def main(self) -> None:
        """Work, trouble, calm."""
        loop = asyncio.get_running_loop()
        self.cluster.start()
        tasks = [loop.create_task(caller.run()) for caller in self.callers]
        await self._until(lambda: self._acknowledged >= _ACKED_MIN, "commands are acknowledged before any fault")
        trouble = asyncio.gather(*(one.run(self._trouble_s) for one in (self.nemesis, self.upgrade) if one is not None))
        while not trouble.done():
            await asyncio.sleep(0.5)
            self._look(tasks)
        trouble.result()
        if self.upgrade is not None:
            rolled = loop.create_task(self.upgrade.finish())
            await self._until(rolled.done, "the log is raised to the new version in the calm")
            rolled.result()
        for caller in self.callers:
            caller.is_calm = True
        await self._until(lambda: all(task.done() for task in tasks), "all clients are answered in the calm")
        self._look(tasks)
        await self._until(self._all_are_there, "all replicas have applied everything in the calm")
        self._look(tasks)
        if self.upgrade is not None:
            self._witness.judge()
        ghosts = self.cluster.ghosts
        for replica in self.cluster.replicas.values():
            replica._context.state.validate()
        if lost := ghosts.acknowledged - ghosts.replies.keys():
            ghosts.fail("acked-is-durable", f"{len(lost)} acknowledged commands are not in the log")

    @property
    def _acknowledged(self) -> int:
        return sum(caller.counts["acknowledged"] for caller in self.callers)

    def _all_are_there(self) -> bool:
        replicas = list(self.cluster.replicas.values())
        end = self.cluster.ghosts.revision
        return len(replicas) == len(self.cluster.hosts) and all(replica.revision >= end for replica in replicas)

    def _look(self, tasks: list[asyncio.Task[None]]) -> None:
        """Check what must hold at any time."""
        for task in tasks:
            if task.done():
                task.result()
        for name, reason in self.cluster.stopped[self._exits_seen :]:
            if isinstance(reason, Exception) and not isinstance(reason, LedgerError | MissingLogError):
                self.cluster.ghosts.fail("no-crash", f"{name} stopped: {reason!r}")
        self._exits_seen = len(self.cluster.stopped)
        for replica in self.cluster.replicas.values():
            if replica._context.has_state and replica._context.state_is_confirmed:
                self._invariant(replica._context.machine)

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _CALM_S_MAX
        while not holds():
            await asyncio.sleep(0.2)
            if loop.time() > deadline_s:
                self.cluster.ghosts.fail("convergence", f"{what}: not within {_CALM_S_MAX:.0f} s")


class _Caller:
    """A client: one command after the other, each sent until its outcome is known."""

    def __init__(self, cluster: ReplicaCluster, rng: random.Random, commands: Callable[[random.Random], bytes]) -> None:
        self.is_calm = False
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._rng = rng
        self._commands = commands
        self._session: bytes | None = None
        self._sequence = 0
        self._target = rng.choice(cluster.hosts).name

    async def run(self) -> None:
        """Work until calm."""
        while not self.is_calm:
            if self._session is None:
                session = self._rng.randbytes(16)
                await self._settled(OpenSession(session))
                self._session, self._sequence = session, 0
            await self._execute(self._session)
            await asyncio.sleep(self._rng.expovariate(8.0))

    async def _execute(self, session: bytes) -> None:
        self._sequence += 1
        command = Command(session, self._sequence, self._sequence - 1, self._commands(self._rng))
        answer = await self._settled(command)
        if answer.status is AnswerStatus.SESSION_EXPIRED:
            self._session = None
            return
        if answer.status is AnswerStatus.OK:
            self._cluster.ghosts.told(session, self._sequence, answer.payload)
        self.counts["acknowledged"] += 1
        self.counts["refused"] += answer.status is not AnswerStatus.OK

    async def _settled(self, request: Request) -> Answer:
        """Send a request until its answer is final."""
        while True:
            try:
                (answer,) = await self._cluster.call(self._target, [request], self._rng.choice((0.3, 1.0, 5.0)))
            except UnreachableError:
                answer = None
            if answer is not None and (answer.status in _FINAL or answer.status is AnswerStatus.SESSION_EXPIRED):
                return answer
            if answer is None or answer.status is AnswerStatus.NOT_LEADER:
                self._target = self._rng.choice(self._cluster.hosts).name
            await asyncio.sleep(self._rng.uniform(0.01, 0.3))

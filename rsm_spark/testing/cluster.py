"""Simulated clusters of replicas: a few hosts, one ledger world, one metadata store, clients that retry, faults.

The replica is the real one. Its ledger is either a twin (`ledger_world`: fast, and as bad as a ledger may be) or the
real client on real bookies, all in `ledger.testing`'s virtual time. A message without an answer in time is an
`UnreachableError`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ledger.testing.hosts import SimHost
from ledger.testing.simulation import Simulation
from rsm_spark.core.commands import Answer, Request
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.core.machine import StateMachine
from rsm_spark.core.position import LogPosition
from rsm_spark.core.state import ReplicatedState, StateTip
from rsm_spark.log.commit_log import LogEntry
from rsm_spark.runtime.replica import Replica
from rsm_spark.runtime.settings import ReplicaSettings
from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.testing.beats import SimBeats
from rsm_spark.testing.counter_map import CounterMap
from rsm_spark.testing.ghosts import Ghosts, Place
from rsm_spark.testing.peers import SimPeers
from rsm_spark.testing.received_requests import as_received
from rsm_spark.testing.snapshots import MemorySnapshots
from rsm_spark.testing.tails import SimTails

LOG = "counters"

Connect = Callable[[SimHost], Coroutine[Any, Any, Any]]


class UnreachableError(Exception):
    """The replica asked is down or did not answer in time."""


class ReplicaCluster:
    """Replicas on simulated hosts.

    Args:
        simulation: The world.
        connect: Makes the ledger client of a host's process.
        replica_count: How many replicas.
        settings: Of each replica.
        machine: Makes the state machine of every host's process.
        lake: Snapshots that outlive every replica; None = there is none.
        beats: Whether replicas listen to each other's beats; else sessions alone tell.

    Attributes:
        ghosts: Invariants.
        replicas: The running ones, by host name.
        clients: Ledger clients of the running ones.
        machines: What makes the state machine of a host's next process, by host name: another version, say.
        listeners: Called with what replicas do, when they do it: ``made`` (host, replica; it has not started yet),
            ``adopt`` (host, prefix hash of the state that it
            begins with), ``apply`` (host, position of an entry that it read), ``exit`` (host, reason), ``role``.
        cut_peers: Paths between replicas, (from, to), over which no beat and no told entry passes.
        damaged_s: When a disk was lost or damaged last.

    """

    def __init__(
        self,
        simulation: Simulation,
        connect: Connect,
        *,
        replica_count: int = 3,
        settings: ReplicaSettings | None = None,
        machine: Callable[[], StateMachine] = CounterMap,
        lake: MemorySnapshots | None = None,
        beats: bool = False,
    ) -> None:
        self.simulation = simulation
        self.lake = lake
        self.ghosts = Ghosts(simulation.loop.time)
        self.ghosts.on_broken = simulation.loop.fail
        self.settings = settings or ReplicaSettings()
        self.beats = beats
        self.cut_peers: set[tuple[str, str]] = set()
        self.replicas: dict[str, Replica] = {}
        self.clients: dict[str, Any] = {}
        self.snapshots: dict[str, MemorySnapshots] = {}
        self.machines: dict[str, Callable[[], StateMachine]] = {}
        self.listeners: list[Callable[[str, str, Any], None]] = []
        self.stopped: list[tuple[str, str | BaseException]] = []
        self.damaged_s = float("-inf")
        self._connect = connect
        self._rng = simulation.random("cluster")
        self._boots = 0
        self.hosts = [simulation.host(f"replica-{i}", self._program) for i in range(replica_count)]
        for host in self.hosts:
            self.machines[host.name] = machine
            self.snapshots[host.name] = MemorySnapshots()
            host.on_exit.append(self._on_exit)

    def start(self) -> None:
        """Start all replicas."""
        for host in self.hosts:
            host.start()

    def wipe(self, host: SimHost) -> None:
        """Lose a host's disk."""
        self.snapshots[host.name] = MemorySnapshots()
        self.damaged_s = self.simulation.loop.time()

    def rot(self, host: SimHost) -> bool:
        """Change a row of a host's newest snapshot; return whether there was one."""
        if not self.snapshots[host.name].rot(self._rng):
            return False
        self.damaged_s = self.simulation.loop.time()
        return True

    @property
    def leader(self) -> str | None:
        """Host that leads, by its own opinion; None if none or several do."""
        leading = [name for name, replica in self.replicas.items() if replica.role is ReplicaRole.LEADER]
        return leading[0] if len(leading) == 1 else None

    async def _program(self, host: SimHost) -> None:
        client = await self._connect(host)
        self._boots += 1
        replica = Replica(
            self.machines[host.name](),
            log=LOG,
            replica_id=host.name,
            client=client,
            snapshots=self.snapshots[host.name],
            lake=self.lake,
            peers=SimPeers(self, host),
            beats=SimBeats(self, host) if self.beats else None,
            tails=SimTails(self, host),
            advertised=f"{host.name}:1",
            settings=self.settings,
            clock_ms=host.clock_ms,
            rng=random.Random(f"{self.simulation.seed}.{host.name}.{self._boots}"),
            run_blocking=_run_inline,
        )
        self._observe(host, replica)
        replica.on_role(lambda role: self._tell("role", host.name, role))
        self._tell("made", host.name, replica)
        await replica.start()
        self.replicas[host.name] = replica
        self.clients[host.name] = client
        await replica.wait_stopped()

    def _observe(self, host: SimHost, replica: Replica) -> None:
        """Tell the ghosts of every entry that the replica takes as committed."""
        context = replica._context
        ghosts, who = self.ghosts, host.name
        adopt, apply, confirm, entry_applied = context.adopt, context.apply, context.confirm, context.entry_applied
        place: Place | None = None
        last = b""

        def _adopt(state: ReplicatedState, position: LogPosition | None) -> None:
            nonlocal place
            adopt(state, position)
            place = ghosts.begin(state.log_id, state.prefix_hash, who)
            self._tell("adopt", who, state.prefix_hash)

        def _apply(entry: LogEntry) -> None:
            nonlocal last
            last = entry.payload
            self._tell("apply", who, entry.position)
            apply(entry)

        def _confirm(tip: StateTip, position: LogPosition, payload: bytes) -> None:
            nonlocal last
            last = payload
            ghosts.confirm(tip.leader_epoch, f"{who} {replica.incarnation[:8]}")
            confirm(tip, position, payload)

        def _applied(*arguments: Any) -> None:
            assert place is not None
            assert context.position is not None
            ghosts.apply(place, last, context.position, replica.digest, replica.revision, who)
            entry_applied(*arguments)

        context.adopt = _adopt  # type: ignore[method-assign]
        context.apply = _apply  # type: ignore[method-assign]
        context.confirm = _confirm  # type: ignore[method-assign]
        context.entry_applied = _applied  # type: ignore[method-assign]

    def _on_exit(self, host: SimHost) -> None:
        self.replicas.pop(host.name, None)
        self.clients.pop(host.name, None)
        reason = host.exits[-1]
        self._tell("exit", host.name, reason)
        if reason != "killed":
            self.stopped.append((host.name, reason))
        self.simulation.after(self._rng.uniform(0.1, 3.0), self._restart, host)

    def _restart(self, host: SimHost) -> None:
        if not host.is_up:
            host.start()

    def _tell(self, name: str, who: str, what: Any) -> None:
        for listener in self.listeners:
            listener(name, who, what)

    async def call(
        self, name: str, requests: Sequence[Request], timeout_s: float, freshness: Freshness = LINEARIZABLE
    ) -> Sequence[Answer]:
        """Send one message to a replica, as over a network; request or answer may be late or lost.

        Raises:
            UnreachableError: No answer in time: nothing is known of the outcome.

        """
        rng, loop = self._rng, asyncio.get_running_loop()
        await asyncio.sleep(rng.uniform(0.0002, 0.002))
        host, replica = self.simulation.hosts[name], self.replicas.get(name)
        if replica is None or not host.is_up:
            raise UnreachableError(name)
        answered: asyncio.Future[Sequence[Answer]] = loop.create_future()

        async def _serve() -> None:
            answers = await replica.submit(as_received(requests), freshness=freshness)
            if rng.random() > 0.02:  # Else the answer is lost.
                self.simulation.after(rng.uniform(0.0002, 0.002), _deliver, answered, list(answers))

        host.spawn(_serve())
        try:
            async with asyncio.timeout(timeout_s):
                return await answered
        except TimeoutError:
            raise UnreachableError(name) from None


async def _run_inline(work: Callable[[], Any]) -> Any:
    """Stand in for the executor: snapshots of small machines take no time worth simulating, but they do yield."""
    await asyncio.sleep(0.002)
    return work()


def _deliver(answered: asyncio.Future[Sequence[Answer]], answers: Sequence[Answer]) -> None:
    if not answered.done():
        answered.set_result(answers)

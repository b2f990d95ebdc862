"""Carries out the faults of one seed around a cluster of replicas, and ends them all for the calm after it."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence

from ledger.errors import LedgerError
from ledger.testing.hosts import SimHost
from ledger.testing.metadata import METADATA_HOST, MetadataRates, SimMetadata
from rsm_spark.core.chain import chain_path, decode_chain
from rsm_spark.log.election import election_path
from rsm_spark.testing.cluster import LOG, ReplicaCluster
from rsm_spark.testing.ledger_twin import TwinClient, recover
from rsm_spark.testing.ledger_world import LedgerWorld, TwinFaults
from rsm_spark.testing.replica_faults import EVENTS, ReplicaFaults

_IN_TRANSIT = ("claim", "recover", "create", "chain", "close", "amend")
_TWIN_ONLY = ("cut_bookies", "recover_foreign")
_BOOKIES_ONLY = ("kill_bookie", "pause_bookie", "cut_bookie")
_AMBUSH_LOOKS = 1_000
_SKEW_MS_MAX = 3_600_000


class ReplicaNemesis:
    """Troubles a cluster until told to stop.

    Args:
        cluster: The replicas.
        metadata: The metadata store.
        faults: What to do, how often.
        rng: Decides what and when.
        world: The ledger twin, if that is what the replicas write to.
        bookies: Hosts of real bookies, if the replicas write to those.

    Attributes:
        counts: Faults done, by name.
        on_event: Called with the name of each event and the host that it strikes, if it is one.

    """

    def __init__(
        self,
        cluster: ReplicaCluster,
        metadata: SimMetadata,
        faults: ReplicaFaults,
        rng: random.Random,
        *,
        world: LedgerWorld | None = None,
        bookies: Sequence[SimHost] = (),
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.on_event: Callable[[str, str], None] = lambda _name, _host: None
        self._cluster = cluster
        self._metadata = metadata
        self._faults = faults
        self._rng = rng
        self._world = world
        self._bookies = bookies
        self._is_over = False
        absent = (() if world is not None else _TWIN_ONLY) + (() if bookies else _BOOKIES_ONLY)
        self._weights = [0.0 if name in absent else getattr(faults, name) for name in EVENTS]

    async def run(self, duration_s: float) -> None:
        """Trouble for so long, then heal everything."""
        self._metadata.rates = self._faults.metadata
        if self._world is not None:
            self._world.faults = self._faults.twin
        loop = asyncio.get_running_loop()
        end = loop.time() + duration_s
        while loop.time() < end:
            await asyncio.sleep(self._rng.expovariate(1 / self._faults.interval_s))
            if any(self._weights):
                name = self._rng.choices(EVENTS, self._weights)[0]
                self._cluster.simulation.loop.note(name.encode())
                struck = getattr(self, f"_{name}")()
                if struck is not None:
                    self._count(name, struck)
        self.heal()

    def _count(self, name: str, struck: str) -> None:
        self.counts[name] += 1
        self.on_event(name, struck)

    def heal(self) -> None:
        """End all faults."""
        self._is_over = True
        cluster = self._cluster
        cluster.simulation.network.heal()
        self._metadata.rates = MetadataRates(lag_rate=0.0)
        if not self._metadata.is_available:
            self._metadata.set_available(True)
        if self._world is not None:
            self._world.faults = TwinFaults()
            for client in cluster.clients.values():
                client.is_cut_off = False
        for host in (*cluster.hosts, *self._bookies):
            host.resume()
        for bookie in self._bookies:
            _start(bookie)

    def _victim(self) -> SimHost:
        return self._rng.choice(self._cluster.hosts)

    def _leader(self) -> SimHost | None:
        name = self._cluster.leader
        return None if name is None else self._cluster.simulation.hosts[name]

    def _later(self, longest_s: float, action: Callable[[], None]) -> None:
        self._cluster.simulation.after(self._rng.uniform(0.2, 1.0) * longest_s, action)

    # ---- processes

    def _kill(self) -> str:
        host = self._victim()
        host.kill()
        return host.name

    def _kill_leader(self) -> str | None:
        host = self._leader()
        if host is not None:
            host.kill()
        return host.name if host is not None else None

    def _pause(self) -> str:
        leader = self._leader()
        return self._stop(self._victim() if leader is None or self._rng.random() < 0.3 else leader)

    def _stop(self, host: SimHost) -> str:
        host.pause()
        self._later(self._faults.pause_s, host.resume)
        return host.name

    def _ambush(self) -> str:
        asyncio.get_running_loop().create_task(self._lie_in_wait())
        return ""

    async def _lie_in_wait(self) -> None:
        for _ in range(_AMBUSH_LOOKS):
            await asyncio.sleep(0.005)
            if self._is_over:
                return
            for host in self._cluster.hosts:
                replica = self._cluster.replicas.get(host.name)
                if replica is not None and not host.is_paused and replica._context.phase in _IN_TRANSIT:
                    self._count("pause in transit", f"{self._stop(host)} ({replica._context.phase})")
                    return

    def _rot_snapshot(self) -> str | None:
        host = self._victim()
        return host.name if self._is_next_disk(host) and self._cluster.rot(host) else None

    def _is_next_disk(self, host: SimHost) -> bool:
        """Return whether a disk may be damaged: trimmed entries are promised to survive the loss of one disk only."""
        cluster, metadata = self._cluster, self._metadata.leader
        path = chain_path(LOG)
        if metadata.exists(path) is None:
            return True
        chain = decode_chain(metadata.get(path).value, log_name=LOG)
        trimmed = chain.ledgers[0].first_revision - 1 if chain.ledgers else 0
        others = [other for other in cluster.hosts if other is not host]
        return not trimmed or all(cluster.snapshots[other.name].holds_beyond(trimmed) for other in others)

    def _lose_disk(self) -> str | None:
        host = self._victim()
        if not self._is_next_disk(host):
            return None
        host.kill()
        self._cluster.wipe(host)
        return host.name

    def _skew(self) -> str:
        host = self._victim()
        host.clock_offset_ms = self._rng.randint(-_SKEW_MS_MAX, _SKEW_MS_MAX)
        return f"{host.name} by {host.clock_offset_ms} ms"

    # ---- the metadata store

    def _cut_metadata(self) -> str:
        name = self._victim().name
        network = self._cluster.simulation.network
        paths = [path for path in ((name, METADATA_HOST), (METADATA_HOST, name)) if self._rng.random() < 0.6]
        for path in paths:
            network.block(*path)
        self._later(self._faults.heal_s, lambda: self._mend(paths))
        return name

    def _mend(self, paths: list[tuple[str, str]]) -> None:
        for path in paths:
            self._cluster.simulation.network.unblock(*path)

    def _expire(self) -> str | None:
        return self._end_session(self._victim().name)

    def _expire_leader(self) -> str | None:
        return self._end_session(self._cluster.leader or "")

    def _end_session(self, name: str) -> str | None:
        client = self._cluster.clients.get(name)
        if client is None:
            return None
        self._metadata.expire(client.store.session_id)
        return name

    def _metadata_down(self) -> str | None:
        if not self._metadata.is_available:
            return None
        self._metadata.set_available(False)
        self._later(self._faults.heal_s, lambda: self._metadata.set_available(True))
        return ""

    def _metadata_move(self) -> str:
        host = self._victim()
        self._metadata.drop_connections(host.name)
        return host.name

    def _elect_wrongly(self) -> str | None:
        """Delete the first candidate's node: the next one wins, the first still believes in itself."""
        tree, root = self._metadata.leader, election_path(LOG)
        if tree.exists(root) is None or not (names := tree.names(root)):
            return None
        first = min(names, key=lambda name: name[-10:])
        self._metadata.commit(tree.delete(f"{root}/{first}", -1))
        return ""

    # ---- the ledger

    def _cut_bookies(self) -> str | None:
        name = self._victim().name
        client = self._cluster.clients.get(name)
        if client is None:
            return None
        client.is_cut_off = True
        self._later(self._faults.heal_s, lambda: setattr(client, "is_cut_off", False))
        return name

    def _recover_foreign(self) -> str | None:
        """Have somebody else, an auto-recovery, recover the ledger that is being written."""
        world, client = self._world, self._cluster.clients.get(self._victim().name)
        assert world is not None
        open_ones = [twin for twin in world.ledgers.values() if not twin.is_closed]
        if not open_ones or client is None:
            return None
        ledger_id = self._rng.choice(open_ones).ledger_id
        task = asyncio.get_running_loop().create_task(_recover(client, ledger_id))
        task.add_done_callback(lambda _done: None)
        return f"ledger {ledger_id}"

    def _kill_bookie(self) -> str | None:
        """Kill a bookie, or cut its power; one at a time, so that the data have somewhere to be."""
        if not all(bookie.is_up for bookie in self._bookies):
            return None
        bookie = self._rng.choice(self._bookies)
        bookie.kill(power=self._rng.random() < 0.4)
        return bookie.name

    def _pause_bookie(self) -> str:
        return self._stop(self._rng.choice(self._bookies))

    def _cut_bookie(self) -> str:
        network = self._cluster.simulation.network
        pair = (self._victim().name, self._rng.choice(self._bookies).name)
        for path in (pair, pair[::-1]):
            network.block(*path)
        self._later(self._faults.heal_s, lambda: self._mend([pair, pair[::-1]]))
        return f"{pair[0]} to {pair[1]}"


def _start(host: SimHost) -> None:
    if not host.is_up:
        host.start()


async def _recover(client: TwinClient, ledger_id: int) -> None:
    try:
        await recover(client, client.world.get(ledger_id))
    except LedgerError:
        return

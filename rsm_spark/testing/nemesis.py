"""Faults of a simulated cluster, drawn per seed: each run has some kinds and not others, so that each gets room."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence

from ledger.errors import LedgerError
from ledger.testing.hosts import SimHost
from ledger.testing.metadata import METADATA_HOST, MetadataRates, SimMetadata
from rsm_spark.log.election import election_path
from rsm_spark.testing.cluster import LOG, ReplicaCluster
from rsm_spark.testing.ledger_twin import TwinClient, recover
from rsm_spark.testing.ledger_world import LedgerWorld, TwinFaults

__all__ = ["Nemesis"]

_IN_TRANSIT = ("claim", "recover", "create", "chain", "close")


class Nemesis:
    """Troubles a cluster until told to stop.

    Args:
        cluster: The replicas.
        metadata: The metadata store.
        rng: Decides what and when.
        world: The ledger twin, if that is what the replicas write to.
        bookies: Hosts of real bookies, if the replicas write to those.

    Attributes:
        counts: Faults done, by name.

    """

    def __init__(
        self,
        cluster: ReplicaCluster,
        metadata: SimMetadata,
        rng: random.Random,
        *,
        world: LedgerWorld | None = None,
        bookies: Sequence[SimHost] = (),
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._cluster = cluster
        self._metadata = metadata
        self._rng = rng
        self._world = world
        self._bookies = bookies
        self._is_over = False
        kinds = [self._kill, self._kill_leader, self._pause, self._isolate_from_metadata, self._expire]
        kinds += [self._expire_leader, self._lose_disk, self._close_metadata]
        kinds += 2 * [self._pause_in_transit, self._elect_wrongly]
        if world is not None:
            kinds += [self._isolate_from_bookies, self._recover_foreign]
            self._make_ledgers_bad(world)
        if bookies:
            kinds += 3 * [self._kill_bookie] + [self._pause_bookie, self._cut_to_bookie]
        self._kinds = rng.sample(kinds, rng.randint(2, 5))
        self._rates = MetadataRates()
        if rng.random() < 0.6:
            self._rates = MetadataRates(
                lost_reply_rate=rng.choice((0.01, 0.05, 0.15)),
                lost_request_rate=rng.choice((0.0, 0.03)),
                late_rate=rng.choice((0.0, 0.3, 0.8)),
                lag_rate=rng.choice((0.0, 0.2, 0.6)),
                lag_s_max=rng.choice((0.3, 2.0)),
            )

    def _make_ledgers_bad(self, world: LedgerWorld) -> None:
        faults, rng = world.faults, self._rng
        faults.add_failure = rng.choice((0.0, 0.0, 0.01, 0.03, 0.1))
        faults.slow = rng.choice((0.0, 0.0, 0.01, 0.05))
        faults.create_failure = rng.choice((0.0, 0.0, 0.2))
        faults.read_failure = rng.choice((0.0, 0.0, 0.05))

    async def run(self, duration_s: float) -> None:
        """Trouble for so long, then heal everything."""
        self._metadata.rates = self._rates
        loop = asyncio.get_running_loop()
        end = loop.time() + duration_s
        while loop.time() < end:
            await asyncio.sleep(self._rng.expovariate(0.8))
            self._rng.choice(self._kinds)()
        self.heal()

    def heal(self) -> None:
        """End all faults."""
        self._is_over = True
        cluster = self._cluster
        cluster.simulation.network.heal()
        self._metadata.rates = MetadataRates()
        if not self._metadata.is_available:
            self._metadata.set_available(True)
        if self._world is not None:
            self._world.faults = TwinFaults()
            for client in cluster.clients.values():
                client.is_cut_off = False
        for host in cluster.hosts:
            host.resume()
        for bookie in self._bookies:
            bookie.resume()
            _start(bookie)

    def _victim(self) -> SimHost:
        return self._rng.choice(self._cluster.hosts)

    def _later(self, action: Callable[[], None]) -> None:
        self._cluster.simulation.after(self._rng.uniform(0.5, 12.0), action)

    def _kill(self) -> None:
        self.counts["kill"] += 1
        self._victim().kill()

    def _kill_leader(self) -> None:
        leader = self._cluster.leader
        if leader is not None:
            self.counts["kill leader"] += 1
            self._cluster.simulation.hosts[leader].kill()

    def _pause(self) -> None:
        leader = self._cluster.leader
        host = self._victim() if leader is None or self._rng.random() < 0.3 else self._cluster.simulation.hosts[leader]
        self.counts["pause"] += 1
        host.pause()
        self._later(host.resume)

    def _pause_in_transit(self) -> None:
        """Pause the next replica that is found between two steps of a take-over or a roll."""
        asyncio.get_running_loop().create_task(self._ambush())

    async def _ambush(self) -> None:
        for _ in range(1000):
            await asyncio.sleep(0.005)
            if self._is_over:
                return
            for host in self._cluster.hosts:
                replica = self._cluster.replicas.get(host.name)
                if replica is not None and not host.is_paused and replica._context.phase in _IN_TRANSIT:
                    self.counts["pause in transit"] += 1
                    host.pause()
                    self._later(host.resume)
                    return

    def _isolate_from_metadata(self) -> None:
        self.counts["partition from metadata"] += 1
        name = self._victim().name
        network = self._cluster.simulation.network
        if self._rng.random() < 0.5:
            network.block(name, METADATA_HOST)
        if self._rng.random() < 0.7:
            network.block(METADATA_HOST, name)
        self._later(network.heal)

    def _isolate_from_bookies(self) -> None:
        client = self._client(self._victim())
        if client is not None:
            self.counts["partition from bookies"] += 1
            client.is_cut_off = True
            self._later(lambda: setattr(client, "is_cut_off", False))

    def _client(self, host: SimHost) -> TwinClient | None:
        return self._cluster.clients.get(host.name)

    def _expire(self) -> None:
        client = self._client(self._victim())
        if client is not None:
            self.counts["session expiry"] += 1
            self._metadata.expire(client.store.session_id)

    def _expire_leader(self) -> None:
        client = self._cluster.clients.get(self._cluster.leader or "")
        if client is not None:
            self.counts["leader's session expiry"] += 1
            self._metadata.expire(client.store.session_id)

    def _recover_foreign(self) -> None:
        """Have somebody else, an auto-recovery, recover the ledger that is being written."""
        world, client = self._world, self._client(self._victim())
        assert world is not None
        open_ones = [twin for twin in world.ledgers.values() if not twin.is_closed]
        if open_ones and client is not None:
            self.counts["foreign recovery"] += 1
            task = asyncio.get_running_loop().create_task(_recover(client, self._rng.choice(open_ones).ledger_id))
            task.add_done_callback(lambda _done: None)

    def _lose_disk(self) -> None:
        self.counts["disk lost"] += 1
        host = self._victim()
        host.kill()
        self._cluster.wipe(host)

    def _elect_wrongly(self) -> None:
        """Delete the first candidate's node: the next one wins, the first still believes in itself."""
        tree, root = self._metadata.leader, election_path(LOG)
        if tree.exists(root) is not None and (names := tree.names(root)):
            self.counts["wrong election"] += 1
            first = min(names, key=lambda name: name[-10:])
            self._metadata.commit(tree.delete(f"{root}/{first}", -1))

    def _kill_bookie(self) -> None:
        """Kill a bookie, or cut its power; one at a time, so that the data have somewhere to be."""
        if all(bookie.is_up for bookie in self._bookies):
            self.counts["bookie killed"] += 1
            bookie = self._rng.choice(self._bookies)
            bookie.kill(power=self._rng.random() < 0.4)

    def _pause_bookie(self) -> None:
        self.counts["bookie paused"] += 1
        bookie = self._rng.choice(self._bookies)
        bookie.pause()
        self._later(bookie.resume)

    def _cut_to_bookie(self) -> None:
        self.counts["path to bookie cut"] += 1
        network = self._cluster.simulation.network
        network.partition(self._victim().name, self._rng.choice(self._bookies).name)
        self._later(network.heal)

    def _close_metadata(self) -> None:
        self.counts["metadata store away"] += 1
        self._metadata.set_available(False)
        self._later(lambda: self._metadata.set_available(True))


def _start(host: SimHost) -> None:
    if not host.is_up:
        host.start()


async def _recover(client: TwinClient, ledger_id: int) -> None:
    try:
        await recover(client, client.world.get(ledger_id))
    except LedgerError:
        return

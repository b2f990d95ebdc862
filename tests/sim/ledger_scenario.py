"""One seed of the ledger simulation: writers, recoverers and readers on real bookies, trouble, calm, judgement."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from ledger.bookie.server import BookieServer
from ledger.client.client import LedgerClient
from ledger.client.write_handle import WriteHandle
from ledger.errors import LedgerError
from ledger.testing import Faults, Nemesis, SimHost, Simulation, SimulationError
from ledger.testing.cluster import SimCluster
from tests.sim.ledger_history import BrokenInvariantError, History, LedgerHistory
from tests.sim.ledger_witness import witnessed

__all__ = ["Outcome", "run_seed"]

_TROUBLE_S = 12.0
_CALM_S_MAX = 60.0
_QUORUMS = ((3, 3, 2), (3, 3, 2), (3, 2, 2), (2, 2, 2), (3, 3, 3))
_ACKED_MIN = 10


@dataclass
class Outcome:
    """What one seed came to.

    Attributes:
        broken: The invariant that did not hold, with its name in front; None if all did.
        counts: Acknowledged entries, reads, closes, and events by name.

    """

    seed: int
    broken: str | None = None
    signature: str = ""
    steps: int = 0
    simulated_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def is_worth_counting(self) -> bool:
        """Whether enough was done, and enough went wrong, for silence to mean anything."""
        names = ("exits", "cut", "pause", "slow_disk", "reset", "expire", "kill_other", "rot")
        faults = sum(self.counts[name] for name in names)
        return self.counts["acked"] >= _ACKED_MIN and faults > 0


def run_seed(
    seed: int, *, patch_server: Callable[[BookieServer], None] | None = None, has_faults: bool = True
) -> Outcome:
    """Run one seed."""
    simulation = Simulation(seed)
    scenario = _Scenario(simulation, patch_server, has_faults=has_faults)
    outcome = Outcome(seed)
    try:
        with witnessed(scenario.history):
            simulation.run(scenario.main(), limit_s=_TROUBLE_S + 4 * _CALM_S_MAX)
    except (BrokenInvariantError, SimulationError) as error:
        outcome.broken = str(error) or type(error).__name__
    outcome.signature = simulation.signature
    outcome.steps = simulation.loop.step_count
    outcome.simulated_s = simulation.loop.time()
    history = scenario.history
    outcome.counts = scenario.nemesis.counts + Counter(
        acked=history.acked_count, reads=history.read_count, closes=history.close_count, ledgers=len(history.ledgers)
    )
    return outcome


class _Scenario:
    def __init__(
        self, simulation: Simulation, patch_server: Callable[[BookieServer], None] | None, *, has_faults: bool
    ) -> None:
        self.simulation = simulation
        self.history = History()
        self.cluster = SimCluster(simulation, patch_server=patch_server)
        self._rng = simulation.random("scenario")
        self._is_over = False
        self.clients = [simulation.host(name, self._work) for name in ("w0", "w1", "r0", "r1", "t0")]
        faults = Faults.draw(self._rng) if has_faults else Faults()
        self.nemesis = Nemesis(
            simulation, simulation.metadata, faults, servers=self.cluster.bookies, others=self.clients
        )

    async def main(self) -> None:
        self.cluster.start()
        loop = asyncio.get_running_loop()
        setup = self.simulation.host("setup")
        await setup.spawn(self._set_up(setup))
        for host in self.clients:
            host.start()
        trouble = loop.create_task(self.nemesis.run())
        end_s = loop.time() + _TROUBLE_S
        while loop.time() < end_s:
            await asyncio.sleep(0.25)
            self.history.check()
        self._is_over = True
        self.nemesis.calm()
        trouble.cancel()
        await self._calm()
        await self._judge()

    async def _set_up(self, host: SimHost) -> None:
        client = await self.cluster.connect(host)
        await self.cluster.wait_until_writable(client)
        await client.close()

    async def _work(self, host: SimHost) -> None:
        """Write, recover or read, as the host's name says, until calm."""
        work = {"w": self._write, "r": self._recover, "t": self._tail}[host.name[0]]
        rng = self.simulation.random(f"work of {host.name} {len(host.exits)}")
        client: LedgerClient | None = None
        while not self._is_over:
            try:
                client = client or await self.cluster.connect(host)
                await work(client, rng, host.name)
            except LedgerError:
                await asyncio.sleep(rng.uniform(0.05, 0.5))

    # --- work

    async def _write(self, client: LedgerClient, rng: random.Random, who: str) -> None:
        """Write one ledger, and close it whatever happens."""
        ensemble_size, write_quorum, ack_quorum = rng.choice(_QUORUMS)
        handle = await client.create(ensemble_size=ensemble_size, write_quorum=write_quorum, ack_quorum=ack_quorum)
        ledger = self.history.created(handle.ledger_id, ack_quorum)
        pause_s = rng.choice((0.0, 0.005, 0.05, 0.3, 2.0))
        try:
            for _ in range(rng.choice((3, 20, 80))):
                self._append(handle, ledger, rng, who)
                if self._is_over or handle.failure is not None:
                    break
                await asyncio.sleep(rng.expovariate(1 / pause_s) if pause_s else 0.0)
                if rng.random() < 0.1:
                    await handle.write_lac()
        except LedgerError:
            pass  # The handle is frozen; closing tells the end.
        for _ in range(30):
            try:
                self.history.closed(ledger, await handle.close(), who)
            except LedgerError:
                if self._is_over:
                    return
                await asyncio.sleep(rng.uniform(0.1, 0.5))
            else:
                return

    def _append(self, handle: WriteHandle, ledger: LedgerHistory, rng: random.Random, who: str) -> None:
        size = rng.choice((0, 10, 10, 300, 3000))
        payload = f"{who} {ledger.ledger_id} {len(ledger.payloads)} ".encode() + rng.randbytes(size)
        ledger.payloads.append(payload)

        def on_done(future: asyncio.Future[int]) -> None:
            if not future.cancelled() and future.exception() is None:
                self.history.acked(ledger, future.result())

        handle.append(payload).add_done_callback(on_done)

    async def _recover(self, client: LedgerClient, rng: random.Random, who: str) -> None:
        """Recover a ledger that somebody may be writing."""
        await asyncio.sleep(rng.expovariate(0.7))
        ledger = self._pick(rng)
        if ledger is not None and not self._is_over:
            handle = await client.open(ledger.ledger_id)
            self.history.closed(ledger, handle.last_add_confirmed, who)
            await handle.close()

    async def _tail(self, client: LedgerClient, rng: random.Random, who: str) -> None:
        """Follow one of the newest ledgers to its end."""
        await asyncio.sleep(rng.expovariate(3.0))
        ledger = self._pick(rng)
        if ledger is None or self._is_over:
            return
        handle = await client.open_no_recovery(ledger.ledger_id)
        expected, seen = 0, -1
        stop_s = asyncio.get_running_loop().time() + rng.uniform(0.5, 5.0)
        async for batch in handle.tail():
            self.history.exposed(ledger, seen, handle.last_add_confirmed, who)
            seen = handle.last_add_confirmed
            for entry in batch:
                if entry.entry_id != expected:
                    self.history.fail("no-gap", f"ledger {ledger.ledger_id}: {entry.entry_id} where {expected} was due")
                expected += 1
                self.history.read(ledger, entry.entry_id, entry.payload, who)
            if self._is_over or asyncio.get_running_loop().time() > stop_s:
                break
        await handle.close()

    def _pick(self, rng: random.Random) -> LedgerHistory | None:
        newest = [*self.history.ledgers.values()][-4:]
        return rng.choice(newest) if newest else None

    # --- calm and judgement

    async def _calm(self) -> None:
        """Let all servers come back, then cut the power once more: what was acknowledged was durable."""
        await self._until(self._all_serve, "bookies serve")
        for host in self.cluster.bookies:
            host.kill(power=True)
        await self._until(self._all_serve, "bookies serve after the last power loss")

    def _all_serve(self) -> bool:
        return len(self.cluster.servers) == len(self.cluster.bookies)

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline_s = self.simulation.loop.time() + _CALM_S_MAX
        while not holds():
            await asyncio.sleep(0.1)
            if self.simulation.loop.time() > deadline_s:
                exits = {host.name: host.exits[-1:] for host in self.cluster.bookies if not host.is_up}
                self.history.fail("convergence", f"{what}: not within {_CALM_S_MAX:.0f} s of calm {exits}")
            self.history.check()

    async def _judge(self) -> None:
        host = self.simulation.host("judge")
        judged = host.spawn(self._judge_all(host))
        await self._until(judged.done, "all ledgers are closed and read")
        judged.result()
        for each in self.simulation.hosts.values():
            for reason in each.exits:
                if isinstance(reason, BaseException) and not isinstance(reason, OSError | LedgerError):
                    self.history.fail("no-crash", f"{each.name}: {reason!r}")
        self.history.check()

    async def _judge_all(self, host: SimHost) -> None:
        client = await self.cluster.connect(host)
        for ledger in list(self.history.ledgers.values()):
            while True:
                try:
                    handle = await client.open(ledger.ledger_id)
                    break
                except LedgerError:
                    await asyncio.sleep(0.2)
            end = handle.last_add_confirmed
            self.history.closed(ledger, end, host.name)
            try:
                entries = await handle.read(0, end) if end >= 0 else []
            except LedgerError as error:
                self.history.fail("acked-is-durable", f"ledger {ledger.ledger_id}, closed at {end}: {error!r}")
                return
            for expected, entry in enumerate(entries):
                self.history.read(ledger, entry.entry_id, entry.payload, host.name)
                if entry.entry_id != expected:
                    self.history.fail("no-gap", f"ledger {ledger.ledger_id}: {entry.entry_id} for {expected}")
            await self._count_copies(ledger, end, handle.metadata.quorum.ack_quorum)

    async def _count_copies(self, ledger: LedgerHistory, end: int, ack_quorum: int) -> None:
        """Look into the bookies: an entry of a closed ledger lies on an ack quorum of them."""
        copies: Counter[int] = Counter()
        for server in self.cluster.servers.values():
            await server.store.load([ledger.ledger_id])
            copies.update(await server.store.list_entries(ledger.ledger_id))
        wanted = ack_quorum - (self.nemesis.counts["rot"] > 0)
        for entry_id in range(end + 1):
            if copies[entry_id] < wanted:
                self.history.fail(
                    "enough-copies", f"ledger {ledger.ledger_id}: {copies[entry_id]} of {wanted} of entry {entry_id}"
                )


def _print_signatures() -> None:
    """Print the signature of each seed named on the command line: for the replay gate, which runs this twice."""
    for seed in map(int, sys.argv[1:]):
        print(seed, run_seed(seed).signature)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    _print_signatures()

"""A writer idles while its ledger is closed and all its bookies are replaced by new ones at the same addresses.

BookKeeper's #4812: the new bookies know nothing of the fence, so an add succeeded, and the entry was lost.
"""

from __future__ import annotations

import asyncio

import pytest

from ledger.client.write_handle import WriteHandle
from ledger.errors import LedgerError
from ledger.replication.app import AutoRecovery
from ledger.replication.settings import ReplicationSettings
from ledger.testing import SimHost, Simulation
from ledger.testing.cluster import SIM_CLIENT, SimCluster
from ledger.zookeeper.ledgers import LedgerStore

_REPLICATION = ReplicationSettings(
    lost_bookie_delay_s=1, open_ledger_grace_s=1.0, watch_s=0.5, poll_s=0.5, check_s=0.0, retry_s_max=2.0
)


class _Game:
    def __init__(self, seed: int, bookie_count: int) -> None:
        self.simulation = Simulation(seed)
        self.cluster = SimCluster(self.simulation, bookie_count=bookie_count)
        self.writer = self.simulation.host("w")

    async def write(self) -> WriteHandle:
        client = await self.cluster.connect(self.writer)
        await self.cluster.wait_until_writable(client)
        handle = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        assert await handle.append(b"zero") == 0
        return handle

    async def append(self, handle: WriteHandle) -> int:
        return await handle.append(b"one")

    async def recover(self, host: SimHost, ledger_id: int) -> int:
        return (await (await self.cluster.connect(host)).open(ledger_id)).last_add_confirmed

    async def replace(self, bookie_id: str) -> None:
        """Start a new bookie where another one was, as an operator does who deletes its cookie and its disks."""
        host = self.simulation.hosts[bookie_id.partition(":")[0]]
        host.kill()
        host.disk.lose_everything()
        self.cluster.take_cookie(host)
        while host.name not in self.cluster.servers:
            if not host.is_up:
                host.start()
            await asyncio.sleep(0.1)

    async def heal(self, host: SimHost) -> None:
        """Auto-recovery: it moves the ledger to other bookies when its own are gone."""
        store = await self.simulation.metadata.connect(session_timeout_ms=4_000)
        rng = self.simulation.random(host.name)
        ledgers = LedgerStore(store, self.cluster.root)
        await AutoRecovery(ledgers, "a0", rng, _REPLICATION, SIM_CLIENT, wall_ms=host.clock_ms).run()

    async def wait_until_moved(self, ledger_id: int, old: tuple[str, ...]) -> None:
        host = self.simulation.host("operator")
        client = await host.spawn(self.cluster.connect(host))
        while True:
            metadata = await host.spawn(client.metadata(ledger_id, sync=True))
            if metadata.is_closed and not any(b in segment.bookies for segment in metadata.segments for b in old):
                return
            await asyncio.sleep(0.5)


@pytest.mark.parametrize("seed", range(3))
def test_an_idle_writer_gets_nothing_acknowledged_by_bookies_that_replaced_its_own(seed: int) -> None:
    game = _Game(seed, 3)

    async def main() -> None:
        game.cluster.start()
        handle = await game.writer.spawn(game.write())
        recoverer = game.simulation.host("r")
        assert await recoverer.spawn(game.recover(recoverer, handle.ledger_id)) == 0
        for bookie_id in handle.metadata.segments[-1].bookies:
            await game.replace(bookie_id)
        with pytest.raises(LedgerError):
            await game.writer.spawn(game.append(handle))

    game.simulation.run(main(), limit_s=200)


@pytest.mark.parametrize("seed", range(2))
def test_nor_when_the_ledger_has_moved_away_from_them(seed: int) -> None:
    game = _Game(seed, 6)

    async def main() -> None:
        game.cluster.start()
        handle = await game.writer.spawn(game.write())
        recoverer = game.simulation.host("r")
        assert await recoverer.spawn(game.recover(recoverer, handle.ledger_id)) == 0
        old = handle.metadata.segments[-1].bookies
        healer = game.simulation.host("a0", game.heal)
        healer.start()
        for bookie_id in old:
            game.simulation.hosts[bookie_id.partition(":")[0]].kill()
            await asyncio.sleep(15)
        await game.wait_until_moved(handle.ledger_id, old)
        for bookie_id in old:
            await game.replace(bookie_id)
        with pytest.raises(LedgerError):
            await game.writer.spawn(game.append(handle))

    game.simulation.run(main(), limit_s=400)

"""A bookie that lost data has it again from its peers and leaves limbo, by itself (safety 24, 25)."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from msgspec.structs import replace

from ledger.core.metadata import LedgerMetadata
from ledger.errors import FencedError, LedgerError
from ledger.replication.self_repair import SelfRepair
from ledger.storage.limbo import Limbo, load_limbo
from ledger.testing import SimDisk, SimHost
from tests.sim.recovery_world import SETTINGS, RecoveryWorld, payload

_SETTINGS = replace(SETTINGS, retry_s_max=5.0, self_repair_s=5.0)
_LEDGER_FOLDER = "/ledgers/current"


def world_of(seed: int, **more) -> RecoveryWorld:
    return RecoveryWorld(seed, bookie_count=3, self_repair=_SETTINGS, **more)


def limbo_of(host: SimHost) -> Limbo:
    return load_limbo(host.disk, _LEDGER_FOLDER)


async def new_disk(world: RecoveryWorld, host: SimHost) -> None:
    """Give a dead bookie an empty disk, and take its cookie away, as an operator does who knows."""
    host.disk = SimDisk(world.simulation.random(f"new disk {host.name}"), note=world.simulation.loop.note)
    world.cluster.take_cookie(host)
    await asyncio.sleep(1.5)  # until every metadata server knows


async def out_of_limbo(world: RecoveryWorld, host: SimHost, limit_s: float = 120.0) -> None:
    deadline = asyncio.get_running_loop().time() + limit_s
    while host.name not in world.cluster.servers or world.cluster.servers[host.name].store.limbo.ledger_id_max >= 0:
        assert asyncio.get_running_loop().time() < deadline, "still in limbo"
        await asyncio.sleep(0.5)
    assert limbo_of(host).ledger_id_max < 0


async def in_limbo(world: RecoveryWorld, host: SimHost) -> None:
    """Wait until the bookie serves, in limbo; with little to repair it may have left it already."""
    while host.name not in world.cluster.servers:
        await asyncio.sleep(0.1)
    assert world.cluster.servers[host.name].store.limbo.is_fencing(0)


def run(world: RecoveryWorld, play) -> None:
    world.simulation.run(play(), limit_s=600)


def rot_journal(host: SimHost) -> None:
    """Damage the first batch of a journal file, which later ones show to have been synced."""
    (name,) = [name for name in host.disk.files() if name.endswith(".j")]
    host.disk.rot(name, byte_offset=150)


@pytest.mark.parametrize("seed", range(3))
def test_a_bookie_with_a_rotten_journal_is_whole_again_and_leaves_limbo(seed) -> None:
    world = world_of(seed)

    async def play() -> None:
        await world.start()
        ids = [await world.write(8) for _ in range(4)]
        host = world.simulation.hosts["b1"]
        host.kill()
        rot_journal(host)
        host.start()
        await in_limbo(world, host)
        await out_of_limbo(world, host)
        await world.wait_until_whole(ids, 5)
        for other in ("b0", "b2"):
            world.simulation.hosts[other].kill()
        assert [len(await world.read_all(ledger_id)) for ledger_id in ids] == [8, 8, 8, 8]

    run(world, play)


@pytest.mark.parametrize("seed", range(3))
def test_new_disks_under_the_same_id_are_filled_from_the_peers(seed) -> None:
    world = world_of(seed)

    async def play() -> None:
        await world.start()
        closed = [await world.write(10), await world.write(10, write_quorum=2)]
        still_open = await world.write(10, close=False)
        host = world.simulation.hosts["b2"]
        host.kill(power=True)
        await new_disk(world, host)
        host.start()
        await in_limbo(world, host)
        await out_of_limbo(world, host)
        metadata: LedgerMetadata = await world.metadata(still_open)
        assert metadata.is_closed
        assert metadata.last_entry_id == 9
        await world.wait_until_whole([*closed, still_open], 5)
        assert await world.read_all(still_open) == [payload(i) for i in range(10)]

    run(world, play)


def test_a_bookie_killed_again_and_again_while_it_repairs_itself_gets_there_all_the_same() -> None:
    world = world_of(5)

    async def play() -> None:
        await world.start()
        ids = [await world.write(60, size=500) for _ in range(3)]
        host = world.simulation.hosts["b2"]
        host.kill(power=True)
        await new_disk(world, host)
        for delay_s in (0.5, 1.0, 1.02, 1.05, 1.1, 1.5, 2.0, 2.5):
            host.start()
            await asyncio.sleep(delay_s)
            if host.is_up:
                host.kill(power=delay_s > 1.04)
        host.start()
        await out_of_limbo(world, host)
        await world.wait_until_whole(ids, 5)

    run(world, play)


def test_an_entry_that_no_peer_gives_keeps_the_bookie_in_limbo_and_is_named() -> None:
    world = world_of(6)
    repairs: list[SelfRepair] = []

    async def play() -> None:
        await world.start()
        ledger_id = await world.write(6)
        host = world.simulation.hosts["b0"]
        host.kill(power=True)
        await new_disk(world, host)
        for other in world.ids("b1", "b2"):
            world.spoil(other, ledger_id, [3])
        host.start()
        await in_limbo(world, host)
        await asyncio.sleep(60)
        assert limbo_of(host).reasons
        assert repairs[-1].progress.is_in_limbo
        assert any(f"entry 3 of ledger {ledger_id}" in problem for problem in repairs[-1].progress.problems)
        world.simulation.hosts["b1"].kill()
        world.simulation.hosts["b1"].start()  # Its copy was good all along.
        await out_of_limbo(world, host)
        assert repairs[-1].progress.problems == []

    with pytest.MonkeyPatch.context() as patch:
        keep = SelfRepair.__init__

        def init(self, *args, **more) -> None:
            keep(self, *args, **more)
            repairs.append(self)

        patch.setattr(SelfRepair, "__init__", init)
        run(world, play)


def test_a_writer_recovered_meanwhile_stays_refused_after_limbo() -> None:
    """The lost bytes may have been the fence: this bookie and one that was never fenced would be an ack quorum."""
    world = world_of(7)

    async def play() -> None:
        await world.start()
        network, old = world.simulation.network, world.simulation.host("old")

        async def create():
            client = await world.cluster.connect(old)
            await world.cluster.wait_until_writable(client)
            handle = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            await handle.append(payload(0))
            return handle

        handle = await old.spawn(create())
        await asyncio.sleep(1)
        for name in ("b0", "b1", "b2", "metadata"):
            network.partition("old", name)
        network.partition("b2", "client")  # It is not fenced.
        assert len(await world.read_all(handle.ledger_id)) == 1
        host = world.simulation.hosts["b0"]
        host.kill(power=True)
        await new_disk(world, host)
        host.start()
        network.unblock("b2", "client")
        network.unblock("client", "b2")
        await in_limbo(world, host)
        await out_of_limbo(world, host)
        host.kill()
        host.start()  # From what the disk says alone.
        await out_of_limbo(world, host)
        for name in ("b0", "b2"):
            network.unblock("old", name)
            network.unblock(name, "old")

        async def append() -> None:
            await handle.append(payload(1))

        with pytest.raises((FencedError, LedgerError)):
            await asyncio.wait_for(old.spawn(append()), 60)

    run(world, play)


def test_ledgers_younger_than_the_loss_are_written_on_while_the_bookie_repairs_itself() -> None:
    world = world_of(8)

    async def play() -> None:
        await world.start()
        await world.write(5)
        host = world.simulation.hosts["b0"]
        host.kill(power=True)
        await new_disk(world, host)
        host.start()
        await in_limbo(world, host)
        await world.on_client(world.cluster.wait_until_writable(world.client))
        young = await world.write(5, close=False)
        assert "b0:3181" in (await world.metadata(young)).segments[0].bookies
        await out_of_limbo(world, host)
        assert not (await world.metadata(young)).is_closed

    run(world, play)


def test_a_block_that_rots_while_the_bookie_serves_is_replaced_from_the_peers() -> None:
    world = world_of(9)

    async def play() -> None:
        await world.start()
        ids = [await world.write(20, size=3_000) for _ in range(4)]  # more than a journal file
        host = world.simulation.hosts["b1"]
        store = world.cluster.servers["b1"].store
        repaired = []
        forget = store.forget_damage

        async def forget_and_note(damage) -> None:
            repaired.append(damage.row.ledger_id)
            await forget(damage)

        store.forget_damage = forget_and_note
        await asyncio.sleep(2)
        segments = [name for name in host.disk.files() if name.endswith(".seg")]
        assert segments
        for name in segments:
            host.disk.rot(name, byte_offset=2_000)
        for other in ("b0", "b2"):
            world.simulation.network.partition("client", other)
        for ledger_id in ids:  # Somebody reads them, and is told EIO.
            with contextlib.suppress(LedgerError):
                await world.read_all(ledger_id)
        world.simulation.network.heal()
        await asyncio.sleep(20)
        assert repaired
        assert store.damages.found() == []
        for other in ("b0", "b2"):
            world.simulation.hosts[other].kill()
        assert [len(await world.read_all(ledger_id)) for ledger_id in ids] == [20, 20, 20, 20]

    run(world, play)


def test_a_bookie_of_an_id_never_used_before_serves_open_ledgers_at_once() -> None:
    world = RecoveryWorld(10, bookie_count=4)

    async def play() -> None:
        late = world.cluster.bookies.pop()
        await world.start()

        async def begin():
            handle = await world.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            await handle.append(payload(0))
            return handle

        handle = await world.on_client(begin())
        late.start()
        world.cluster.bookies.append(late)
        await world.on_client(world.cluster.wait_until_writable(world.client))
        world.bookie(handle.metadata.segments[0].bookies[0]).kill()

        async def go_on() -> None:
            for entry_id in range(1, 50):
                await handle.append(payload(entry_id))
                await asyncio.sleep(0.1)
            await handle.close()

        await world.on_client(go_on())
        metadata = await world.metadata(handle.ledger_id)
        assert f"{late.name}:3181" in metadata.segments[-1].bookies
        assert metadata.last_entry_id == 49

    run(world, play)

"""Bookies that are emptied while they serve, on the simulated network: no entry lacks a copy at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import pytest

from ledger.replication.core.repair_plan import Replace
from ledger.replication.decommission import BookieDecommission, LedgersLeft
from ledger.replication.marks import MarkStore
from ledger.replication.repair import LedgerRepair
from ledger.testing import SimDisk
from tests.sim.recovery_world import RecoveryWorld, payload

_LEDGERS = 4


def run(world: RecoveryWorld, play) -> None:
    world.simulation.run(play(), limit_s=900)


async def marks_of(world: RecoveryWorld) -> MarkStore:
    return MarkStore(world.client.ledgers.store, "/ledgers", "")


def drain(world: RecoveryWorld, bookie_id: str) -> BookieDecommission:
    return BookieDecommission(world.client.ledgers, bookie_id, wall_ms=world.client_host.clock_ms, is_drain=True)


async def drained(world: RecoveryWorld, bookie_id: str, tell: Callable[[LedgersLeft], None]) -> LedgersLeft:
    async def work() -> LedgersLeft:
        order = drain(world, bookie_id)
        return await order.wait(await order.begin(), tell)

    left: LedgersLeft = await world.on_client(work())
    return left


async def _watch_copies(world: RecoveryWorld, ids: list[int]) -> None:
    """Look again and again whether a bookie lacks an entry that it should hold, until cancelled."""
    with suppress(asyncio.CancelledError):
        while True:
            for ledger_id in ids:
                assert await world.lacking(ledger_id) == {}, ledger_id
            await asyncio.sleep(0.01)


async def play_drain(world: RecoveryWorld, *, is_watched: bool = True) -> None:
    """Drain a bookie, then destroy it: nothing may be lost, nor lack a copy."""
    await world.start()
    ids = [await world.write(20) for _ in range(_LEDGERS)]
    world.start_recovery()
    await asyncio.sleep(1)
    left_counts: list[int] = []
    watching = asyncio.get_running_loop().create_task(_watch_copies(world, ids if is_watched else []))
    left = await drained(world, "b1:3181", lambda left: left_counts.append(len(left.ledger_ids)))
    assert left == LedgersLeft("b1:3181", ())
    assert left_counts[-1] == 0
    watching.cancel()
    assert await asyncio.gather(watching, return_exceptions=True) == [None]
    for ledger_id in ids:
        assert await world.lacking(ledger_id) == {}
        segments = (await world.metadata(ledger_id)).segments
        assert not any("b1:3181" in segment.bookies for segment in segments)
        assert all(len(set(segment.bookies)) == 3 for segment in segments)
    assert world.simulation.hosts["b1"].is_up
    world.simulation.hosts["b1"].kill()
    for ledger_id in ids:
        assert await world.read_all(ledger_id) == [payload(i) for i in range(20)]
    await asyncio.sleep(5)

    async def end() -> bool:
        return await BookieDecommission(world.client.ledgers, "b1:3181", wall_ms=world.client_host.clock_ms).end()

    assert await world.on_client(end())
    assert await world.on_client((await marks_of(world)).draining()) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_drained_bookie_is_empty_while_it_serves(seed: int) -> None:
    world = RecoveryWorld(seed)
    run(world, lambda: play_drain(world))


def test_a_place_that_is_given_away_before_it_is_copied_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: since the bookie serves, its places are given away without a copy."""
    world = RecoveryWorld(1)

    async def replace(self: LedgerRepair, replace: Replace, metadata, lost):
        spare = await self._spare(replace, metadata, lost)
        return metadata if spare is None else await self._swap(replace, spare) or metadata

    monkeypatch.setattr(LedgerRepair, "_replace", replace)
    with pytest.raises(AssertionError):
        run(world, lambda: play_drain(world))


def test_a_worker_that_takes_a_drained_bookie_for_one_that_is_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: a copy stops because the bookie that it replaces serves."""
    world = RecoveryWorld(1)

    async def is_back(self: LedgerRepair, bookie_id: str, *, now_and_then: bool = False) -> bool:
        return bookie_id in await self._registered()

    async def play() -> None:
        async with asyncio.timeout(20):
            await play_drain(world, is_watched=False)

    monkeypatch.setattr(LedgerRepair, "_is_back", is_back)
    with pytest.raises(TimeoutError):
        run(world, play)


def test_a_writer_goes_on_without_the_bookie_and_keeps_its_ledger() -> None:
    world = RecoveryWorld(2, bookie_count=5)

    async def play() -> None:
        await world.start()
        world.start_recovery()
        written: list[int] = []

        async def write() -> int:
            handle = await world.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            written.append(handle.ledger_id)
            for entry_id in range(300):
                await handle.append(payload(entry_id))
                await asyncio.sleep(0.1)
            await handle.close()
            return handle.ledger_id

        writing = world.client_host.spawn(write())
        await asyncio.sleep(2)
        gone = (await world.metadata(written[0])).segments[0].bookies[1]
        assert await drained(world, gone, lambda _: None) == LedgersLeft(gone, ())
        assert not writing.done()
        ledger_id = await writing  # Nobody has fenced it.
        metadata = await world.metadata(ledger_id)
        assert not any(gone in segment.bookies for segment in metadata.segments)
        assert await world.lacking(ledger_id) == {}
        assert await world.read_all(ledger_id) == [payload(i) for i in range(300)]

    run(world, play)


def test_an_order_that_is_taken_back_leaves_everything_where_it_is() -> None:
    world = RecoveryWorld(3)

    async def play() -> None:
        await world.start()
        ids = [await world.write(20) for _ in range(_LEDGERS)]
        named = {ledger_id: await world.metadata(ledger_id) for ledger_id in ids}
        await world.on_client(drain(world, "b1:3181").begin())  # There is no recovery yet.

        async def undo() -> bool:
            return await (await marks_of(world)).set_draining("b1:3181", is_draining=False)

        assert await world.on_client(undo())
        world.start_recovery()
        await asyncio.sleep(30)
        assert {ledger_id: await world.metadata(ledger_id) for ledger_id in ids} == named
        assert await world.marked() == []
        assert "b1:3181" in await world.on_client(world.client.ledgers.writable_bookies())

    run(world, play)


def test_the_order_stands_when_the_bookie_and_the_auditor_start_again() -> None:
    world = RecoveryWorld(4)

    async def play() -> None:
        await world.start()
        ids = [await world.write(20) for _ in range(_LEDGERS)]

        async def order() -> None:
            marks = await marks_of(world)
            await marks.ensure_layout()
            await marks.set_draining("b1:3181", is_draining=True)

        await world.on_client(order())  # Whoever gave it died before anything was marked.
        bookie = world.simulation.hosts["b1"]
        bookie.kill()
        await asyncio.sleep(1)
        bookie.start()
        world.start_recovery()
        await world.wait_until_whole(ids, 120)
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + 120
        for ledger_id in ids:
            while any("b1:3181" in segment.bookies for segment in (await world.metadata(ledger_id)).segments):
                assert loop.time() < give_up_s
                await asyncio.sleep(1)
        assert "b1:3181" in await world.on_client(world.client.ledgers.read_only_bookies())
        bookie.disk = SimDisk(world.simulation.random("new disk"), note=world.simulation.loop.note)
        for ledger_id in ids:
            assert await world.read_all(ledger_id) == [payload(i) for i in range(20)]

    run(world, play)

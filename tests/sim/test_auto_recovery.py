"""Auto-recovery on the simulated network: every ledger is whole again, and nothing unsettled is copied."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from ledger.testing import METADATA_HOST
from tests.sim.recovery_world import SETTINGS, RecoveryWorld, payload


def run(world: RecoveryWorld, play) -> None:
    world.simulation.run(play(), limit_s=600)


@pytest.mark.parametrize("seed", range(3))
def test_after_a_bookie_is_gone_for_good_every_ledger_has_all_its_copies_within_a_minute(seed) -> None:
    world = RecoveryWorld(seed)

    async def play() -> None:
        await world.start()
        ids = [await world.write(20) for _ in range(6)]
        ids.append(await world.write(20, write_quorum=2))
        ids.append(await world.write(0))
        world.start_recovery()
        await asyncio.sleep(1)
        world.simulation.hosts["b1"].kill()
        await asyncio.sleep(4 + SETTINGS.lost_bookie_delay_s)  # the session's end, then the grace
        await world.wait_until_whole(ids, 60)
        for ledger_id in ids:
            named = (await world.metadata(ledger_id)).segments
            assert not any("b1:3181" in segment.bookies for segment in named)
            assert all(len(set(segment.bookies)) == 3 for segment in named)
        assert await world.read_all(ids[0]) == [payload(i) for i in range(20)]
        await asyncio.sleep(3)
        assert await world.marked() == []

    run(world, play)


@pytest.mark.parametrize("is_back", [True, False])
def test_what_the_auditor_tells_of_lacking_entries_ends_with_the_lack_not_with_the_next_audit(is_back: bool) -> None:
    # Copies come back with their bookie, or are made on the fourth one.
    world = RecoveryWorld(3, bookie_count=3 if is_back else 4)

    async def play() -> None:
        await world.start()
        ids = [await world.write(10, write_quorum=2) for _ in range(3)]
        gone = world.bookie((await world.metadata(ids[0])).segments[0].bookies[0])
        world.start_recovery()
        await asyncio.sleep(1)
        counts = world.recoveries["r0"].auditor_counts
        gone.kill()
        async with asyncio.timeout(30):
            while not counts.short_count:
                await asyncio.sleep(0.1)
        assert counts.short_count <= len(ids)
        if is_back:
            await asyncio.sleep(10)
            assert counts.short_count
            gone.start()
        async with asyncio.timeout(60):
            while counts.short_count or await world.marked():
                await asyncio.sleep(0.1)

    run(world, play)


def test_a_bookie_that_is_back_within_the_delay_moves_no_data() -> None:
    world = RecoveryWorld(1)

    async def play() -> None:
        await world.start()
        ledger_id = await world.write(10)
        before = await world.metadata(ledger_id)
        world.start_recovery()
        world.bookie(before.segments[0].bookies[0]).kill()
        await asyncio.sleep(3 + SETTINGS.lost_bookie_delay_s)
        world.bookie(before.segments[0].bookies[0]).start()
        await asyncio.sleep(20)
        assert await world.metadata(ledger_id) == before
        assert world.recoveries["r0"].worker_counts.entry_count == 0

    run(world, play)


def test_the_second_auditor_takes_over_when_the_first_is_dead() -> None:
    world = RecoveryWorld(2)

    async def play() -> None:
        await world.start()
        ledger_id = await world.write(10)
        first = world.start_recovery("r0")
        await asyncio.sleep(2)
        world.start_recovery("r1")
        await asyncio.sleep(8)
        leading = {name: recovery.auditor_counts.is_leading for name, recovery in world.recoveries.items()}
        assert leading == {"r0": True, "r1": False}
        first.kill()
        lost = (await world.metadata(ledger_id)).segments[0].bookies[1]
        world.bookie(lost).kill()
        await asyncio.sleep(5 + 4 + SETTINGS.lost_bookie_delay_s)
        await world.wait_until_whole([ledger_id], 60)
        assert world.recoveries["r1"].auditor_counts.is_leading
        assert lost not in (await world.metadata(ledger_id)).segments[0].bookies

    run(world, play)


def test_two_workers_repair_many_ledgers_between_them() -> None:
    world = RecoveryWorld(3, bookie_count=5)

    async def play() -> None:
        await world.start()
        ids = [await world.write(5) for _ in range(20)]
        for name in ("r0", "r1", "r2"):
            world.start_recovery(name)
        await asyncio.sleep(1)
        world.simulation.hosts["b0"].kill()
        await asyncio.sleep(4 + SETTINGS.lost_bookie_delay_s)
        await world.wait_until_whole(ids, 60)
        await asyncio.sleep(2)
        assert await world.marked() == []

    run(world, play)


def test_a_worker_that_dies_with_the_lock_is_followed_by_another() -> None:
    world = RecoveryWorld(4)

    async def play() -> None:
        await world.start()
        ledger_id = await world.write(200)
        slow = world.start_recovery("r0", replace(SETTINGS, copy_bytes_per_s=1_000, window_bytes=400))
        await asyncio.sleep(2)
        lost = (await world.metadata(ledger_id)).segments[0].bookies[1]
        world.bookie(lost).kill()
        while not await world.on_client(world.recoveries["r0"].marks.locked()):
            await asyncio.sleep(0.5)
        await asyncio.sleep(3)
        slow.kill()
        assert lost in (await world.metadata(ledger_id)).segments[0].bookies
        world.start_recovery("r1")
        await asyncio.sleep(10)
        await world.wait_until_whole([ledger_id], 60)
        assert lost not in (await world.metadata(ledger_id)).segments[0].bookies
        assert await world.read_all(ledger_id) == [payload(i) for i in range(200)]

    run(world, play)


def test_a_worker_that_is_cut_off_from_the_metadata_stops_and_another_goes_on() -> None:
    world = RecoveryWorld(5)

    async def play() -> None:
        await world.start()
        ledger_id = await world.write(200)
        world.start_recovery("r0", replace(SETTINGS, copy_bytes_per_s=1_000, window_bytes=400))
        await asyncio.sleep(2)
        lost = (await world.metadata(ledger_id)).segments[0].bookies[1]
        world.bookie(lost).kill()
        while not await world.on_client(world.recoveries["r0"].marks.locked()):
            await asyncio.sleep(0.5)
        world.simulation.network.partition("r0", METADATA_HOST)
        await asyncio.sleep(6)
        world.start_recovery("r1")
        await asyncio.sleep(10)
        await world.wait_until_whole([ledger_id], 60)
        assert world.recoveries["r0"].worker_counts.swap_count == 0
        assert world.recoveries["r1"].worker_counts.swap_count == 1

    run(world, play)


def test_a_bookie_that_is_back_in_the_middle_of_the_copy_keeps_its_place() -> None:
    world = RecoveryWorld(6)

    async def play() -> None:
        await world.start()
        ledger_id = await world.write(200)
        before = await world.metadata(ledger_id)
        world.start_recovery("r0", replace(SETTINGS, copy_bytes_per_s=1_000, window_bytes=400))
        await asyncio.sleep(2)
        lost = world.bookie(before.segments[0].bookies[1])
        lost.kill()
        while not await world.on_client(world.recoveries["r0"].marks.locked()):
            await asyncio.sleep(0.5)
        await asyncio.sleep(2)
        lost.start()
        while await world.marked():
            await asyncio.sleep(0.5)
        assert await world.metadata(ledger_id) == before
        assert await world.lacking(ledger_id) == {}

    run(world, play)


def test_a_copy_never_comes_from_a_replica_with_bad_bytes() -> None:
    world = RecoveryWorld(7)

    async def play() -> None:
        await world.start()
        ledger_id = await world.write(10)
        bad, lost, good = (await world.metadata(ledger_id)).segments[0].bookies
        world.spoil(bad, ledger_id, [3, 4])
        world.start_recovery()
        await asyncio.sleep(1)
        world.bookie(lost).kill()
        await asyncio.sleep(4 + SETTINGS.lost_bookie_delay_s)
        await world.wait_until_whole([ledger_id], 60)
        (spare,) = set((await world.metadata(ledger_id)).segments[0].bookies) - {bad, good}
        world.bookie(good).kill()
        world.bookie(bad).kill()
        assert spare != lost
        assert await world.read_all(ledger_id) == [payload(i) for i in range(10)]

    run(world, play)


def test_an_entry_that_only_bad_bytes_are_left_of_is_not_copied_and_its_ledger_stays_marked() -> None:
    world = RecoveryWorld(8)

    async def play() -> None:
        await world.start()
        ledger_id = await world.write(10)
        bad, lost, worse = (await world.metadata(ledger_id)).segments[0].bookies
        for bookie_id in (bad, worse):
            world.spoil(bookie_id, ledger_id, [4])
        world.start_recovery()
        await asyncio.sleep(1)
        world.bookie(lost).kill()
        await asyncio.sleep(30)
        assert await world.marked() == [ledger_id]
        assert lost in (await world.metadata(ledger_id)).segments[0].bookies
        world.bookie(lost).start()  # the last good copy
        await asyncio.sleep(20)
        assert await world.marked() == []

    run(world, play)


def test_the_tail_of_an_open_ledger_is_not_copied_before_it_is_closed() -> None:
    world = RecoveryWorld(9)

    async def play() -> None:
        await world.start()
        ledger_id = await world.write(10, close=False)
        before = await world.metadata(ledger_id)
        world.start_recovery()
        await asyncio.sleep(1)
        world.bookie(before.segments[0].bookies[0]).kill()
        await asyncio.sleep(4 + SETTINGS.lost_bookie_delay_s + SETTINGS.open_ledger_grace_s - 1)
        assert await world.metadata(ledger_id) == before
        assert world.recoveries["r0"].worker_counts.entry_count == 0
        await asyncio.sleep(5)  # the grace is over
        await world.wait_until_whole([ledger_id], 60)
        after = await world.metadata(ledger_id)
        assert after.is_closed
        assert after.last_entry_id == 9
        assert before.segments[0].bookies[0] not in after.segments[-1].bookies

    run(world, play)


def test_entries_confirmed_while_a_bookie_was_away_are_sent_to_it_when_it_is_back() -> None:
    world = RecoveryWorld(10, bookie_count=3)

    async def play() -> None:
        await world.start()
        world.start_recovery()
        ledger_id = await world.write_and_die(20, unreachable="b2")
        assert await world.lacking(ledger_id)
        await asyncio.sleep(10)
        assert await world.lacking(ledger_id)  # Nobody looks: it was registered all the time.
        world.simulation.network.partition("b2", METADATA_HOST)
        await asyncio.sleep(5)  # Its session ends.
        world.simulation.network.heal()
        await world.wait_until_whole([ledger_id], 60)

    run(world, play)


def test_a_full_check_finds_and_fills_holes() -> None:
    world = RecoveryWorld(11, bookie_count=3)

    async def play() -> None:
        await world.start()
        ledger_id = await world.write_and_die(20, unreachable="b2")
        assert await world.lacking(ledger_id)
        world.start_recovery("r0", replace(SETTINGS, check_s=20.0))
        await world.wait_until_whole([ledger_id], 60)
        await asyncio.sleep(2)
        assert await world.marked() == []

    run(world, play)


def test_without_a_bookie_to_spare_the_ledger_stays_marked_until_there_is_one() -> None:
    world = RecoveryWorld(12, bookie_count=4)

    async def play() -> None:
        await world.start()
        ledger_id = await world.write(10)
        named = (await world.metadata(ledger_id)).segments[0].bookies
        (other,) = set(world.ids("b0", "b1", "b2", "b3")) - set(named)
        world.bookie(other).kill()
        world.start_recovery()
        await asyncio.sleep(1)
        world.bookie(named[0]).kill()
        await asyncio.sleep(30)
        assert await world.marked() == [ledger_id]
        world.bookie(other).start()
        await world.wait_until_whole([ledger_id], 60)

    run(world, play)


def test_a_deleted_ledger_loses_its_mark() -> None:
    world = RecoveryWorld(13)

    async def play() -> None:
        await world.start()
        ledger_id = await world.write(3)
        world.start_recovery()
        await asyncio.sleep(1)
        await world.on_client(world.client.delete(ledger_id))
        await world.on_client(world.recoveries["r0"].marks.mark(ledger_id, world.ids("b0"), 0))
        await asyncio.sleep(10)
        assert await world.marked() == []

    run(world, play)


def test_nothing_moves_while_it_is_switched_off() -> None:
    world = RecoveryWorld(14)

    async def play() -> None:
        await world.start()
        ledger_id = await world.write(10)
        world.start_recovery()
        await asyncio.sleep(1)
        marks = world.recoveries["r0"].marks
        await world.on_client(marks.set_enabled(False))
        lost = (await world.metadata(ledger_id)).segments[0].bookies[0]
        world.bookie(lost).kill()
        await asyncio.sleep(30)
        assert lost in (await world.metadata(ledger_id)).segments[0].bookies
        await world.on_client(marks.set_enabled(True))
        await asyncio.sleep(SETTINGS.lost_bookie_delay_s)
        await world.wait_until_whole([ledger_id], 60)

    run(world, play)


@pytest.mark.parametrize("seed", range(4))
def test_a_live_writer_goes_on_while_earlier_segments_of_its_ledger_are_repaired(seed) -> None:
    world = RecoveryWorld(seed, bookie_count=6)

    async def play() -> None:
        await world.start()
        world.start_recovery()
        handles = []

        async def begin() -> None:
            handles.append(await world.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2))

        async def append(count: int, start: int) -> None:
            for entry_id in range(start, start + count):
                await handles[0].append(payload(entry_id))
                await asyncio.sleep(0.1)

        await world.on_client(begin())
        ledger_id = handles[0].ledger_id
        await world.on_client(append(20, 0))
        first = handles[0].metadata.segments[0].bookies[0]
        world.bookie(first).kill()
        await world.on_client(append(300, 20))  # it changes the ensemble; meanwhile the first segment is repaired
        now = await world.metadata(ledger_id)
        assert not now.is_closed
        assert len(now.segments) > 1
        assert not any(first in segment.bookies for segment in now.segments)
        second = now.segments[-1].bookies[1]
        world.bookie(second).kill()
        await world.on_client(append(100, 320))  # the version that it knows is an old one
        await world.on_client(handles[0].close())
        after = await world.metadata(ledger_id)
        assert after.is_closed
        assert after.last_entry_id == 419
        await world.wait_until_whole([ledger_id], 60)
        assert await world.read_all(ledger_id) == [payload(i) for i in range(420)]

    run(world, play)

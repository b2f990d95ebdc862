"""Auto-recovery on the simulated network: every ledger is whole again, and nothing unsettled is copied."""

from __future__ import annotations

import asyncio

import pytest

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

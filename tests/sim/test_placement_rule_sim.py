"""The cluster's placement rule under lost bookies: writers and auto-recovery keep it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from ledger.client import placement as client_placement
from ledger.core.metadata import LedgerMetadata
from ledger.core.placement_rule import ClusterPlacement, PlacementRule
from ledger.errors import NotEnoughBookiesError
from ledger.replication import repair
from ledger.replication.placement_report import report_placement
from ledger.testing.cluster import BOOKIE_PORT, SIM_CLIENT
from ledger.zookeeper.placement_rules import write_placement
from tests.sim.recovery_world import RecoveryWorld

_RACKS = {f"b{number}": f"/rack{number // 2}" for number in range(6)}
_CLIENT = msgspec.structs.replace(SIM_CLIENT, keeps_rule=True)


class _Racks:
    """Two bookies in each of three racks, and a rule: each entry in all three."""

    def __init__(self, seed: int, *, is_strict: bool = True) -> None:
        self.world = RecoveryWorld(seed, bookie_count=6)
        self.placement = ClusterPlacement(rule=PlacementRule(racks_min=3, is_strict=is_strict), bookies=_RACKS)
        self.rng = self.world.simulation.random("racks")

    async def start(self) -> None:
        world = self.world
        world.cluster.start()
        world.client = await world.on_client(world.cluster.connect(world.client_host, _CLIENT))
        await world.on_client(world.cluster.wait_until_writable(world.client))
        await world.on_client(write_placement(world.client.ledgers, self.placement))

    def kill_one(self, bookies: tuple[str, ...]) -> str:
        victim = self.rng.choice(bookies)
        self.world.bookie(victim).kill()
        return victim

    def is_kept(self, metadata: LedgerMetadata) -> bool:
        return not any(self.placement.lacking(one.bookies, metadata.quorum.write_quorum) for one in metadata.segments)


async def _lose_bookies(game: _Racks) -> bool:
    """Have a writer, a recovery and auto-recovery each fill the place of a lost bookie; return if the rule is kept."""
    world = game.world
    await game.start()

    async def begin() -> Any:
        handle = await world.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await handle.append(b"first")
        return handle

    async def append_until_changed(handle: Any) -> None:
        while len(handle.metadata.segments) == 1:
            await handle.append(b"more")
            await asyncio.sleep(0.05)
        await handle.close()

    handle = await world.on_client(begin())
    victim = game.kill_one(handle.metadata.segments[0].bookies)
    await world.on_client(append_until_changed(handle))
    if not game.is_kept(await world.metadata(handle.ledger_id)):
        return False
    world.start_recovery()
    while any(victim in one.bookies for one in (await world.metadata(handle.ledger_id)).segments):
        await asyncio.sleep(1.0)
    return game.is_kept(await world.metadata(handle.ledger_id))


@pytest.mark.parametrize("seed", range(6))
def test_places_of_lost_bookies_are_filled_by_the_rule(seed: int) -> None:
    game = _Racks(seed)

    async def main() -> None:
        assert await _lose_bookies(game)
        report = await game.world.on_client(report_placement(game.world.client.ledgers))
        assert (report.misplaced, report.unplaced, report.ledger_count) == ((), (), 1)

    game.world.simulation.run(main(), limit_s=300)


def _choose_the_first(ranked: Any, _placement: Any, *, ensemble: Any, excluded: Any, **_: Any) -> str | None:
    free = [one.bookie_id for one in ranked if one.bookie_id not in ensemble and one.bookie_id not in excluded]
    return free[0] if free else None


@pytest.mark.parametrize("module", [client_placement, repair])
def test_a_choice_past_the_rule_is_found(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "choose_replacement_by_rule", _choose_the_first)
    for seed in range(12):
        game = _Racks(seed)
        if not game.world.simulation.run(_lose_bookies(game), limit_s=300):
            return
    pytest.fail("not found by 12 seeds")


def test_a_strict_rule_rather_makes_no_ledger_and_another_one_does_its_best() -> None:
    for is_strict in (True, False):
        game = _Racks(1, is_strict=is_strict)

        async def create(game: _Racks = game) -> Any:
            return await game.world.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)

        async def main(game: _Racks = game, is_strict: bool = is_strict, create: Any = create) -> None:
            world = game.world
            await game.start()
            for name in ("b0", "b1"):
                world.bookie(name).kill()
            while f"b0:{BOOKIE_PORT}" in await world.on_client(world.client.ledgers.writable_bookies()):
                await asyncio.sleep(0.5)
            if is_strict:
                with pytest.raises(NotEnoughBookiesError, match="every 3 .* lie in 3 racks: they stand in .* 2 racks"):
                    await world.on_client(create())
                return
            handle = await world.on_client(create())
            report = await world.on_client(report_placement(world.client.ledgers))
            assert [one.ledger_id for one in report.misplaced] == [handle.ledger_id]

        game.world.simulation.run(main(), limit_s=200)

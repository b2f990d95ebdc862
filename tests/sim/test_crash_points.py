"""A process killed at each of its steps, one after the other: whoever comes next finishes what it began."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ledger.client.write_handle import WriteHandle
from ledger.testing import SimHost, Simulation
from ledger.testing.cluster import SimCluster
from tests.sim.ledger_history import History
from tests.sim.ledger_witness import watch_metadata, witnessed


class _Game:
    """Three bookies and a ledger of ten acknowledged entries, more of them under way."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.cluster = SimCluster(self.simulation)
        self.history = History(self.simulation.loop.time, self.simulation.loop.fail)
        watch_metadata(self.history, self.simulation.metadata, self.cluster.root)
        self.writer = self.simulation.host("w")

    async def write(self, entry_count: int = 10) -> WriteHandle:
        client = await self.cluster.connect(self.writer)
        await self.cluster.wait_until_writable(client)
        handle = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        ledger = self.history.created(handle.ledger_id, 2, b"", "w")
        ledger.payloads += [b"%d" % number for number in range(entry_count + 3)]
        for entry_id, payload in enumerate(ledger.payloads[:entry_count]):
            assert await handle.append(payload) == entry_id
            self.history.acked(ledger, entry_id)
        handle.append_many(ledger.payloads[entry_count:])
        return handle

    async def read_to_the_end(self, host: SimHost, ledger_id: int) -> int:
        handle = await (await self.cluster.connect(host)).open(ledger_id)
        self.history.closed(self.history.ledgers[ledger_id], handle.last_add_confirmed, host.name)
        for entry in await handle.read(0, handle.last_add_confirmed):
            self.history.read(self.history.ledgers[ledger_id], entry.entry_id, entry.payload, host.name)
        return handle.last_add_confirmed

    async def wait_until_serving(self, host: SimHost) -> None:
        while host.name not in self.cluster.servers:
            await asyncio.sleep(0.05)

    async def kill_at(self, step_count: int, host: SimHost, work: asyncio.Future[Any], *, power: bool) -> bool:
        """Kill a host when its process has run so many steps; return whether its work was not done then."""
        probes = self.simulation.loop.probes
        struck: list[bool] = []

        def strike() -> None:
            if not struck and (host.step_count >= step_count or work.done()):
                struck.append(not work.done())
                host.kill(power=power)

        probes.append(strike)
        while not struck:
            await asyncio.sleep(0.05)
        probes.remove(strike)
        return struck[0]


def _play_each_step(play: Callable[[int], bool]) -> int:
    """Play with the blow at one step after the other, until it comes too late; return how many were in time."""
    step = 1
    while play(step):
        step += 1
    return step - 1


@pytest.mark.parametrize("seed", range(2))
def test_a_recovery_killed_at_any_step_is_finished_by_the_next(seed: int) -> None:
    async def main(game: _Game, step: int) -> bool:
        game.cluster.start()
        handle = await game.writer.spawn(game.write())
        game.writer.kill()
        first, second = game.simulation.host("r1"), game.simulation.host("r2")
        recovery = first.spawn(game.read_to_the_end(first, handle.ledger_id))
        was_in_time = await game.kill_at(step, first, recovery, power=False)
        end = await second.spawn(game.read_to_the_end(second, handle.ledger_id))
        assert end >= 9
        return was_in_time

    def play(step: int) -> bool:
        game = _Game(seed)
        with witnessed(game.history):
            return game.simulation.run(main(game, step), limit_s=100)

    assert _play_each_step(play) > 40


@pytest.mark.parametrize("seed", range(2))
def test_a_bookie_on_new_disks_killed_at_any_step_of_its_start_never_denies_what_the_old_ones_held(seed: int) -> None:
    async def main(game: _Game, step: int) -> bool:
        game.cluster.start()
        handle = await game.writer.spawn(game.write())
        bookie = game.cluster.bookies[1]
        bookie.kill(power=True)
        bookie.disk.lose_everything()
        game.cluster.take_cookie(bookie)
        bookie.start()
        serves = asyncio.get_running_loop().create_task(game.wait_until_serving(bookie))
        was_in_time = await game.kill_at(step, bookie, serves, power=True)
        serves.cancel()
        bookie.on_exit.append(lambda host: game.simulation.after(0.2, host.start))
        bookie.start()
        await game.wait_until_serving(bookie)
        limbo = game.cluster.servers[bookie.name].store.limbo
        assert limbo.ledger_id_max >= handle.ledger_id
        return was_in_time

    def play(step: int) -> bool:
        game = _Game(seed)
        with witnessed(game.history):
            return game.simulation.run(main(game, step), limit_s=100)

    assert _play_each_step(play) > 40

"""Auto-recovery in all the trouble that a seed can think of; in the calm that follows everything is whole."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest
from msgspec.structs import replace

from ledger.errors import LedgerError
from ledger.replication.marks import MarkStore
from ledger.testing import METADATA_HOST, MetadataRates, NetworkRates, SimDisk, SimHost, Simulation
from tests.sim.recovery_world import SETTINGS, RecoveryWorld, payload

_SEEDS = 30
_TROUBLE_S = 120.0
_TROUBLE_SHORT_S = 40.0
_BOOKIE_COUNT = 5


class _Game:
    """Writers, readers of nothing, two recoveries; one kind of trouble after the other.

    At most one bookie at a time is without its data, or away for longer than the delay: more than that three copies
    with an ack quorum of two do not promise to bear.
    """

    def __init__(self, seed: int) -> None:
        self.trouble_s = _TROUBLE_S if seed else _TROUBLE_SHORT_S
        self.rng = random.Random(seed)
        rng = self.rng
        self.simulation = Simulation(
            seed,
            network_rates=NetworkRates(reset_rate=rng.choice([0.0, 0.0, 0.002])),
            metadata_rates=MetadataRates(
                lost_reply_rate=rng.choice([0.0, 0.02]),
                lost_request_rate=rng.choice([0.0, 0.02]),
                lag_rate=rng.choice([0.0, 0.3]),
            ),
        )
        settings = replace(SETTINGS, check_s=15.0)
        self.world = RecoveryWorld(
            seed, bookie_count=_BOOKIE_COUNT, settings=settings, self_repair=settings, simulation=self.simulation
        )
        self.acked: dict[int, list[bytes]] = {}
        self.is_over = False

    def _supervise(self, host: SimHost) -> None:
        """Start again what ended by itself, as a supervisor does; what was killed is started by who killed it."""
        if isinstance(host.exits[-1], BaseException):
            self.simulation.after(1.0, lambda: host.is_up or host.start())

    async def _write(self) -> None:
        """Write one ledger after the other; each entry that is acknowledged is noted."""
        while not self.is_over:
            try:
                handle = await self.world.client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
                noted = self.acked.setdefault(handle.ledger_id, [])
                for entry_id in range(self.rng.randrange(1, 30)):
                    await handle.append(payload(entry_id))
                    noted.append(payload(entry_id))
                    await asyncio.sleep(self.rng.uniform(0.0, 0.2))
                if self.rng.random() < 0.7:
                    await handle.close()
                else:
                    handle.abandon()
            except LedgerError:
                await asyncio.sleep(1.0)

    def _up(self, host: SimHost) -> None:
        if not host.is_up:
            host.start()

    async def _new_disk(self, host: SimHost) -> None:
        host.kill(power=True)
        host.disk = SimDisk(
            self.simulation.random(f"disk {host.name} {len(host.exits)}"), note=self.simulation.loop.note
        )
        self.world.cluster.take_cookie(host)
        await asyncio.sleep(2)
        while not host.is_up or host.name not in self.world.cluster.servers:
            self._up(host)
            await asyncio.sleep(1)
        while self.world.cluster.servers[host.name].store.limbo.ledger_id_max >= 0:
            await asyncio.sleep(1)

    async def _drain(self, host: SimHost) -> None:
        """Order a bookie to be drained for a while; the order is taken back however often that takes."""
        bookie_id = f"{host.name}:3181"
        marks = MarkStore(self.world.client.ledgers.store, "/ledgers", "")

        async def order() -> None:
            with suppress(LedgerError):
                await marks.set_draining(bookie_id, is_draining=True)
            await asyncio.sleep(self.rng.uniform(5.0, 30.0))
            while bookie_id in await marks.draining():
                await marks.set_draining(bookie_id, is_draining=False)

        while True:
            with suppress(LedgerError):
                await self.world.client_host.spawn(order())
                return
            await asyncio.sleep(1.0)

    async def _trouble(self) -> None:
        rng, hosts = self.rng, self.simulation.hosts
        host = hosts[f"b{rng.randrange(_BOOKIE_COUNT)}"]
        kind = rng.choice(["restart", "away", "lost disk", "recovery", "cut off", "pause", "drain"])
        if kind == "restart":
            host.kill(power=rng.random() < 0.5)
            await asyncio.sleep(rng.uniform(0.0, 4.0))
            self._up(host)
        elif kind == "away":
            host.kill()
            await asyncio.sleep(rng.uniform(5.0, 30.0))
            self._up(host)
        elif kind == "lost disk":
            await self._new_disk(host)
        elif kind == "drain":
            await self._drain(host)
        elif kind == "recovery":
            recovery = hosts[rng.choice(["r0", "r1"])]
            recovery.kill()
            await asyncio.sleep(rng.uniform(0.0, 10.0))
            self._up(recovery)
        elif kind == "cut off":
            other = rng.choice([METADATA_HOST, "r0", "r1", "client", "b0"])
            if other != host.name:
                self.simulation.network.partition(host.name, other)
                await asyncio.sleep(rng.uniform(0.0, 10.0))
                self.simulation.network.heal()
        else:
            paused = hosts[rng.choice(["r0", "r1", host.name])]
            paused.pause()
            await asyncio.sleep(rng.uniform(0.0, 8.0))
            paused.resume()
        await asyncio.sleep(rng.uniform(1.0, 8.0))

    async def play(self) -> None:
        loop = asyncio.get_running_loop()
        world = self.world
        for host in world.cluster.bookies:
            host.on_exit.append(self._supervise)
        await world.start()
        for name in ("r0", "r1"):
            world.start_recovery(name).on_exit.append(self._supervise)
        writing = world.client_host.spawn(self._write())
        while loop.time() < self.trouble_s:
            await self._trouble()
        self.is_over = True
        await writing
        self.simulation.metadata.rates = MetadataRates()
        self.simulation.network.rates = NetworkRates()
        for host in self.simulation.hosts.values():
            if host.program is not None:
                self._up(host)
        dead = self.simulation.hosts[f"b{self.rng.randrange(_BOOKIE_COUNT)}"]
        await asyncio.sleep(30)  # the last trouble's effects end
        dead.kill()
        await asyncio.sleep(4 + SETTINGS.lost_bookie_delay_s + SETTINGS.open_ledger_grace_s)
        assert sum(map(len, self.acked.values())) > 10
        await world.wait_until_whole(list(self.acked), 60)
        await self._check(dead)

    async def _check(self, dead: SimHost) -> None:
        world = self.world
        for ledger_id, acked in self.acked.items():
            metadata = await world.metadata(ledger_id)
            assert not any(f"{dead.name}:3181" in segment.bookies for segment in metadata.segments), ledger_id
            assert all(len(set(segment.bookies)) == 3 for segment in metadata.segments), ledger_id
            found = await world.read_all(ledger_id)
            assert found[: len(acked)] == acked, ledger_id


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, _SEEDS))])
def test_after_all_trouble_nothing_is_lost_and_every_ledger_is_whole(seed) -> None:
    game = _Game(seed)
    game.simulation.run(game.play(), limit_s=1_200)

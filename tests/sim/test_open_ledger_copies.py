"""Checks of open ledgers: what is confirmed gets all its copies while the writer lives, and nothing else is copied."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from ledger.core.metadata import NO_ENTRY, LedgerMetadata
from ledger.core.quorum import QuorumConfig
from ledger.errors import LedgerError
from ledger.replication import copies_check
from ledger.replication.core.confirmed_end import confirmed_end
from ledger.replication.core.fragments import Share
from ledger.replication.core.held_entries import HeldEntries
from ledger.replication.questions import ask_all, ask_lacs, list_entries
from ledger.testing import SimHost
from ledger.wire.digests import master_key
from ledger.wire.packets import ReadRequest
from tests.sim.recovery_world import SETTINGS, RecoveryWorld, payload

_BOOKIES = ("b0", "b1", "b2")
_SETTINGS = replace(SETTINGS, check_s=6.0)
_TROUBLES = 4
_BATCH = 30
_HUNTED = range(6)


class _LivingWriter:
    """One ledger on all bookies there are, whose writer goes on whatever happens, and is never fenced."""

    def __init__(self, seed: int, *, striped: bool) -> None:
        self.rng = random.Random(seed)
        self.world = RecoveryWorld(seed, bookie_count=len(_BOOKIES), settings=_SETTINGS)
        self.write_quorum = 2 if striped else 3
        self.confirmed = -1
        self._handle: Any = None
        self._is_over = False

    @property
    def ledger_id(self) -> int:
        return self._handle.ledger_id

    async def _append(self, count: int) -> None:
        first = self.confirmed + 1
        self.confirmed = await self._handle.append_many([payload(one) for one in range(first, first + count)])

    async def _write(self) -> None:
        while not self._is_over:
            await self._append(self.rng.randrange(1, 5))
            await asyncio.sleep(self.rng.uniform(0.0, 0.1))

    async def _away(self, host: SimHost) -> None:
        """A bookie goes away and comes back before it counts as lost, or the writer alone does not reach it."""
        away_s = self.rng.uniform(1.5, 4.0)
        if self.rng.random() < 0.3:
            self.world.simulation.network.partition("client", host.name)
            await asyncio.sleep(away_s)
            self.world.simulation.network.heal()
        else:
            host.kill(power=self.rng.random() < 0.3)
            await asyncio.sleep(away_s)
            host.start()

    async def _until_it_takes_entries(self, host: SimHost) -> None:
        """Wait until the writer has a bookie store entries again."""
        before = await self._last_held(host)
        while await self._last_held(host) <= before:
            assert self._handle.failure is None
            await asyncio.sleep(0.2)

    async def _last_held(self, host: SimHost) -> int:
        server = self.world.cluster.servers.get(host.name)
        ledger = None if server is None else server.store.ledgers.get(self.ledger_id)
        return -1 if ledger is None else ledger.last_entry_id

    async def play(self) -> None:
        world = self.world
        await world.start()
        world.start_recovery()

        async def create() -> None:
            self._handle = await world.client.create(
                ensemble_size=3, write_quorum=self.write_quorum, ack_quorum=self.write_quorum - 1
            )

        await world.on_client(create())
        writing = world.client_host.spawn(self._write())
        for _ in range(_TROUBLES):
            host = world.simulation.hosts[self.rng.choice(_BOOKIES)]
            await self._away(host)
            await self._until_it_takes_entries(host)
            await asyncio.sleep(self.rng.uniform(0.0, 4.0))
        self._is_over = True
        await writing
        # The last batch comes while one is away, and no entry with a newer LAC follows.
        host = world.simulation.hosts[self.rng.choice(_BOOKIES)]
        host.kill()
        await asyncio.sleep(1.5)
        await world.on_client(self._append(_BATCH))
        host.start()
        await self._until_all_copies_are_there()
        metadata = await world.metadata(self.ledger_id)
        assert not metadata.is_closed
        assert len(metadata.segments) == 1
        before = self.confirmed
        await world.on_client(self._append(_BATCH))  # Nobody has fenced it.
        assert self.confirmed == before + _BATCH
        await world.on_client(self._handle.close())
        assert await world.read_all(self.ledger_id) == [payload(one) for one in range(self.confirmed + 1)]

    async def _until_all_copies_are_there(self) -> None:
        async with asyncio.timeout(60):
            while lacking := await self._lacking():
                assert not (await self.world.metadata(self.ledger_id)).is_closed, lacking
                await asyncio.sleep(0.5)

    async def _lacking(self) -> dict[str, list[int]]:
        held = await _holdings(self.world, self.ledger_id)
        metadata = await self.world.metadata(self.ledger_id)
        shares = {
            bookie_id: Share(0, self.confirmed, position, metadata.quorum)
            for position, bookie_id in enumerate(metadata.segments[0].bookies)
        }
        found = {b: list(held[b].missing(share)) for b, share in shares.items() if b in held}
        return {bookie_id: ids for bookie_id, ids in found.items() if ids} | {
            bookie_id: [] for bookie_id in shares if bookie_id not in held
        }


async def _holdings(world: RecoveryWorld, ledger_id: int) -> dict[str, HeldEntries]:
    async def work() -> dict[str, HeldEntries]:
        answers = await list_entries(world.client._pool, ledger_id, world.ids(*_BOOKIES))
        return {bookie_id: held for bookie_id, held in answers.items() if isinstance(held, HeldEntries)}

    found: dict[str, HeldEntries] = await world.on_client(work())
    return found


def _run_living_writer(seed: int) -> None:
    game = _LivingWriter(seed, striped=seed % 4 == 3)
    game.world.simulation.run(game.play(), limit_s=400)


def _run_unconfirmed(seed: int) -> None:
    """A writer ends with an entry that reached one bookie alone: nobody may make that more than it is."""
    world = RecoveryWorld(seed, bookie_count=len(_BOOKIES), settings=_SETTINGS)
    host = world.simulation.host("mayfly")
    confirmed = 9
    share = Share(0, confirmed + 1, 0, QuorumConfig(3, 3, 2))

    async def write() -> int:
        client = await world.cluster.connect(host)
        handle = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await handle.append_many([payload(one) for one in range(confirmed + 1)])
        for name in _BOOKIES[1:]:
            world.simulation.network.partition("mayfly", name)
        handle.append(payload(confirmed + 1)).add_done_callback(lambda future: future.cancelled() or future.exception())
        await asyncio.sleep(0.2)
        return int(handle.ledger_id)

    async def play() -> None:
        await world.start()
        ledger_id = await host.spawn(write())
        host.kill()
        world.simulation.network.heal()
        held = await _holdings(world, ledger_id)
        assert next(held[world.ids("b0")[0]].missing(share), None) is None
        world.start_recovery()
        await asyncio.sleep(5 * _SETTINGS.check_s)
        held = await _holdings(world, ledger_id)
        for name in _BOOKIES:
            expected = [] if name == "b0" else [confirmed + 1]
            assert list(held[world.ids(name)[0]].missing(share)) == expected
        assert not (await world.metadata(ledger_id)).is_closed

    world.simulation.run(play(), limit_s=300)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 60))])
def test_confirmed_entries_get_all_their_copies_while_their_writer_lives(seed: int) -> None:
    _run_living_writer(seed)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_not_confirmed_is_not_copied(seed: int) -> None:
    _run_unconfirmed(seed)


# -- planted bugs: the simulations above must find each --------------------------------------------------------


def _pass_over_open_ledgers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(copies_check, "confirmed_end", lambda *_: NO_ENTRY)


def _believe_the_lac_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(copies_check, "confirmed_end", lambda metadata, lacs, holdings: max(lacs, default=NO_ENTRY))


def _believe_one_bookie(patch: pytest.MonkeyPatch) -> None:
    def end_of_one(metadata: LedgerMetadata, lacs: Iterable[int], holdings: Mapping[str, HeldEntries]) -> int:
        quorum = QuorumConfig(metadata.quorum.ensemble_size, metadata.quorum.write_quorum, 1)
        return confirmed_end(replace(metadata, quorum=quorum), lacs, holdings)

    patch.setattr(copies_check, "confirmed_end", end_of_one)


def _fence_what_is_asked_for(patch: pytest.MonkeyPatch) -> None:
    async def fence_and_ask(pool: Any, ledger_id: int, metadata: LedgerMetadata, bookie_ids: list[str]) -> list[int]:
        key = master_key(metadata.password)
        fences = [(b, ReadRequest(pool.take_txns(1), ledger_id, NO_ENTRY, key, is_fencing=True)) for b in bookie_ids]
        await ask_all(pool, fences)
        return await ask_lacs(pool, ledger_id, metadata, bookie_ids)

    patch.setattr(copies_check, "ask_lacs", fence_and_ask)


@pytest.mark.parametrize(
    ("plant", "simulate"),
    [
        (_pass_over_open_ledgers, _run_living_writer),
        (_believe_the_lac_alone, _run_living_writer),
        (_fence_what_is_asked_for, _run_living_writer),
        (_believe_one_bookie, _run_unconfirmed),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], simulate: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in _HUNTED:
        try:
            simulate(seed)
        except (AssertionError, TimeoutError, LedgerError):
            return
    pytest.fail(f"{plant.__name__} was not found by seeds {_HUNTED}")

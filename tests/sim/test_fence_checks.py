"""Fence checks on real bookies and the real client, played move by move: a ledger that was recovered is never open.

The writer idles while another client recovers its ledger, and its bookies are replaced, lose their disks or come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ledger.bookie.handlers import Handlers
from ledger.bookie.responder import Responder
from ledger.client.fence_questions import FenceQuestions
from ledger.client.write_handle import WriteHandle
from ledger.storage.bookie_ledger import BookieLedger
from ledger.testing import SimHost, Simulation
from ledger.testing.cluster import SimCluster
from ledger.wire.codes import FenceState, Status
from ledger.wire.packets import FenceCheckRequest, FenceCheckResponse


class _Game:
    def __init__(self, seed: int, bookie_count: int) -> None:
        self.simulation = Simulation(seed)
        self.cluster = SimCluster(self.simulation, bookie_count=bookie_count)
        self.writer, self.recoverer = self.simulation.host("w"), self.simulation.host("r")

    async def create(self) -> WriteHandle:
        client = await self.cluster.connect(self.writer)
        await self.cluster.wait_until_writable(client)
        handle = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await handle.append(b"zero")
        await asyncio.sleep(1)  # The third bookie has it, too.
        return handle

    async def check(self, handle: WriteHandle) -> bool:
        """Check until bookies had the time to connect again."""

        async def ask() -> bool:
            return await handle.check_fence()

        for _ in range(8):
            if await self.writer.spawn(ask()):
                return True
            await asyncio.sleep(0.7)
        return False

    async def recover(self, ledger_id: int) -> int:
        async def program() -> int:
            return (await (await self.cluster.connect(self.recoverer)).open(ledger_id)).last_add_confirmed

        return await self.recoverer.spawn(program())

    def host_of(self, bookie_id: str) -> SimHost:
        return self.simulation.hosts[bookie_id.partition(":")[0]]

    async def restart(self, bookie_id: str, *, on_new_disk: bool = False) -> None:
        """Start a bookie again; on a new disk as an operator does who takes its cookie away."""
        host = self.host_of(bookie_id)
        host.kill()
        if on_new_disk:
            host.disk.lose_everything()
            self.cluster.take_cookie(host)
        while host.name not in self.cluster.servers:
            if not host.is_up:
                host.start()
            await asyncio.sleep(0.1)

    async def replace(self, handle: WriteHandle, bookie_id: str) -> None:
        """Kill a bookie, and append until another one has its place."""

        async def append() -> None:
            await handle.append(b"more")

        self.host_of(bookie_id).kill()
        while bookie_id in handle.metadata.segments[-1].bookies:
            await self.writer.spawn(append())
            await asyncio.sleep(0.5)

    def play(self, moves: Callable[[WriteHandle], Awaitable[bool]]) -> bool:
        """Make moves with an open ledger, which a check finds open."""

        async def main() -> bool:
            self.cluster.start()
            handle = await self.writer.spawn(self.create())
            assert await self.check(handle)
            return await moves(handle)

        return self.simulation.run(main(), limit_s=400)


def _recovered(seed: int) -> bool:
    game = _Game(seed, 3)

    async def moves(handle: WriteHandle) -> bool:
        assert await game.recover(handle.ledger_id) == 0
        for bookie_id in handle.metadata.segments[-1].bookies:
            await game.restart(bookie_id)
        return await game.check(handle)

    return game.play(moves)


def _on_new_disks(seed: int) -> bool:
    game = _Game(seed, 3)

    async def moves(handle: WriteHandle) -> bool:
        assert await game.recover(handle.ledger_id) == 0
        for bookie_id in handle.metadata.segments[-1].bookies:
            await game.restart(bookie_id, on_new_disk=True)
        return await game.check(handle)

    return game.play(moves)


def _after_changes(seed: int) -> bool:
    """Two of three bookies were replaced before; nobody fences them, and they are back when the writer asks."""
    game = _Game(seed, 5)

    async def moves(handle: WriteHandle) -> bool:
        left = handle.metadata.segments[-1].bookies[:2]
        for bookie_id in left:
            await game.replace(handle, bookie_id)
        await game.recover(handle.ledger_id)
        for bookie_id in left:
            await game.restart(bookie_id)
        return await game.check(handle)

    return game.play(moves)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("game", [_recovered, _on_new_disks, _after_changes])
def test_a_recovered_ledger_is_never_said_to_be_open(seed: int, game: Callable[[int], bool]) -> None:
    assert not game(seed)


def test_those_who_took_the_places_of_others_are_asked() -> None:
    game = _Game(0, 5)

    async def moves(handle: WriteHandle) -> bool:
        for bookie_id in handle.metadata.segments[-1].bookies[:2]:
            await game.replace(handle, bookie_id)
        return await game.check(handle)

    assert game.play(moves)


def _say_open_unless_fenced_now(patch: pytest.MonkeyPatch) -> None:
    """A bookie that knows nothing of the ledger, or lost what it knew, says no."""

    def check_fence(self: Handlers, connection: Responder, request: FenceCheckRequest) -> bool:
        ledger = self._store.ledgers.get(request.ledger_id)
        state = FenceState.FENCED if ledger is not None and ledger.is_fenced else FenceState.OPEN
        connection.answer(FenceCheckResponse(request.txn_id, Status.EOK, request.ledger_id, state))
        return True

    patch.setattr(Handlers, "_check_fence", check_fence)


def _never_say_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BookieLedger, "tell_fence", lambda *_: (Status.EOK, FenceState.OPEN))


def _ask_the_first_ensemble(patch: pytest.MonkeyPatch) -> None:
    """A change of the ensemble is not noticed."""
    ask = FenceQuestions.ask

    def ask_those_of_before(self: FenceQuestions, lease_ms: int = 0) -> asyncio.Future[bool]:
        core = self._core
        now, core.bookies = core.bookies, self.__dict__.setdefault("first", core.bookies)
        try:
            return ask(self, lease_ms)
        finally:
            core.bookies = now

    patch.setattr(FenceQuestions, "ask", ask_those_of_before)


@pytest.mark.parametrize(
    ("plant", "game"),
    [
        (_say_open_unless_fenced_now, _on_new_disks),
        (_never_say_fenced, _recovered),
        (_ask_the_first_ensemble, _after_changes),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], game: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert game(0)

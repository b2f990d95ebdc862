"""Leases of bookies on real bookies and the real client, played move by move: they end before a recovery does.

A writer keeps its lease as long as it can while another client recovers its ledger. When that one is told the end, the
lease must be over. The writer's clock runs as slowly as it may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from ledger.bookie.fence_waits import FenceWaits
from ledger.client.fence_questions import FenceQuestions
from ledger.client.write_handle import WriteHandle
from ledger.core import lease_promises, read_lease
from ledger.core.lease_promises import LeasePromises
from ledger.core.read_lease import RATE_RATIO_MAX, ReadLease
from ledger.storage.bookie_ledger import BookieLedger
from ledger.testing import SimHost, Simulation
from ledger.testing.cluster import SIM_CLIENT, SimCluster
from ledger.wire.codes import FenceState, Status

_LEASE_MS = 10_000
"""Long, so that bookies can start again, and be replaced, within one: what the bound is, is patched."""
_PLAY_S = 60.0
_SENT_S = 0.0001
"""After this a question has left, and no answer has come."""
_PATIENT = msgspec.structs.replace(SIM_CLIENT, request_timeout_s=30.0)


class _Game:
    """One writer, one recoverer.

    Attributes:
        is_stale: The lease has outlived a recovery.

    """

    def __init__(self, seed: int, *, bookie_count: int = 3) -> None:
        self.simulation = Simulation(seed)
        self.cluster = SimCluster(self.simulation, bookie_count=bookie_count)
        self.writer, self.recoverer = self.simulation.host("w"), self.simulation.host("r")
        self.writer.clock_rate = 1 / RATE_RATIO_MAX
        self.is_stale = False

    async def create(self) -> WriteHandle:
        client = await self.cluster.connect(self.writer, _PATIENT)
        await self.cluster.wait_until_writable(client)
        handle = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await handle.append(b"zero")
        await asyncio.sleep(1.1 * _LEASE_MS / 1000)  # No bookie waits out any more what was promised before it began.
        return handle

    async def renew(self, handle: WriteHandle) -> None:
        """Ask for a lease, again and again."""
        while True:
            await handle.check_fence(_LEASE_MS)
            await asyncio.sleep(0.05)

    async def take(self, handle: WriteHandle) -> None:
        """Have a lease."""

        async def ask() -> None:
            while not handle.holds_lease():
                await handle.check_fence(_LEASE_MS)
                await asyncio.sleep(0.05)

        await self.writer.spawn(ask())

    async def recover(self, handle: WriteHandle) -> None:
        """Recover the ledger; at once look whether the writer still holds its lease."""

        async def program() -> None:
            client = await self.cluster.connect(self.recoverer, _PATIENT)
            await client.open(handle.ledger_id)
            self.is_stale |= handle.holds_lease()

        await self.recoverer.spawn(program())

    def host_of(self, bookie_id: str) -> SimHost:
        return self.simulation.hosts[bookie_id.partition(":")[0]]

    async def restart(self, bookie_ids: tuple[str, ...]) -> None:
        hosts = [self.host_of(bookie_id) for bookie_id in bookie_ids]
        for host in hosts:
            host.kill()
            host.start()
        while any(host.name not in self.cluster.servers for host in hosts):
            await asyncio.sleep(0.01)

    def play(self, moves: Callable[[WriteHandle], object]) -> bool:
        """Make moves with an open ledger; return whether a lease has outlived a recovery."""

        async def main() -> None:
            self.cluster.start()
            handle = await self.writer.spawn(self.create())
            async with asyncio.timeout(_PLAY_S):
                await moves(handle)  # type: ignore[misc]

        self.simulation.run(main(), limit_s=400)
        return self.is_stale


def _recovered(seed: int) -> bool:
    """A lease that is renewed as long as bookies promise; the recovery comes to its end all the same."""
    game = _Game(seed)

    async def moves(handle: WriteHandle) -> None:
        game.writer.spawn(game.renew(handle))
        await asyncio.sleep(1 + 0.01 * seed)
        assert handle.holds_lease()
        await game.recover(handle)

    return game.play(moves)


def _restarted(seed: int) -> bool:
    """All bookies start again, and do not know what they have promised."""
    game = _Game(seed)

    async def moves(handle: WriteHandle) -> None:
        await game.take(handle)
        await game.restart(handle.metadata.segments[-1].bookies)
        await game.recover(handle)

    return game.play(moves)


def _asleep(seed: int) -> bool:
    """The writer stands still from when it has asked until after the recovery; only then it hears the answers."""
    game = _Game(seed)

    async def moves(handle: WriteHandle) -> None:
        async def ask() -> None:
            for _ in range(3):  # Each bookie is left out once: connected to all.
                assert await handle.check_fence()
            await asyncio.sleep(1)
            handle.check_fence(_LEASE_MS)

        await game.writer.spawn(ask())
        await asyncio.sleep(_SENT_S)
        game.writer.pause()
        await asyncio.sleep(0.5)
        assert all(server.counts().promises for server in game.cluster.servers.values())
        assert not handle.holds_lease()  # It has not heard of them.
        await game.recover(handle)
        game.writer.resume()
        await asyncio.sleep(0.1)
        game.is_stale |= handle.holds_lease()

    return game.play(moves)


def _replaced(seed: int) -> bool:
    """Two of three bookies are replaced while the lease holds; they are not fenced, their promises keep nobody."""
    game = _Game(seed, bookie_count=5)

    async def moves(handle: WriteHandle) -> None:
        async def append() -> None:
            await handle.append(b"more")

        await game.take(handle)
        left = handle.metadata.segments[-1].bookies[:2]
        for bookie_id in left:
            game.host_of(bookie_id).kill()
        while set(left) & set(handle.metadata.segments[-1].bookies):
            await game.writer.spawn(append())
            await asyncio.sleep(0.2)
        await game.recover(handle)

    return game.play(moves)


@pytest.fixture(autouse=True)
def _long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_promises, "LEASE_MS_MAX", _LEASE_MS)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("game", [_recovered, _restarted, _asleep, _replaced])
def test_a_lease_never_outlives_a_recovery(seed: int, game: Callable[[int], bool]) -> None:
    assert not game(seed)


def test_who_takes_the_place_of_another_can_promise() -> None:
    game = _Game(0, bookie_count=5)

    async def moves(handle: WriteHandle) -> None:
        async def append() -> None:
            await handle.append(b"more")

        first = handle.metadata.segments[-1].bookies[0]
        game.host_of(first).kill()
        while first in handle.metadata.segments[-1].bookies:
            await game.writer.spawn(append())
            await asyncio.sleep(0.2)
        await game.take(handle)

    assert not game.play(moves)


# --- planted bugs


def _forget_at_restart(patch: pytest.MonkeyPatch) -> None:
    begin = LeasePromises.__init__

    def begin_free(self: LeasePromises, now: float) -> None:
        begin(self, now)
        self._over_at = now

    patch.setattr(LeasePromises, "__init__", begin_free)


def _count_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    on_responses = FenceQuestions.on_responses

    def on_late(self: FenceQuestions, bookie_id: str, responses: list) -> None:  # type: ignore[type-arg]
        now = self._pool.lease_clock()
        late = [((check, place, wish._replace(asked_at=now)), answer) for (check, place, wish), answer in responses]
        on_responses(self, bookie_id, late)

    patch.setattr(FenceQuestions, "on_responses", on_late)


def _do_not_wait(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FenceWaits, "is_over", lambda _self, _ledger_id: True)


def _take_all_clocks_for_equal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(read_lease, "RATE_RATIO_MAX", 1.0)


def _count_those_who_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReadLease, "exclude", lambda _self, _positions: None)
    patch.setattr(ReadLease, "void", lambda _self: None)


def _promise_though_a_fence_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BookieLedger, "tell_fence", lambda *_: (Status.EOK, FenceState.OPEN))


@pytest.mark.parametrize(
    ("plant", "game"),
    [
        (_forget_at_restart, _restarted),
        (_count_from_the_answer, _asleep),
        (_do_not_wait, _recovered),
        (_take_all_clocks_for_equal, _recovered),
        (_count_those_who_left, _replaced),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], game: Callable[[int], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert game(0)


def test_a_writer_that_is_promised_more_while_a_fence_waits_keeps_it_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    _promise_though_a_fence_waits(monkeypatch)
    with pytest.raises(TimeoutError):
        _recovered(0)

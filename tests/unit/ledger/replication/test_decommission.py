"""What stands between a bookie and its decommission, on the metadata store's twin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.errors import LedgerError, NotEnoughBookiesError, UsageError
from ledger.replication.decommission import BookieDecommission, LedgersLeft
from ledger.replication.marks import MarkStore
from ledger.testing import Simulation
from ledger.wire import paths
from ledger.wire.metadata_format import Cookie
from ledger.zookeeper.ledgers import LedgerStore
from ledger.zookeeper.registration import create_cookie, had_cookie

ROOT = "/ledgers"
GONE = "c:3181"


def now_ms() -> int:
    return 7


class World:
    """A cluster of metadata alone: bookies are nodes."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)

    def run(self, play) -> None:
        self.simulation.run(play(), limit_s=300)

    async def ledgers(self, serving: Sequence[str]) -> LedgerStore:
        async def work() -> LedgerStore:
            store = await self.simulation.metadata.connect(session_timeout_ms=4_000)
            ledgers = LedgerStore(store, ROOT)
            await ledgers.ensure_layout("11111111-1111-1111-1111-111111111111")
            for bookie_id in serving:
                await store.create(paths.available_path(ROOT, bookie_id), b"", ephemeral=True)
            cookie = Cookie(GONE, "/journal", ("/ledgers",), None)
            await create_cookie(store, ROOT, GONE, cookie)
            return ledgers

        return await self.simulation.host("operator").spawn(work())


def metadata_of(*bookies: str) -> LedgerMetadata:
    quorum = QuorumConfig(len(bookies), len(bookies), 1)
    return LedgerMetadata(quorum, LedgerState.OPEN, (Segment(0, bookies),), DigestType.CRC32C, b"")


def test_every_ledger_that_names_the_bookie_is_marked_and_waited_for() -> None:
    world = World()

    async def play() -> None:
        ledgers = await world.ledgers(["a:3181", "b:3181", "d:3181"])
        for ledger_id in range(1, 101):
            await ledgers.create(ledger_id, metadata_of("a:3181", GONE if ledger_id % 2 else "b:3181"))
        work = BookieDecommission(ledgers, GONE, wall_ms=now_ms)
        left = await work.begin()
        odd = tuple(range(1, 101, 2))
        assert left == LedgersLeft(GONE, odd)
        marks = MarkStore(ledgers.store, ROOT, "")
        assert await marks.marked() == list(odd)
        assert (await marks.read(1))[0].bookie_ids == (GONE,)
        with pytest.raises(LedgerError, match=r"ledgers 1, 3, 5, 7, 9 name it"):
            await work.end()
        told: list[int] = []
        waiting = asyncio.get_running_loop().create_task(work.wait(left, lambda now: told.append(len(now.ledger_ids))))

        async def copy() -> None:
            for ledger_id in odd:
                _, version = await ledgers.read(ledger_id)
                await ledgers.write(ledger_id, metadata_of("a:3181", "d:3181"), version)
                await asyncio.sleep(0.1)

        await copy()
        assert await waiting == LedgersLeft(GONE, ())
        assert told[-1] == 0
        assert told == sorted(told, reverse=True)
        assert await work.end()
        assert await ledgers.store.exists(paths.cookie_path(ROOT, GONE)) is None
        assert await had_cookie(ledgers.store, ROOT, GONE)  # Disks that come back are known for given up.
        assert not await work.end()

    world.run(play)


def test_a_bookie_that_serves_is_not_taken_out() -> None:
    world = World()

    async def play() -> None:
        ledgers = await world.ledgers(["a:3181", "b:3181", GONE])
        await ledgers.create(1, metadata_of("a:3181", GONE))
        work = BookieDecommission(ledgers, GONE, wall_ms=now_ms)
        with pytest.raises(UsageError, match="serves: stop it first"):
            await work.begin()
        assert not await MarkStore(ledgers.store, ROOT, "").marked()

    world.run(play)


def test_a_bookie_that_comes_back_meanwhile_ends_the_wait_and_keeps_its_cookie() -> None:
    world = World()

    async def play() -> None:
        ledgers = await world.ledgers(["a:3181", "b:3181"])
        await ledgers.create(1, metadata_of("a:3181", GONE))
        work = BookieDecommission(ledgers, GONE, wall_ms=now_ms)
        left = await work.begin()
        waiting = asyncio.get_running_loop().create_task(work.wait(left, lambda _: None))
        await asyncio.sleep(1)
        assert not waiting.done()
        await ledgers.store.create(paths.read_only_path(ROOT, GONE), b"")
        with pytest.raises(UsageError, match="serves"):
            await waiting
        _, version = await ledgers.read(1)
        await ledgers.write(1, metadata_of("a:3181", "b:3181"), version)
        with pytest.raises(UsageError, match="serves"):
            await work.end()
        assert await ledgers.store.exists(paths.cookie_path(ROOT, GONE)) is not None

    world.run(play)


def test_a_writer_that_names_the_bookie_after_the_marks_is_found() -> None:
    world = World()

    async def play() -> None:
        ledgers = await world.ledgers(["a:3181", "b:3181"])
        await ledgers.create(1, metadata_of("a:3181", GONE))
        work = BookieDecommission(ledgers, GONE, wall_ms=now_ms)
        left = await work.begin()
        await ledgers.create(2, metadata_of("a:3181", GONE))
        waiting = asyncio.get_running_loop().create_task(work.wait(left, lambda _: None))
        _, version = await ledgers.read(1)
        await ledgers.write(1, metadata_of("a:3181", "b:3181"), version)
        await asyncio.sleep(1)
        assert 2 in await MarkStore(ledgers.store, ROOT, "").marked()
        assert not waiting.done()
        with pytest.raises(LedgerError, match="ledgers 2 name it"):
            await work.end()
        _, version = await ledgers.read(2)
        await ledgers.write(2, metadata_of("a:3181", "b:3181"), version)
        assert await waiting == LedgersLeft(GONE, ())

    world.run(play)


def test_a_drain_is_ordered_and_waits_until_the_bookie_obeys() -> None:
    world = World()

    async def play() -> None:
        ledgers = await world.ledgers(["a:3181", "b:3181", GONE])
        await ledgers.create(1, metadata_of("a:3181", GONE))
        work = BookieDecommission(ledgers, GONE, wall_ms=now_ms, is_drain=True)
        marks = MarkStore(ledgers.store, ROOT, "")
        beginning = asyncio.get_running_loop().create_task(work.begin())
        await asyncio.sleep(1)
        assert await marks.draining() == [GONE]
        assert not await marks.marked()
        await ledgers.create(2, metadata_of("a:3181", GONE))  # It still takes entries.
        await ledgers.store.create(paths.read_only_path(ROOT, GONE), b"", parents=True)
        await ledgers.store.delete(paths.available_path(ROOT, GONE))
        assert await beginning == LedgersLeft(GONE, (1, 2))
        assert await marks.marked() == [1, 2]
        with pytest.raises(UsageError, match="serves: stop it first"):
            await BookieDecommission(ledgers, GONE, wall_ms=now_ms).end()

    world.run(play)


def test_a_bookie_that_obeys_no_order_is_told_and_one_that_is_away_is_not_drained() -> None:
    world = World()

    async def play() -> None:
        ledgers = await world.ledgers(["a:3181", "b:3181"])
        await ledgers.create(1, metadata_of("a:3181", "b:3181"))
        await ledgers.store.create(paths.available_path(ROOT, "d:3181"), b"", ephemeral=True)
        with pytest.raises(LedgerError, match=r"still takes entries after 30 s: .* The order stands"):
            await BookieDecommission(ledgers, "b:3181", wall_ms=now_ms, is_drain=True).begin()
        with pytest.raises(UsageError, match="does not serve, and gives nothing away"):
            await BookieDecommission(ledgers, GONE, wall_ms=now_ms, is_drain=True).begin()
        assert await MarkStore(ledgers.store, ROOT, "").draining() == ["b:3181"]

    world.run(play)


def test_it_is_refused_before_anything_is_marked_where_it_cannot_be_done() -> None:
    world = World()

    async def play() -> None:
        ledgers = await world.ledgers(["a:3181", "b:3181"])
        await ledgers.create(1, metadata_of("a:3181", "b:3181", GONE))
        with pytest.raises(NotEnoughBookiesError, match="ledger 1 lies on a:3181, b:3181, c:3181, and no other bookie"):
            await BookieDecommission(ledgers, GONE, wall_ms=now_ms).begin()
        with pytest.raises(LedgerError, match="no ledger names it, and it has no cookie"):
            await BookieDecommission(ledgers, "x:3181", wall_ms=now_ms).begin()
        marks = MarkStore(ledgers.store, ROOT, "")
        await marks.set_enabled(False)
        with pytest.raises(LedgerError, match="auto-recovery is switched off"):
            await BookieDecommission(ledgers, GONE, wall_ms=now_ms).begin()
        assert not await marks.marked()

    world.run(play)


def test_a_ledger_that_nobody_can_read_keeps_the_cookie() -> None:
    world = World()

    async def play() -> None:
        ledgers = await world.ledgers(["a:3181", "b:3181"])
        await ledgers.store.create(paths.ledger_path(ROOT, 5), b"no metadata", parents=True)
        work = BookieDecommission(ledgers, GONE, wall_ms=now_ms)
        assert await work.begin() == LedgersLeft(GONE, (), (5,))
        with pytest.raises(LedgerError, match="ledgers 5 cannot be read, and may name it"):
            await work.end()

    world.run(play)

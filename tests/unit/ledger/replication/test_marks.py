"""Marks, locks, switches and votes on the metadata store's twin, with the trouble that it may make."""

from __future__ import annotations

import asyncio

import pytest

from ledger.errors import CorruptMetadataError, MetadataError
from ledger.ports import ANY_VERSION
from ledger.replication.election import AuditorElection
from ledger.replication.hints import Hints
from ledger.replication.marks import MarkStore
from ledger.testing import MetadataRates, Simulation
from ledger.wire.underreplication import Mark, encode_vote, lock_path, mark_path, vote_prefix


class World:
    def __init__(self, seed: int = 1, **rates) -> None:
        self.simulation = Simulation(seed, metadata_rates=MetadataRates(**rates))
        self.count = 0

    def run(self, play) -> None:
        self.simulation.run(play(), limit_s=300)

    def on(self, host: str, work):
        return self.simulation.host(host).spawn(work)

    async def marks(self, host: str = "a") -> MarkStore:
        async def work() -> MarkStore:
            store = await self.simulation.metadata.connect(session_timeout_ms=4_000)
            self.count += 1
            marks = MarkStore(store, "/ledgers", f"{host}:{self.count}")
            await marks.ensure_layout()
            return marks

        return await self.on(host, work())


def test_a_mark_is_read_back_and_removed_with_its_folders() -> None:
    world = World()

    async def play() -> None:
        marks = await world.marks()

        async def work() -> None:
            assert await marks.mark(70_000, ["b:1"], 5)
            assert await marks.marked() == [70_000]
            mark, version = await marks.read(70_000)
            assert mark == Mark(("b:1",), 5)
            assert await marks.unmark(70_000, version)
            assert await marks.read(70_000) is None
            assert await marks.store.children(mark_path("/ledgers")) == []

        await world.on("a", work())

    world.run(play)


def test_marking_again_adds_what_is_new_and_keeps_a_worker_from_removing_it() -> None:
    world = World()

    async def play() -> None:
        marks = await world.marks()

        async def work() -> None:
            await marks.mark(1, ["b:1"], 5)
            _, version = await marks.read(1)
            assert not await marks.mark(1, ["b:1"], 6)
            assert await marks.mark(1, ["b:1", "b:2"], 7)
            assert (await marks.read(1))[0] == Mark(("b:1", "b:2"), 7)
            assert not await marks.unmark(1, version)
            assert await marks.marked() == [1]

        await world.on("a", work())

    world.run(play)


def test_two_auditors_that_mark_at_once_lose_no_name() -> None:
    for seed in range(10):
        world = World(seed)

        async def play(world=world) -> None:
            first, second = await world.marks("a"), await world.marks("b")
            tasks = [
                world.on("a", first.mark(1, ["b:1"], 5)),
                world.on("b", second.mark(1, ["b:2"], 5)),
            ]
            await asyncio.gather(*tasks)
            mark, _ = await world.on("a", first.read(1))
            assert sorted(mark.bookie_ids) == ["b:1", "b:2"]

        world.run(play)


def test_marked_ledgers_are_found_all_or_some_of_them() -> None:
    world = World()
    ids = [1, 2, 65_536, 1 << 40]

    async def play() -> None:
        marks = await world.marks()

        async def work() -> None:
            for ledger_id in ids:
                await marks.mark(ledger_id, ["b:1"], 5)
            assert await marks.marked() == ids
            assert len(await marks.marked(rng=world.simulation.random("x"), limit=2)) == 2
            assert await marks.marked(excluded=[1, 65_536]) == [2, 1 << 40]

        await world.on("a", work())

    world.run(play)


def test_one_of_two_workers_gets_the_lock_and_the_other_when_the_first_is_dead() -> None:
    world = World()

    async def play() -> None:
        first, second = await world.marks("a"), await world.marks("b")
        lock = await world.on("a", first.lock(1))
        assert lock.is_held
        assert await world.on("a", first.lock(1)) is None
        assert await world.on("b", second.lock(1)) is None
        assert await world.on("b", second.locked()) == [1]
        assert await world.on("b", second.owner_of(1)) == first.owner
        world.simulation.host("a").kill()
        await asyncio.sleep(5)
        lock = await world.on("b", second.lock(1))
        assert lock.is_held
        await world.on("b", second.unlock(lock))
        assert await world.on("b", second.locked()) == []

    world.run(play)


def test_a_lock_is_not_held_once_its_session_is_in_doubt() -> None:
    world = World()

    async def play() -> None:
        marks = await world.marks("a")
        lock = await world.on("a", marks.lock(1))
        world.simulation.metadata.set_available(False)
        await asyncio.sleep(4)
        assert not lock.is_held

    world.run(play)


def test_a_lock_whose_reply_was_lost_does_not_block_the_ledger_for_ever() -> None:
    for seed in range(10):
        world = World(seed, lost_reply_rate=0.3)

        async def play(world=world) -> None:
            marks = None
            while marks is None:
                try:
                    marks = await world.marks("a")
                except MetadataError:
                    await asyncio.sleep(0.5)

            async def work() -> None:
                taken = 0
                while taken < 3:
                    lock = None
                    try:
                        if 1 not in await marks.locked():
                            lock = await marks.lock(1)
                    except MetadataError:
                        pass
                    if lock is None:
                        await asyncio.sleep(0.5)
                        continue
                    taken += 1
                    await marks.unlock(lock)

            await world.on("a", work())

        world.run(play)


def test_the_switch_and_the_delay_are_those_of_the_cluster() -> None:
    world = World()

    async def play() -> None:
        marks = await world.marks()

        async def work() -> None:
            hints = Hints()
            assert await marks.is_enabled(hints)
            await marks.set_enabled(False)
            await hints.wait(2.0)
            assert not await marks.is_enabled()
            await marks.set_enabled(False)
            await marks.set_enabled(True)
            await marks.set_enabled(True)
            assert await marks.is_enabled()
            assert await marks.recovery_delay_s(7) == 7
            assert await marks.recovery_delay_s(8) == 7
            await marks.set_recovery_delay_s(9)
            assert await marks.recovery_delay_s(8) == 9
            assert await marks.checked_ms() is None
            await marks.set_checked_ms(123)
            await marks.set_checked_ms(124)
            assert await marks.checked_ms() == 124

        await world.on("a", work())

    world.run(play)


def test_marks_of_another_layout_are_left_alone() -> None:
    world = World()

    async def play() -> None:
        async def work() -> None:
            store = await world.simulation.metadata.connect()
            layout = b'type: "TREE"\nversion: 3\n'
            await store.create("/ledgers/underreplication/LAYOUT", layout, parents=True)
            with pytest.raises(CorruptMetadataError, match="TREE"):
                await MarkStore(store, "/ledgers", "me").ensure_layout()
            assert (await store.get("/ledgers/underreplication/LAYOUT")).value == layout

        await world.on("a", work())

    world.run(play)


def test_the_next_candidate_leads_when_the_auditor_is_dead() -> None:
    world = World()

    async def play() -> None:
        first, second = await world.marks("a"), await world.marks("b")
        one, two = AuditorElection(first), AuditorElection(second)
        await world.on("a", one.wait_until_elected())
        waiting = world.on("b", two.wait_until_elected())
        await asyncio.sleep(10)
        assert not waiting.done()
        assert await world.on("b", two.leader()) == first.owner
        world.simulation.host("a").kill()
        await asyncio.wait_for(waiting, 6)
        assert await world.on("b", two.leader()) == second.owner

    world.run(play)


def test_an_auditor_that_withdraws_is_followed_at_once() -> None:
    world = World()

    async def play() -> None:
        first, second = await world.marks("a"), await world.marks("b")
        one, two = AuditorElection(first), AuditorElection(second)
        await world.on("a", one.wait_until_elected())
        waiting = world.on("b", two.wait_until_elected())
        await asyncio.sleep(1)
        await world.on("a", one.withdraw())
        await asyncio.wait_for(waiting, 3)

    world.run(play)


def test_an_auditor_whose_session_is_gone_is_deposed() -> None:
    world = World()

    async def play() -> None:
        marks = await world.marks("a")
        election = AuditorElection(marks)
        await world.on("a", election.wait_until_elected())
        deposed = world.on("a", election.wait_until_deposed())
        await asyncio.sleep(6)
        assert not deposed.done()
        world.simulation.metadata.expire(marks.store.session_id)
        await asyncio.wait_for(deposed, 10)

    world.run(play)


def test_a_vote_that_another_process_left_is_waited_for() -> None:
    world = World()

    async def play() -> None:
        other, mine = await world.marks("a"), await world.marks("b")
        foreign = await world.on(
            "a",
            other.store.create(vote_prefix("/ledgers"), b'bookieId: "java:3181"\n', ephemeral=True, sequential=True),
        )
        election = AuditorElection(mine)
        waiting = world.on("b", election.wait_until_elected())
        await asyncio.sleep(6)
        assert not waiting.done()
        assert await world.on("b", election.leader()) == "java:3181"
        await world.on("a", other.store.delete(foreign, ANY_VERSION))
        await asyncio.wait_for(waiting, 6)
        assert await world.on("b", mine.store.exists(lock_path("/ledgers", 1))) is None

    world.run(play)


def test_two_candidates_of_which_one_has_voted_twice_do_not_wait_for_each_other() -> None:
    world = World()

    async def play() -> None:
        first, second = await world.marks("a"), await world.marks("b")
        lost = encode_vote(first.owner)  # the reply to this one never came
        await world.on("a", first.store.create(vote_prefix("/ledgers"), lost, ephemeral=True, sequential=True))
        one, two = AuditorElection(first), AuditorElection(second)
        waiting = world.on("b", two.wait_until_elected())
        await asyncio.sleep(1)
        await asyncio.wait_for(world.on("a", one.wait_until_elected()), 20)
        assert not waiting.done()
        deposed = world.on("a", one.wait_until_deposed())
        await asyncio.sleep(10)
        assert not deposed.done()
        await world.on("a", one.withdraw())
        await asyncio.wait_for(waiting, 10)

    world.run(play)

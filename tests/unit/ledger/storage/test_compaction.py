"""Compaction keeps what lives, whatever happens meanwhile, and lets the rest go."""

from __future__ import annotations

import asyncio
import random
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import CorruptStorageError
from ledger.storage.compaction import CompactionSettings, plan
from ledger.storage.index import SegmentRow
from ledger.storage.journal import JournalItem
from ledger.storage.records import fence_record
from ledger.storage.segment_format import BLOCK_ENTRIES_MAX
from ledger.testing import SimDisk
from tests.unit.ledger.storage.store_bench import KEY, StoreBench, entry

SETTINGS = CompactionSettings(small_count=100)
NOW_MS = 1_000_000_000_000
# No idle mark comes while a test has broken the disk, or counts its operations.
NO_MARKS = {"idle_mark_s": 3600.0}
DAY_MS = 86_400_000


async def with_segments(*, keep_index: bool = True, disk: SimDisk | None = None, **compaction) -> StoreBench:
    """Three segments; ledgers 1 and 2 have a part in each, ledger 10 + n only in one."""
    settings = CompactionSettings(**{"small_count": 100, "bytes_per_s": 1 << 40} | compaction)
    bench = StoreBench(disk, keep_index=keep_index, journal=NO_MARKS, compaction=settings)
    for part in range(3):
        await bench.open()
        ids = range(part * 5, part * 5 + 5)
        await bench.add(*[(1, n) for n in ids], *[(2, n) for n in ids], *[(10 + part, n) for n in range(5)], size=200)
    await bench.open()
    return bench


LIVING = [(1, n) for n in range(15)] + [(11, n) for n in range(5)] + [(12, n) for n in range(5)]


async def holds(bench: StoreBench, places) -> None:
    for place in places:
        found = await bench.read(*place)
        assert found == entry(*place, 200), f"{place}: {found!r}"  # type: ignore[call-arg]


def test_what_lives_is_kept_and_the_rest_goes() -> None:
    async def run() -> None:
        bench = await with_segments()
        before = sum(len(bench.disk.files()[name]) for name in bench.segment_files())
        assert sorted(await bench.store.deletions.delete([2, 10], NOW_MS)) == [2, 10]
        gone = await bench.store.compactor.compact(0.8, NOW_MS)
        assert len(gone) == 3
        assert len(bench.segment_files()) == 1
        assert sum(len(bench.disk.files()[name]) for name in bench.segment_files()) < before * 0.7
        await holds(bench, LIVING)
        assert await bench.read(2, 0) is None
        await bench.open()
        await holds(bench, LIVING)
        assert await bench.store.compactor.compact(0.8, NOW_MS) == []

    asyncio.run(run())


@pytest.mark.parametrize("keep_index", [True, False])
def test_a_power_cut_at_any_operation_leaves_all_that_lives(keep_index) -> None:
    async def run(cut_after: int) -> bool:
        bench = await with_segments(keep_index=keep_index, disk=SimDisk(random.Random(cut_after)))
        await bench.store.deletions.delete([2, 10], NOW_MS)
        bench.disk.operations_left = cut_after
        await bench.run(bench.store.compactor.compact(0.8, NOW_MS))
        is_cut = bench.is_cut
        bench.disk.operations_left = None
        bench.disk.lose_power()
        await bench.open()
        assert bench.store.limbo.reasons == ()
        await holds(bench, LIVING)
        assert await bench.read(2, 0) is None
        await bench.store.resident.load([2])
        assert bench.store.ledgers[2].is_deleted
        await bench.store.compactor.compact(0.8, NOW_MS)
        await holds(bench, LIVING)
        names = bench.segment_files()
        assert len(names) <= 2, f"left behind: {names}"  # What lives, and the note of the deletion.
        assert not [name for name in bench.disk.files() if name.endswith(".tmp")]
        assert not bench.failures
        return is_cut

    cuts = 0
    while True:
        try:
            if not asyncio.run(run(cuts)):
                break
        except AssertionError as error:
            raise AssertionError(f"cut after {cuts} operations: {error}") from error
        cuts += 1
    assert cuts > 15


@pytest.mark.parametrize("keep_index", [True, False])
def test_a_power_cut_in_the_restart_after_a_power_cut_leaves_all_that_lives(keep_index) -> None:
    async def run(seed: int) -> None:
        rng = random.Random(seed)
        bench = await with_segments(keep_index=keep_index, disk=SimDisk(rng))
        await bench.store.deletions.delete([2, 10], NOW_MS)
        bench.disk.operations_left = rng.randrange(60)
        await bench.run(bench.store.compactor.compact(0.8, NOW_MS))
        bench.disk.lose_power()
        for _ in range(3):
            bench.disk.operations_left = rng.randrange(100)
            await bench.open()
            bench.disk.lose_power()
        bench.disk.operations_left = None
        await bench.open()
        assert bench.store.limbo.reasons == ()
        await holds(bench, LIVING)

    for seed in range(60):
        asyncio.run(run(seed))


def test_reads_between_the_steps_find_everything() -> None:
    async def run() -> None:
        bench = await with_segments()
        await bench.store.deletions.delete([2], NOW_MS)
        compacting = asyncio.get_running_loop().create_task(bench.store.compactor.compact(0.9, NOW_MS))
        reads = 0
        while not compacting.done():
            await holds(bench, [LIVING[reads % len(LIVING)]])
            reads += 1
        assert len(compacting.result()) == 3
        assert reads > 3

    asyncio.run(run())


def test_a_reader_that_knows_a_block_of_a_segment_that_went_asks_the_index_again() -> None:
    async def run() -> None:
        bench = await with_segments()
        await bench.store.deletions.delete([2], NOW_MS)
        index, stale = bench.store.index, {(1, n): bench.store.index.candidates(1, n) for n in range(15)}
        await bench.store.compactor.compact(0.9, NOW_MS)
        fresh = index.candidates
        asked: list[int] = []

        def stale_once(ledger_id: int, entry_id: int):
            asked.append(entry_id)
            return stale.pop((ledger_id, entry_id), None) or fresh(ledger_id, entry_id)

        index.candidates = stale_once
        await holds(bench, [(1, 0), (1, 6), (1, 14)])
        assert len(asked) > 3

    asyncio.run(run())


def test_ledgers_deleted_while_their_blocks_are_copied_stay_deleted() -> None:
    async def run() -> None:
        bench = await with_segments()
        await bench.store.deletions.delete([2], NOW_MS)
        submit = bench.store.compactor._executor.submit
        jobs = 0

        def deletes_before_the_commit(fn):
            nonlocal jobs
            jobs += 1
            if jobs == 3:  # rows, a step, the last step: now the commit.
                bench.store.index.drop_ledgers([1], NOW_MS)
            return submit(fn)

        bench.store.compactor._executor.submit = deletes_before_the_commit
        await bench.store.compactor.compact(0.9, NOW_MS)
        assert jobs > 3
        assert bench.store.index.blocks(1) == []
        assert await bench.read(1, 0) is None
        rows = [row for row in bench.store.index.segments() if row.byte_count]
        assert [row.live_byte_count < row.byte_count for row in rows] == [True]

    asyncio.run(run())


def test_a_damaged_block_keeps_its_segment() -> None:
    """What it held is unknown; compacted away, it would be absent."""

    async def run() -> None:
        bench = await with_segments()
        await bench.store.deletions.delete([2], NOW_MS)
        row = bench.store.index.blocks(1)[1]
        path = bench.store.segments.path(row.segment_id)
        bench.disk.rot(path, byte_offset=row.byte_offset + 100)
        assert await bench.store.compactor.compact(0.9, NOW_MS) == []
        assert len(bench.segment_files()) == 3 + 0
        assert isinstance(await bench.read(1, 7), CorruptStorageError)
        assert await bench.read(1, 0) == entry(1, 0, 200)
        assert [damage.row for damage in bench.store.damages.found()] == [row]
        assert not [name for name in bench.disk.files() if name.endswith(".tmp")]

    asyncio.run(run())


def test_without_room_nothing_changes_and_it_is_done_later() -> None:
    async def run() -> None:
        bench = await with_segments()
        await bench.store.deletions.delete([2], NOW_MS)
        bench.disk.write_error_rate = 1.0
        assert await bench.store.compactor.compact(0.9, NOW_MS) == []
        assert len(bench.segment_files()) == 3
        assert not bench.failures
        bench.disk.make_healthy()
        assert len(await bench.store.compactor.compact(0.9, NOW_MS)) == 3
        await holds(bench, LIVING)

    asyncio.run(run())


def test_an_error_of_a_sync_stops_the_bookie_and_unlinks_nothing() -> None:
    async def run() -> None:
        bench = await with_segments()
        await bench.store.deletions.delete([2], NOW_MS)
        before = bench.segment_files()
        bench.disk.sync_error_rate = 1.0
        with pytest.raises(OSError, match="fdatasync"):
            await bench.store.compactor.compact(0.9, NOW_MS)
        assert bench.failures
        assert set(before) <= set(bench.segment_files())

    asyncio.run(run())


def test_fences_and_keys_outlive_the_entries_beside_them() -> None:
    async def run() -> None:
        bench = await with_segments(keep_index=False)
        ledger = bench.store.create(77, KEY)[0]
        generation = bench.store.claim(200)
        tail_bytes = fence_record(77)
        bench.store.tail_of(ledger, generation)
        done = asyncio.get_running_loop().create_future()
        item = JournalItem([tail_bytes], array("I", (0, len(tail_bytes))), 1, lambda _: done.set_result(None))
        bench.store.journal.append(generation, item)
        await done
        await bench.add((2, 99))
        await bench.open()
        await bench.store.deletions.delete([1, 2, 10, 11, 12], NOW_MS)
        await bench.store.compactor.compact(0.9, NOW_MS)
        await bench.open()
        await bench.store.resident.load([77])
        assert bench.store.ledgers[77].is_fenced

    asyncio.run(run())


def test_deletions_outlive_the_index_and_are_forgotten_after_seven_days() -> None:
    async def run() -> None:
        bench = await with_segments(keep_index=False, small_count=2)
        await bench.store.deletions.delete([1, 2, 10, 11, 12], NOW_MS)
        for day in (0, 6):
            await bench.open()
            await bench.store.deletions.forget(NOW_MS + day * DAY_MS)
            await bench.store.compactor.compact(0.9, NOW_MS + day * DAY_MS)
            await bench.store.resident.load([1])
            assert bench.store.ledgers[1].is_deleted, f"day {day}"
        await bench.open()
        assert await bench.store.deletions.forget(NOW_MS + 8 * DAY_MS) == 5
        await bench.store.resident.load([1])
        assert bench.store.resident.is_known_absent(1)
        await bench.add((3, 0))
        await bench.open()
        await bench.store.deletions.forget(NOW_MS + 8 * DAY_MS)
        await bench.store.compactor.compact(0.9, NOW_MS + 8 * DAY_MS)
        await bench.open()
        await bench.store.resident.load([1])
        assert bench.store.resident.is_known_absent(1), "the note of its deletion is still there"

    asyncio.run(run())


def test_too_many_deletions_are_forgotten_oldest_first() -> None:
    async def run() -> None:
        bench = await with_segments(deleted_count_max=2)
        for n, ledger_id in enumerate((12, 1, 11)):
            await bench.store.deletions.delete([ledger_id], NOW_MS + n)
        assert await bench.store.deletions.forget(NOW_MS + 5) == 1
        assert [i for i, _ in bench.store.index.deleted_ledgers(0, 9)] == [1, 11]

    asyncio.run(run())


def test_a_load_under_way_while_its_ledger_is_deleted_does_not_bring_it_back() -> None:
    async def run() -> None:
        bench = await with_segments()
        loop = asyncio.get_running_loop()
        for delay in range(12):
            bench = await with_segments()
            deleting = loop.create_task(bench.store.deletions.delete([1], NOW_MS))
            for _ in range(delay):
                await asyncio.sleep(0)
            loading = bench.store.resident.load([1])
            await deleting
            await loading
            assert bench.store.ledgers[1].is_deleted, f"load begun {delay} turns later"

    asyncio.run(run())


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6)), min_size=1, max_size=12, unique=True),
        min_size=2,
        max_size=5,
    )
)
@settings(deadline=None, max_examples=60)
def test_entries_that_came_again_in_other_segments_are_all_kept(parts) -> None:
    """Blocks of several segments begin with the same entry; compacted again and again, nothing is lost."""

    async def run() -> None:
        bench = StoreBench(compaction=CompactionSettings(small_count=2, bytes_per_s=1 << 40))
        held: dict[tuple[int, int], None] = {}
        for part in parts:
            await bench.open()
            await bench.add(*part, size=200)
            held |= dict.fromkeys(part)
            await bench.open()
            await bench.store.compactor.compact(1.0, NOW_MS)
            assert len(bench.segment_files()) == 1
            await holds(bench, held)
        for ledger_id in (1, 2, 3):
            assert await bench.store.list_entries(ledger_id) == sorted(n for i, n in held if i == ledger_id)

    asyncio.run(run())


def test_long_blocks_that_were_joined_still_list_their_entries() -> None:
    async def run() -> None:
        bench = StoreBench(
            journal={"file_bytes": 1 << 19}, compaction=CompactionSettings(small_count=2, bytes_per_s=1 << 40)
        )
        for ids in ([0, *range(1, 1100, 2)], range(0, 1100, 2)):
            await bench.open()
            await bench.add(*[(1, n) for n in ids])
        await bench.open()
        await bench.store.compactor.compact(1.0, NOW_MS)
        assert len(bench.store.segments.entry_ids(bench.store.index.blocks(1)[0])) > BLOCK_ENTRIES_MAX
        assert await bench.store.list_entries(1) == list(range(1100))

    asyncio.run(run())


@given(st.lists(st.tuples(st.integers(0, 100), st.floats(0, 1)), max_size=40), st.floats(0, 1))
def test_a_plan_takes_what_is_worth_it_in_groups_that_fit(sizes, share) -> None:
    settings = CompactionSettings(segment_bytes=100, small_bytes=10, small_count=5)
    rows = [SegmentRow(n, size, int(size * live)) for n, (size, live) in enumerate(sizes)]
    groups = plan(rows, share, settings)
    by_id = {row.segment_id: row for row in rows}
    chosen = [i for group in groups for i in group]
    assert chosen == sorted(set(chosen))
    for group in groups:
        assert len(group) == 1 or sum(by_id[i].live_byte_count for i in group) <= 100
        if len(group) == 1:
            assert by_id[group[0]].live_byte_count < by_id[group[0]].byte_count
    for row in rows:
        if row.live_byte_count < row.byte_count and row.live_byte_count <= share * row.byte_count:
            assert row.segment_id in chosen

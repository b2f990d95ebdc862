"""Damage that leaves nothing valid behind it: a bookie whose files show less than they must knows of the loss."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from ledger.storage.landmarks import FILE_NAME, Landmarks
from ledger.storage.segments import Segments
from ledger.testing import SimDisk
from ledger.testing.disk import SimPowerCut
from tests.unit.ledger.storage.store_bench import StoreBench, entry

_LANDMARKS = f"/b/ledgers/{FILE_NAME}"


def _newest_journal(disk: SimDisk) -> str:
    return max(name for name in disk.files() if name.endswith(".j"))


def _content(disk: SimDisk, path: str) -> list[bytearray]:
    file = disk._names[path]
    return [file.cached, file.durable]


def _truncate(disk: SimDisk) -> None:
    for content in _content(disk, _newest_journal(disk)):
        del content[4_000:]


def _empty(disk: SimDisk) -> None:
    for content in _content(disk, _newest_journal(disk)):
        content.clear()


def _delete(disk: SimDisk) -> None:
    path = _newest_journal(disk)
    disk.remove(path)
    disk.fsync_dir("/b/journal")


def _zero(disk: SimDisk) -> None:
    for content in _content(disk, _newest_journal(disk)):
        content[:] = bytes(len(content))


def _zero_tail(disk: SimDisk) -> None:
    for content in _content(disk, _newest_journal(disk)):
        used = len(content.rstrip(b"\0"))
        content[used * 6 // 10 :] = bytes(len(content) - used * 6 // 10)


def _lose_landmarks(disk: SimDisk) -> None:
    for content in _content(disk, _LANDMARKS):
        content[:] = bytes(len(content))


def _delete_segment(disk: SimDisk) -> None:
    disk.remove(next(name for name in disk.files() if name.endswith(".seg")))


def _rot_the_only_batch_of_the_newest(disk: SimDisk) -> None:
    for content in _content(disk, _newest_journal(disk)):
        content[100] ^= 1


async def _written(bench: StoreBench) -> None:
    """Fill a segment and a part of a journal file; then the journal is idle."""
    await bench.open()
    await bench.add(*[(1, n) for n in range(20)])
    await bench.open()
    for n in range(20, 60):
        await bench.add((1, n), size=200)
    await _be_idle(bench)


async def _be_idle(bench: StoreBench) -> None:
    async with asyncio.timeout(60):
        while bench.store.landmarks.held.synced_to == 0:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "damage",
    [_truncate, _empty, _delete, _zero, _zero_tail, _lose_landmarks, _delete_segment],
    ids=lambda f: f.__name__,
)
def test_what_is_missing_is_a_loss(damage: Callable[[SimDisk], None]) -> None:
    async def run() -> None:
        bench = StoreBench(keep_index=damage is not _delete_segment)  # It knows its segments, too.
        await _written(bench)
        damage(bench.disk)
        await bench.open()
        found = bench.store.limbo.reasons
        assert found
        for _ in range(2):  # Noted for good, and not found again.
            await bench.open()
            assert bench.store.limbo.reasons == found
            for n in range(60):
                assert await bench.read(1, n) in (None, entry(1, n, 40 if n < 20 else 200))

    asyncio.run(run())


def test_the_newest_segment_is_missed_though_no_index_knows_of_it() -> None:
    """Nothing else holds its entries once its journal file is free."""

    async def run() -> None:
        bench = StoreBench(keep_index=False)
        await bench.open()
        while not any(name.endswith(".seg") for name in bench.disk.files()):
            await bench.add((1, bench.store.journal.batch_count), size=2_000)
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            while len(bench.store.landmarks.held.journal_ids) > 1:
                await asyncio.sleep(0.001)
        bench.disk.remove(max(name for name in bench.disk.files() if name.endswith(".seg")))
        await bench.open()
        assert "1 segments are gone" in " ".join(bench.store.limbo.reasons)
        assert await bench.read(1, 0) in (None, entry(1, 0, 2_000))

    asyncio.run(run())


def test_a_conversion_beside_a_compaction_leaves_both_segments_named() -> None:
    disk = SimDisk(random.Random(1))
    landmarks, segments = Landmarks(disk, "/b"), Segments(disk, ["/b"])
    segments.open()
    landmarks.replace()
    segments.landmarks = landmarks
    slow, quick = segments.create(7), segments.create(5)
    for segment_id, writer in ((5, quick), (7, slow)):
        writer.add_block(1, [segment_id], [b"x"], -1)
        writer.finish([])
        segments.add(segment_id, writer)
        landmarks.free_journal(segment_id, segments.segment_ids(), segments.coming_ids)
        held = Landmarks(disk, "/b").held
        assert held.coming_ids == ((7,) if segment_id == 5 else ())
        assert held.lost_segment_count(segments.segment_ids()) == 0
        assert held.lost_segment_count([5, 7]) == 0
        assert held.lost_segment_count([i for i in segments.segment_ids() if i != segment_id]) == 1
    segments.create(9).abandon()
    segments.give_up(9)
    assert segments.coming_ids == []


def test_a_seal_that_is_missing_is_a_loss_though_the_next_file_holds_nothing_any_more() -> None:
    async def run() -> None:
        bench = StoreBench(journal={"file_count": 3})
        await bench.open()
        bench.store.flusher.convert = lambda generation: None  # noqa: ARG005 - Both files are there at the end.
        while len(bench.store.journal.generations) < 2:
            await bench.add((1, bench.store.journal.batch_count), size=2_000)
        first, second = sorted(name for name in bench.disk.files() if name.endswith(".j"))
        _rot_the_only_batch_of_the_newest(bench.disk)
        for content in _content(bench.disk, first):
            used = len(content.rstrip(b"\0"))
            content[used - 100 :] = bytes(len(content) - used + 100)
        assert second > first
        await bench.open()
        assert first.rpartition("/")[2] in " ".join(bench.store.limbo.reasons)

    asyncio.run(run())


def test_a_folder_from_before_there_were_landmarks_comes_up_clean() -> None:
    """Its journal files have the size that its configuration had then."""

    async def run() -> None:
        bench = StoreBench()
        await _written(bench)
        bench.disk.remove(_LANDMARKS)
        bench.settings = StoreBench(journal={"file_bytes": 1 << 17}).settings
        await bench.open()
        assert not bench.store.limbo.reasons
        for n in range(60):
            assert await bench.read(1, n) == entry(1, n, 40 if n < 20 else 200)
        await bench.open()
        assert not bench.store.limbo.reasons

    asyncio.run(run())


@pytest.mark.parametrize("is_lost", [False, True])
def test_segments_of_a_version_that_knows_no_landmarks_are_no_loss_but_older_ones_that_are_gone_are(
    is_lost: bool,
) -> None:
    """One step back to such a version, and forward again: it leaves the landmarks as they were."""

    async def run() -> None:
        bench = StoreBench(keep_index=not is_lost)
        await _written(bench)
        await bench.open()
        before = [bytes(content) for content in _content(bench.disk, _LANDMARKS)]
        for turn in range(3):
            await bench.add(*[(2, 10 * turn + n) for n in range(10)])
            await bench.open()
        if is_lost:
            bench.disk.remove(min(name for name in bench.disk.files() if name.endswith(".seg")))
        for content, then in zip(_content(bench.disk, _LANDMARKS), before, strict=True):
            content[:] = then
        await bench.open()
        assert bool(bench.store.limbo.reasons) == is_lost
        for n in range(30):
            assert await bench.read(2, n) == entry(2, n, 40)

    asyncio.run(run())


@pytest.mark.parametrize("damage", [_truncate, _empty], ids=lambda f: f.__name__)
def test_before_there_were_landmarks_all_files_had_one_size(damage: Callable[[SimDisk], None]) -> None:
    async def run() -> None:
        bench = StoreBench()
        await _written(bench)
        bench.disk.remove(_LANDMARKS)
        damage(bench.disk)
        await bench.open()
        assert bench.store.limbo.reasons

    asyncio.run(run())


def test_no_power_cut_anywhere_makes_a_loss_of_what_is_whole() -> None:
    """Through a start that replays, rolls, conversions: whatever operation is the last."""

    async def run(cut_after: int) -> bool:
        bench = StoreBench()
        await _written(bench)
        bench.disk.operations_left = cut_after
        try:
            if await bench.open() is not None:
                for n in range(60, 400):
                    if await bench.run(bench.add((1, n), size=400)) is None and bench.is_cut:
                        break
        except (SimPowerCut, AssertionError):
            bench.is_cut = True
        is_cut = bench.is_cut
        bench.disk.operations_left = None
        bench.disk.lose_power()
        await bench.open()
        assert not bench.store.limbo.reasons, f"after {cut_after} operations: {bench.store.limbo.reasons}"
        for n in range(60):
            assert await bench.read(1, n) == entry(1, n, 40 if n < 20 else 200)
        return is_cut

    cuts = 0
    while asyncio.run(run(cuts)):
        cuts += 1 if cuts < 100 else 11
    assert cuts > 150


def test_a_torn_write_of_the_landmarks_leaves_those_before() -> None:
    disk = StoreBench().disk
    disk.make_dirs("/b")
    landmarks = Landmarks(disk, "/b")
    landmarks.replace(journal_file_bytes=10)
    for number in range(1, 6):
        landmarks.raise_age("p")
        content = bytearray(disk.files()[f"/b/{FILE_NAME}"])
        slot = landmarks.held.number % 2 * (len(content) // 2)
        content[slot + 8 : slot + 40] = bytes(32)
        torn = StoreBench().disk
        torn.make_dirs("/b")
        torn.pwritev(torn.open(f"/b/{FILE_NAME}", create=True), [bytes(content)], 0)
        found = Landmarks(torn, "/b")
        assert (found.held.age.count, found.held.journal_file_bytes, found.damage) == (number - 1, 10, "")


def test_landmarks_hold_as_many_journal_files_as_anybody_has() -> None:
    disk = StoreBench().disk
    disk.make_dirs("/b")
    landmarks = Landmarks(disk, "/b")
    landmarks.replace()
    ids = [(1 << 63) + n for n in range(1_100)]
    for journal_id in ids:
        landmarks.open_journal(journal_id)
    landmarks.change_segments([], coming=ids, going=ids)
    assert Landmarks(disk, "/b").held.journal_ids == tuple(ids[-1_000:])

"""The store by itself: runs of entries, several directories, bounds, damage and its repair."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest

from ledger.errors import CorruptStorageError
from ledger.storage.disk import RealDisk
from ledger.testing import SimDisk
from tests.unit.ledger.storage.store_bench import StoreBench, entry


class TwoDisks(SimDisk):
    """Folders below /b/more are on a disk of their own."""

    def __init__(self, rng: random.Random, *, main_bytes: int, more_bytes: int) -> None:
        super().__init__(rng)
        self.main_bytes = main_bytes
        self.more_bytes = more_bytes

    def _used(self, *, is_more: bool) -> int:
        return sum(len(content) for name, content in self.files().items() if name.startswith("/b/more") == is_more)

    def free_bytes(self, path: str) -> int:
        if path.startswith("/b/more"):
            return max(0, self.more_bytes - self._used(is_more=True))
        return max(0, self.main_bytes - self._used(is_more=False))


async def fill(bench: StoreBench, ledger_id: int, count: int, *, first: int = 0, size: int = 200) -> None:
    for start in range(first, first + count, 20):
        await bench.add(*[(ledger_id, n) for n in range(start, min(start + 20, first + count))], size=size)


def unpacked(run) -> list[bytes]:
    data, bodies = b"".join(map(bytes, run.pieces)), []
    assert len(data) == run.byte_count
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        bodies.append(data[4:end])
        data = data[end:]
    assert len(bodies) == run.entry_count
    return bodies


@pytest.mark.parametrize("cache_bytes", [0, 4096, 1 << 20])
def test_a_run_goes_on_from_segments_to_the_journal_and_to_memory(cache_bytes) -> None:
    async def run() -> None:
        bench = StoreBench(journal={"cache_bytes_max": cache_bytes})
        await bench.open()
        await fill(bench, 1, 50)
        await bench.open()
        await fill(bench, 1, 50, first=50)
        expected = [entry(1, n, 200) for n in range(100)]
        first = 0
        while first < 100:
            found = await bench.store.read_run(1, first, count_max=1000, byte_count_max=1 << 20)
            assert found.entry_count > 0
            assert unpacked(found) == expected[first : first + found.entry_count]
            first += found.entry_count
        for first in (0, 20, 47, 50, 99):
            for count, byte_count in ((1, 1 << 20), (3, 1 << 20), (99, 500), (99, 1)):
                found = await bench.store.read_run(1, first, count_max=count, byte_count_max=byte_count)
                assert unpacked(found) == expected[first : first + found.entry_count]
                assert 1 <= found.entry_count <= count
                assert found.entry_count == 1 or found.byte_count <= byte_count
        for first, stride in ((0, 2), (3, 3), (49, 7), (0, 60), (99, 255)):
            at = first
            while at < 100:
                found = await bench.store.read_run(1, at, count_max=9, byte_count_max=1 << 20, stride=stride)
                assert 1 <= found.entry_count <= 9
                assert unpacked(found) == expected[at::stride][: found.entry_count]
                at += found.entry_count * stride
            found = await bench.store.read_run(1, first, count_max=9, byte_count_max=1, stride=stride)
            assert unpacked(found) == expected[first : first + 1]
        for ledger_id, first in ((1, 100), (9, 0)):
            found = await bench.store.read_run(ledger_id, first, count_max=10, byte_count_max=1 << 20)
            assert (found.entry_count, found.error) == (0, None)

    asyncio.run(run())


def test_a_run_that_begins_in_a_damaged_block_is_an_error_and_no_absence() -> None:
    async def run() -> None:
        bench = StoreBench()
        await bench.open()
        await fill(bench, 1, 50)
        await bench.open()
        (name,) = bench.segment_files()
        bench.disk.rot(name, byte_offset=3000)
        found = await bench.store.read_run(1, 0, count_max=10, byte_count_max=1 << 20)
        assert isinstance(found.error, CorruptStorageError)
        assert found.entry_count == 0

    asyncio.run(run())


def test_a_damaged_block_is_reported_and_repaired_from_elsewhere() -> None:
    async def run() -> None:
        bench = StoreBench()
        await bench.open()
        await fill(bench, 1, 50)
        await bench.open()
        (name,) = bench.segment_files()
        bench.disk.rot(name, byte_offset=3000)
        assert isinstance(await bench.read(1, 3), CorruptStorageError)
        assert isinstance(await bench.read(1, 4), CorruptStorageError)
        (damage,) = bench.store.damages.found()
        assert (damage.row.ledger_id, damage.row.first_entry_id, damage.row.last_entry_id) == (1, 0, 49)
        await fill(bench, 1, 50)  # What a repair adds, from other bookies.
        await bench.store.forget_damage(damage)
        assert bench.store.damages.found() == []
        await bench.open()
        for n in range(50):
            assert await bench.read(1, n) == entry(1, n, 200)
        assert bench.store.damages.found() == []

    asyncio.run(run())


def test_an_entry_that_lies_in_a_sound_block_too_is_read_from_there() -> None:
    async def run() -> None:
        bench = StoreBench()
        for _ in range(2):
            await bench.open()
            await fill(bench, 1, 30)
        await bench.open()
        for name in bench.segment_files():
            bench.disk.rot(name, byte_offset=3000)
            break
        for n in range(30):
            assert await bench.read(1, n) == entry(1, n, 200)

    asyncio.run(run())


@pytest.mark.parametrize("how", ["gone", "truncated", "another"])
def test_a_segment_that_was_lost_is_a_loss_and_no_absence(how) -> None:
    async def run() -> None:
        bench = StoreBench(keep_index=how == "gone")
        for ledger_id in (1, 2):
            await bench.open()
            await fill(bench, ledger_id, 30)
        await bench.open()
        first, second = bench.segment_files()
        if how == "gone":
            bench.disk.remove(first)
        elif how == "truncated":
            bench.disk._names[first].cached[4000:] = b""
            bench.disk._names[first].durable[4000:] = b""
        else:
            bench.disk._names[first].cached[:] = bench.disk._names[second].cached
            bench.disk._names[first].durable[:] = bench.disk._names[second].durable
        await bench.open()
        assert bench.store.limbo.reasons
        assert await bench.read(2, 29) == entry(2, 29, 200)

    asyncio.run(run())


def test_a_segment_that_goes_under_a_running_bookie_is_an_error_and_no_absence() -> None:
    async def run() -> None:
        bench = StoreBench()
        await bench.open()
        await fill(bench, 1, 30)
        await bench.open()
        bench.disk.remove(bench.segment_files()[0])
        assert isinstance(await bench.read(1, 3), CorruptStorageError)
        assert len(bench.store.damages.found()) == 1

    asyncio.run(run())


def test_segments_go_where_room_is_and_only_when_all_are_full_nothing_is_taken() -> None:
    async def run() -> None:
        file_bytes = 1 << 14
        disk = TwoDisks(random.Random(3), main_bytes=file_bytes * 9, more_bytes=file_bytes * 7)
        bench = StoreBench(
            disk,
            journal={"file_bytes": file_bytes, "file_count": 3},
            more_ledger_dirs=("/b/more",),
            free_bytes_min=file_bytes,
        )
        await bench.open()
        count = 0
        while not bench.store.is_read_only and count < 2000:
            if bench.store.claim(1000) is not None:
                await fill(bench, 1, 1, first=count)
                count += 1
            await bench.store.check_space()
        assert bench.read_only == [True]
        names = bench.segment_files()
        assert [name for name in names if name.startswith("/b/more/")]
        assert [name for name in names if name.startswith("/b/ledgers/")]
        assert disk.free_bytes("/b/more") <= 2 * file_bytes
        await bench.open()
        for n in range(count):
            assert await bench.read(1, n) == entry(1, n, 200)
        await bench.store.deletions.delete([1], 1)
        await bench.store.compactor.compact(0.5, 1)
        await bench.store.check_space()
        assert not bench.store.is_read_only

    asyncio.run(run())


def test_an_index_without_room_makes_the_bookie_read_only_and_no_more() -> None:
    async def run() -> None:
        bench = StoreBench(journal={"file_bytes": 1 << 14, "file_count": 3})
        await bench.open()
        index, full = bench.store.index, True
        commit = index.commit_segment

        def refuses(*rows) -> None:
            if full:
                raise OSError(errno.ENOSPC, "index: no room")
            commit(*rows)

        index.commit_segment = refuses  # type: ignore[assignment, method-assign]
        await fill(bench, 1, 100)
        async with asyncio.timeout(60):
            while not bench.read_only:
                await asyncio.sleep(0.001)
        for _ in range(50):  # It is tried again meanwhile.
            await asyncio.sleep(0.001)
        assert bench.read_only == [True]
        assert not bench.failures
        assert await bench.read(1, 99) == entry(1, 99, 200)
        full = False
        async with asyncio.timeout(60):
            while len(bench.store.journal.generations) > 1 or bench.store.is_read_only:
                await asyncio.sleep(0.002)
                await bench.store.check_space()
        for n in range(100):
            assert await bench.read(1, n) == entry(1, n, 200)

    asyncio.run(run())


@pytest.mark.parametrize("what", ["segment", "folder", "index"])
def test_an_error_of_any_sync_stops_the_bookie_and_frees_no_journal(what) -> None:
    """No journal file may go while anything made of it may not be durable (safety 29)."""

    async def run() -> None:
        bench = StoreBench(journal={"file_bytes": 1 << 14, "file_count": 3, "idle_mark_s": 1000.0})
        await bench.open()
        disk, store = bench.disk, bench.store

        def refuse(*_) -> None:
            raise OSError(errno.EIO, f"{what}")

        convert = store.flusher._work

        def convert_refused(generation):
            if what == "index":
                store.index.commit_segment = refuse
            elif what == "folder":
                disk.fsync_dir = refuse
            else:
                disk.fdatasync = refuse
            try:
                return convert(generation)
            finally:
                vars(disk).pop("fsync_dir", None)
                vars(disk).pop("fdatasync", None)

        store.flusher._work = convert_refused
        filling = asyncio.get_running_loop().create_task(fill(bench, 1, 400))
        async with asyncio.timeout(60):
            while not bench.failures:
                await asyncio.sleep(0)
        filling.cancel()  # The store takes nothing more.
        await asyncio.gather(filling, return_exceptions=True)
        assert bench.store.claim(100, is_privileged=True) is None
        assert [getattr(error, "errno", None) for error in bench.failures] == [errno.EIO]
        vars(store.index).pop("commit_segment", None)
        disk.lose_power()
        await bench.open()
        taken = 0
        while await bench.read(1, taken) == entry(1, taken, 200):
            taken += 1
        assert taken > 30
        assert bench.store.limbo.reasons == ()

    asyncio.run(run())


def test_unreplayed_journal_is_bounded_by_its_files() -> None:
    """While conversions wait, adds wait: nothing grows, and fences still find room."""

    async def run() -> None:
        file_bytes = 1 << 14
        bench = StoreBench(journal={"file_bytes": file_bytes, "file_count": 4})
        await bench.open()
        bench.store.flusher.convert = lambda generation: None
        taken = 0
        while bench.store.claim(1000) is not None:
            await fill(bench, 1, 1, first=taken)
            taken += 1
        files = {name: content for name, content in bench.disk.files().items() if "/journal/" in name}
        assert sum(map(len, files.values())) == 5 * file_bytes
        assert len([name for name in files if name.endswith(".j")]) == 4
        assert bench.store.claim(1000, is_privileged=True) is not None
        await bench.open()
        assert bench.store.replayed_entry_count == taken + 1  # and the record of the ledger
        assert await bench.read(1, taken - 1) == entry(1, taken - 1, 200)

    asyncio.run(run())


def test_a_file_is_left_when_it_holds_many_ledgers_or_entries() -> None:
    async def run() -> None:
        bench = StoreBench(journal={"ledgers_max": 3, "entries_max": 30})
        await bench.open()
        await bench.add((1, 0), (2, 0), (3, 0))
        await bench.add((4, 0))
        assert bench.store.journal.generations[-1].sequence == 1
        await fill(bench, 4, 60, first=1)
        assert bench.store.journal.generations[-1].sequence >= 2
        for place in ((1, 0), (2, 0), (3, 0), (4, 0), (4, 60)):
            assert await bench.read(*place) in (entry(*place), entry(*place, 200))

    asyncio.run(run())


def test_real_files_in_two_directories_survive_a_restart(tmp_path) -> None:
    from ledger.storage.flush import JournalFile  # noqa: PLC0415
    from ledger.storage.segments import Segments  # noqa: PLC0415
    from tests.unit.ledger.storage.test_segments import SEGMENT, journal  # noqa: PLC0415

    folders = [str(tmp_path / name) for name in ("a", "b")]
    segments = Segments(RealDisk(), folders)
    segments.open()
    (tmp_path / "journal").write_bytes(journal([entry(1, n) for n in range(10)]))
    file = JournalFile(RealDisk(), str(tmp_path / "journal"), SEGMENT, has_successor=False)
    converted = file.write_segment(segments)
    file.close()
    again = Segments(RealDisk(), folders[::-1])
    again.open()
    assert again.segment_ids() == [SEGMENT]
    assert again.rows(SEGMENT) == converted
    again.remove([SEGMENT])
    assert not list(tmp_path.rglob("*.seg"))

"""The look at a bookie's files: whatever is damaged is found and named, what is sound is not, nothing is changed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import msgspec
import pytest

from ledger.storage.disk import RealDisk
from ledger.storage.index import BlockRow
from ledger.storage.index_memory import MemoryIndex
from ledger.storage.index_rows import IndexTable
from ledger.storage.landmarks import FILE_NAME
from ledger.storage.records import fence_record, key_record
from ledger.storage.segment_format import parse_file_name
from ledger.storage.segments import Segments
from ledger.storage.storage_check import StorageReport, check_storage
from ledger.testing import SimDisk
from tests.unit.ledger.storage.store_bench import KEY, StoreBench, entry
from tests.unit.ledger.storage.test_compaction import with_segments

SEGMENT = (3 << 32) | 77


def _look(bench: StoreBench, index: MemoryIndex | None = None) -> StorageReport:
    def opened() -> MemoryIndex:
        found = index or bench._open_index(reset=False)
        found.check()
        return found

    before = bench.disk.files()
    report = check_storage(bench.disk, "/b/journal", ["/b/ledgers"], opened, lambda *_: None)
    assert bench.disk.files() == before
    return report


def _written() -> StoreBench:
    """Return files with a segment of two ledgers, and a journal file that is idle."""
    bench = StoreBench()

    async def run() -> None:
        await bench.open()
        await bench.add(*[(1, n) for n in range(20)], *[(2, n) for n in range(5)])
        await bench.open()
        for n in range(20, 60):
            await bench.add((1, n), size=200)
        async with asyncio.timeout(60):
            while bench.store.landmarks.held.synced_to == 0:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)

    asyncio.run(run())
    return bench


def _of(disk: SimDisk, suffix: str) -> str:
    return max(name for name in disk.files() if name.endswith(suffix))


def test_sound_files_are_sound() -> None:
    report = _look(_written())
    assert (report.damages, report.notes) == ([], [])
    assert (report.journal_file_count, report.segment_count, report.block_count) == (1, 1, 4)
    assert (report.indexed_block_count, report.segment_record_count) == (2, 27)
    assert report.journal_record_count == 40


def _flip(suffix: str, byte_offset: int) -> Callable[[SimDisk], None]:
    def damage(disk: SimDisk) -> None:
        disk.rot(_of(disk, suffix), byte_offset=byte_offset)

    return damage


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        ("journal", _flip(".j", 100)),
        ("journal", lambda disk: disk.truncate(_of(disk, ".j"), 4000)),
        ("journal", lambda disk: disk.zero(_of(disk, ".j"), 0)),
        ("journal", lambda disk: disk.delete(_of(disk, ".j"))),
        ("segment", _flip(".seg", 100)),
        ("segment", lambda disk: disk.truncate(_of(disk, ".seg"), 900)),
        ("segment", lambda disk: disk.truncate(_of(disk, ".seg"), 0)),
        ("segment", lambda disk: disk.delete(_of(disk, ".seg"))),
        ("landmarks", lambda disk: disk.zero(f"/b/ledgers/{FILE_NAME}", 0)),
    ],
)
def test_damage_is_found_and_says_where_and_what_to_do(kind: str, damage: Callable[[SimDisk], None]) -> None:
    bench = _written()
    damage(bench.disk)
    found = [each for each in _look(bench).damages if each.kind == kind]
    assert found
    assert all(each.path.startswith("/b/") and each.what and "bookies" in each.meaning for each in found)


def test_a_damaged_block_is_named_once_with_its_ledger_and_entries() -> None:
    bench = _written()
    _flip(".seg", 100)(bench.disk)
    (found,) = _look(bench).damages
    assert (found.ledger_id, found.first_entry_id, found.last_entry_id, found.byte_offset) == (1, 0, 19, 0)


def _segments(folder) -> Segments:
    """Return a small segment of two ledgers, one of them fenced, on the real disk."""
    segments = Segments(RealDisk(), [str(folder)])
    writer = segments.create(SEGMENT)
    writer.add_block(1, [0, 1], [entry(1, 0), entry(1, 1)], 0)
    writer.add_block(2, [5, 9], [entry(2, 5), entry(2, 9)], 8)
    writer.add_block(2, [-0x2000, -0x1000], [fence_record(2), key_record(2, KEY)], -1)
    writer.finish()
    segments.add(SEGMENT, writer)
    return segments


def _indexed(segments: Segments) -> MemoryIndex:
    index = MemoryIndex()
    rows = segments.rows(SEGMENT)
    index.commit_segment(SEGMENT, rows.blocks, rows.ledgers)
    return index


def _look_at(folder, index: MemoryIndex | None) -> StorageReport:
    (folder / "journal").mkdir(exist_ok=True)
    disk = RealDisk(is_read_only=True)
    return check_storage(disk, str(folder / "journal"), [str(folder)], lambda: index, lambda *_: None)


def test_each_flipped_bit_of_a_segment_is_found(tmp_path) -> None:
    segments = _segments(tmp_path)
    index = _indexed(segments)
    assert _look_at(tmp_path, index).damages == []
    (path,) = tmp_path.glob("*.seg")
    content = path.read_bytes()
    for byte_offset in range(len(content)):
        flipped = bytearray(content)
        flipped[byte_offset] ^= 1 << byte_offset % 8
        path.write_bytes(flipped)
        assert _look_at(tmp_path, index).damages, byte_offset


def test_each_cut_of_a_segment_is_found(tmp_path) -> None:
    index = _indexed(_segments(tmp_path))
    (path,) = tmp_path.glob("*.seg")
    content = path.read_bytes()
    for byte_count in range(len(content)):
        path.write_bytes(content[:byte_count])
        assert _look_at(tmp_path, index).damages, byte_count


@pytest.mark.parametrize("content", [b"", b"not ours " * 200, bytes(3000)])
def test_a_foreign_file_under_the_name_of_a_segment_is_found(tmp_path, content: bytes) -> None:
    index = _indexed(_segments(tmp_path))
    (path,) = tmp_path.glob("*.seg")
    path.write_bytes(content)
    damages = _look_at(tmp_path, index).damages
    # What it should hold is known from the index.
    assert {(each.ledger_id, each.first_entry_id, each.last_entry_id) for each in damages} >= {(1, 0, 1), (2, 5, 9)}


def test_another_segment_under_its_name_is_found(tmp_path) -> None:
    (tmp_path / "a").mkdir()
    index = _indexed(_segments(tmp_path / "a"))
    (path,) = (tmp_path / "a").glob("*.seg")
    other = path.with_name(f"{SEGMENT + 1:016x}.seg")
    path.rename(other)
    assert parse_file_name(other.name) == SEGMENT + 1
    damages = _look_at(tmp_path / "a", index).damages
    assert any("another segment's" in each.what for each in damages)
    assert any("is gone" in each.what for each in damages)


def test_an_entry_that_lies_in_the_place_of_another_is_found(tmp_path) -> None:
    segments = Segments(RealDisk(), [str(tmp_path)])
    writer = segments.create(SEGMENT)
    writer.add_block(1, [0, 1, 2], [entry(1, 0), entry(7, 1), b"short"], 0)
    writer.finish()
    segments.add(SEGMENT, writer)
    wrong, short = _look_at(tmp_path, _indexed(segments)).damages
    assert "entry 1 of ledger 7 lies where entry 1 of ledger 1" in wrong.what
    assert "too short for an entry" in short.what


def _extra(index: MemoryIndex, segments: Segments, row: BlockRow) -> None:
    rows = segments.rows(SEGMENT)
    others = [
        each for each in rows.blocks if (each.ledger_id, each.first_entry_id) != (row.ledger_id, row.first_entry_id)
    ]
    index.commit_segment(SEGMENT, [*others, row], rows.ledgers)


@pytest.mark.parametrize(
    "row",
    [
        BlockRow(1, 700, 710, SEGMENT, 1 << 20, 500),
        BlockRow(1, 700, 710, SEGMENT, 0, 200),
        BlockRow(1, 0, 9, SEGMENT, 0, 232),
    ],
)
def test_a_row_of_the_index_without_a_record_is_found(tmp_path, row: BlockRow) -> None:
    segments = _segments(tmp_path)
    if row.first_entry_id == 0:
        row = msgspec.structs.replace(segments.rows(SEGMENT).blocks[0], last_entry_id=9)
    index = MemoryIndex()
    _extra(index, segments, row)
    index.check()  # It adds up: only a look at the segment can tell.
    damages = [each for each in _look_at(tmp_path, index).damages if each.last_entry_id == row.last_entry_id]
    assert [(each.ledger_id, each.first_entry_id) for each in damages] == [(1, row.first_entry_id)]


def test_a_block_that_the_index_lacks_is_found(tmp_path) -> None:
    segments = _segments(tmp_path)
    index = _indexed(segments)
    index.drop_block(index.blocks(2)[0])
    index.check()
    (damage,) = _look_at(tmp_path, index).damages
    assert (damage.kind, damage.ledger_id, damage.first_entry_id, damage.last_entry_id) == ("index", 2, 5, 9)
    assert "rebuild-index" in damage.meaning


def test_a_fence_that_the_index_lacks_is_found(tmp_path) -> None:
    segments = _segments(tmp_path)
    rows = segments.rows(SEGMENT)
    index = MemoryIndex()
    unfenced = [msgspec.structs.replace(row, is_fenced=False) for row in rows.ledgers]
    index.commit_segment(SEGMENT, rows.blocks, unfenced)
    (damage,) = _look_at(tmp_path, index).damages
    assert (damage.kind, damage.ledger_id) == ("index", 2)


def test_deleted_ledgers_and_segments_that_are_not_indexed_yet_are_no_damage(tmp_path) -> None:
    segments = _segments(tmp_path)
    index = _indexed(segments)
    index.drop_ledgers([2], 1234)
    assert _look_at(tmp_path, index).damages == []
    index.forget_ledgers([2])
    assert _look_at(tmp_path, index).damages == []
    report = _look_at(tmp_path, MemoryIndex())
    assert report.damages == []
    assert "the next start adds it" in report.notes[0]
    assert "there is no index" in _look_at(tmp_path, None).notes[0]


def test_what_was_left_unfinished_stays(tmp_path) -> None:
    index = _indexed(_segments(tmp_path))
    unfinished = tmp_path / f"{SEGMENT + 9:016x}.seg.tmp"
    unfinished.write_bytes(b"half")
    assert _look_at(tmp_path, index).damages == []
    assert unfinished.read_bytes() == b"half"


def test_an_index_that_does_not_add_up_is_damage() -> None:
    bench = _written()
    index = bench._open_index(reset=False)
    row = index.blocks(1)[0]
    with index._maps.write() as txn:
        txn.delete(IndexTable.BLOCKS, b"".join(n.to_bytes(8, "big") for n in (1, row.first_entry_id, row.segment_id)))
    (damage,) = _look(bench, index).damages
    assert (damage.kind, damage.path) == ("index", "index")


@pytest.mark.parametrize("cut_after", range(0, 60, 3))
def test_what_a_power_cut_in_a_compaction_leaves_is_no_damage(cut_after: int) -> None:
    async def run() -> StoreBench:
        bench = await with_segments(disk=SimDisk(random.Random(cut_after)))
        await bench.store.deletions.delete([2, 10], 1_000_000_000_000)
        bench.disk.operations_left = cut_after
        await bench.run(bench.store.compactor.compact(0.8, 1_000_000_000_000))
        bench.disk.operations_left = None
        bench.disk.lose_power()
        return bench

    bench = asyncio.run(run())
    assert _look(bench).damages == []
    asyncio.run(bench.open())
    assert _look(bench).damages == []

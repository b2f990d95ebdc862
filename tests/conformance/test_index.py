"""Every implementation of the index port behaves the same."""

from __future__ import annotations

import errno
import random

import pytest

from ledger.storage.index import BlockRow, CorruptIndexError, LedgerRow, SegmentRow
from ledger.storage.index_lmdb import LmdbIndex
from ledger.storage.index_memory import MemoryIndex
from ledger.storage.index_rows import IndexTable, _block_item


@pytest.fixture(params=["lmdb", "memory"])
def index(request, tmp_path):
    made = MemoryIndex() if request.param == "memory" else LmdbIndex(str(tmp_path / "index"))
    yield made
    made.close()


def block(ledger_id: int, first: int, last: int, segment_id: int = 1, offset: int = 0) -> BlockRow:
    return BlockRow(ledger_id, first, last, segment_id, offset, 100)


def test_an_empty_index_knows_nothing(index) -> None:
    assert index.segment_ids() == []
    assert index.ledger(1) is None
    assert index.candidates(1, 0) == []
    assert index.blocks(1) == []
    assert index.ledger_ids(0, 10) == []


def test_blocks_are_found_by_any_entry_they_cover(index) -> None:
    rows = [block(1, 0, 511), block(1, 512, 1023, offset=100), block(2, 5, 5), block(300, 0, 9)]
    index.commit_segment(1, rows, [])
    assert index.candidates(1, 511) == [rows[0]]
    assert index.candidates(1, 512) == [rows[1]]
    assert index.candidates(1, 1024) == []
    assert index.candidates(2, 4) == []
    assert index.candidates(2, 5) == [rows[2]]
    assert index.candidates(300, 9) == [rows[3]]
    assert index.blocks(1) == rows[:2]


def test_a_row_is_held_as_it_was_put_alone(index) -> None:
    assert not index.holds(block(1, 0, 511))
    index.commit_segment(1, [block(1, 0, 511), block(2, 0, 9)], [])
    assert index.holds(block(1, 0, 511))
    others = [block(1, 0, 510), block(1, 1, 511), block(1, 0, 511, 2), block(1, 0, 511, offset=1), block(3, 0, 511)]
    assert not any(map(index.holds, others))


def test_a_block_that_begins_where_another_does_hides_nothing(index) -> None:
    """An entry that was added again in a later segment must not cost the rest of the first block."""
    index.commit_segment(1, [block(1, 0, 511, 1)], [])
    index.commit_segment(2, [block(1, 0, 0, 2)], [])
    assert index.candidates(1, 300) == [block(1, 0, 511, 1)]
    assert index.candidates(1, 0) == [block(1, 0, 0, 2), block(1, 0, 511, 1)]


def test_ledger_rows_only_grow(index) -> None:
    index.commit_segment(1, [], [LedgerRow(1, b"key", False, 5, 3)])
    index.commit_segment(2, [], [LedgerRow(1, b"", True, 2, 9, b"\0" * 15 + b"\x07digest")])
    index.commit_segment(3, [], [LedgerRow(1, explicit_lac=b"\0" * 15 + b"\x06digest")])
    assert index.ledger(1) == LedgerRow(1, b"key", True, 5, 9, b"\0" * 15 + b"\x07digest")
    assert index.segment_ids() == [1, 2, 3]


def test_committing_a_segment_twice_changes_nothing(index) -> None:
    for _ in range(2):
        index.commit_segment(1, [block(1, 0, 9)], [LedgerRow(1, b"key")])
    assert index.blocks(1) == [block(1, 0, 9)]
    assert index.segment_ids() == [1]


def test_a_dropped_ledger_is_gone_and_remembered_as_deleted(index) -> None:
    index.commit_segment(1, [block(1, 0, 9), block(2, 0, 9)], [LedgerRow(1, b"a"), LedgerRow(2, b"b")])
    index.drop_ledgers([1], 1234)
    assert index.blocks(1) == []
    assert index.blocks(2) == [block(2, 0, 9)]
    row = index.ledger(1)
    assert (row.deleted_at_ms, row.is_fenced, row.master_key) == (1234, True, b"a")
    assert index.ledger_ids(0, 10) == [2]
    assert index.deleted_ledgers(0, 10) == [(1, 1234)]
    assert index.segments() == [SegmentRow(1, 200, 100)]


def test_a_deleted_ledger_never_gets_blocks_again(index) -> None:
    index.commit_segment(1, [block(1, 0, 9)], [LedgerRow(1, b"a")])
    index.drop_ledgers([1], 1234)
    index.commit_segment(2, [block(1, 10, 19, 2), block(2, 0, 9, 2)], [LedgerRow(1), LedgerRow(2)])
    assert index.blocks(1) == []
    assert index.segments() == [SegmentRow(1, 100, 0), SegmentRow(2, 200, 100)]


def test_a_segment_that_says_that_a_ledger_was_deleted_takes_its_blocks(index) -> None:
    """So a rebuild from segments ends where the index was, in whatever order they come."""
    index.commit_segment(1, [block(1, 0, 9)], [LedgerRow(1, b"a")])
    index.commit_segment(2, [], [LedgerRow(1, deleted_at_ms=7)])
    assert index.blocks(1) == []
    assert index.ledger(1).deleted_at_ms == 7
    assert index.segments() == [SegmentRow(1, 100, 0), SegmentRow(2, 0, 0)]


def test_only_deleted_ledgers_are_forgotten(index) -> None:
    index.commit_segment(1, [], [LedgerRow(1), LedgerRow(2), LedgerRow(3)])
    index.drop_ledgers([1, 3], 5)
    index.forget_ledgers([1, 2, 77])
    assert index.ledger(1) is None
    assert index.ledger(2) is not None
    assert index.deleted_ledgers(0, 10) == [(3, 5)]


def test_one_segment_takes_the_place_of_others(index) -> None:
    old = [block(1, 0, 9), block(2, 0, 9), block(1, 10, 19, 2)]
    index.commit_segment(1, old[:2], [LedgerRow(1), LedgerRow(2)])
    index.commit_segment(2, old[2:], [LedgerRow(1)])
    index.commit_segment(3, [block(1, 20, 29, 3)], [LedgerRow(1)])
    index.drop_ledgers([2], 5)
    new = [block(1, 0, 9, 4), block(1, 10, 19, 4, 100), block(2, 0, 9, 4, 200)]
    index.replace_segments([1, 2], old, 4, new)
    assert index.blocks(1) == [*new[:2], block(1, 20, 29, 3)]
    assert index.blocks(2) == [], "it was deleted while its blocks were copied"
    assert index.segment_ids() == [3, 4]
    assert index.segments() == [
        SegmentRow(1, 0, 0, is_retired=True),
        SegmentRow(2, 0, 0, is_retired=True),
        SegmentRow(3, 100, 100),
        SegmentRow(4, 300, 200),
    ]
    index.drop_segment(1)
    index.replace_segments([2, 4], new, None, [])
    assert [row.segment_id for row in index.segments() if not row.is_retired] == [3]
    assert index.blocks(1) == [block(1, 20, 29, 3)]


def test_a_dropped_block_costs_nothing_else(index) -> None:
    index.commit_segment(1, [block(1, 0, 9), block(1, 10, 19)], [LedgerRow(1)])
    for _ in range(2):
        index.drop_block(block(1, 0, 9))
    assert index.blocks(1) == [block(1, 10, 19)]
    assert index.segments() == [SegmentRow(1, 200, 100)]


def test_ledger_ids_come_in_pages(index) -> None:
    index.commit_segment(1, [], [LedgerRow(i) for i in (7, 1, 1 << 40, 3)])
    assert index.ledger_ids(0, 2) == [1, 3]
    assert index.ledger_ids(4, 10) == [7, 1 << 40]


def test_look_ups_agree_with_a_plain_search(index) -> None:
    rng = random.Random(5)
    rows: list[BlockRow] = []
    for segment_id in range(1, 6):
        part = []
        for ledger_id in (1, 2, 3):
            first = rng.randrange(3000)
            for _ in range(5):
                last = first + rng.randrange(1, 4000)
                part.append(block(ledger_id, first, last, segment_id, rng.randrange(10_000)))
                first = last + 1
        index.commit_segment(segment_id, part, [])
        rows += part
    for _ in range(500):
        ledger_id, entry_id = rng.randrange(1, 4), rng.randrange(12_000)
        expected = [r for r in rows if r.ledger_id == ledger_id and r.first_entry_id <= entry_id <= r.last_entry_id]
        found = index.candidates(ledger_id, entry_id)
        assert sorted(found, key=lambda r: r.segment_id) == sorted(expected, key=lambda r: r.segment_id)


def test_rows_outlive_the_process(tmp_path) -> None:
    index = LmdbIndex(str(tmp_path / "index"))
    index.commit_segment(1, [block(1, 0, 9)], [LedgerRow(1, b"key")])
    index.close()
    index = LmdbIndex(str(tmp_path / "index"))
    assert index.blocks(1) == [block(1, 0, 9)]
    assert index.ledger(1) == LedgerRow(1, b"key")
    index.close()


def test_a_rotten_row_is_noticed(tmp_path) -> None:
    index = LmdbIndex(str(tmp_path / "index"))
    index.commit_segment(1, [], [LedgerRow(1, b"a-key-that-can-be-found")])
    index.close()
    path = tmp_path / "index" / "data.mdb"
    path.write_bytes(path.read_bytes().replace(b"can-be-found", b"can-be-f0und"))
    index = LmdbIndex(str(tmp_path / "index"))
    with pytest.raises(CorruptIndexError, match="checksum"):
        index.ledger(1)
    index.close()


def test_a_file_that_is_no_index_is_noticed(tmp_path) -> None:
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "data.mdb").write_bytes(b"x" * 8192)
    with pytest.raises(CorruptIndexError):
        LmdbIndex(str(tmp_path / "index"))


def test_an_index_without_room_says_so_and_goes_on_when_there_is_some(tmp_path) -> None:
    index = LmdbIndex(str(tmp_path / "index"), map_bytes=1 << 17)
    index.commit_segment(1, [block(1, 0, 9)], [LedgerRow(1)])
    with pytest.raises(OSError, match="no room") as caught:
        index.commit_segment(2, [block(2, n, n, 2) for n in range(10_000)], [LedgerRow(2)])
    assert caught.value.errno == errno.ENOSPC
    assert index.segment_ids() == [1]
    assert index.blocks(2) == []
    index.commit_segment(3, [block(3, 0, 9, 3)], [LedgerRow(3)])
    assert index.segment_ids() == [1, 3]
    index.close()


def test_a_large_segment_is_committed_whole(index) -> None:
    rows = [block(n % 5000, n // 5000 * 10, n // 5000 * 10, 1, n) for n in range(10_000)]
    index.commit_segment(1, rows, [LedgerRow(n) for n in range(5000)])
    assert [len(index.blocks(n)) for n in (0, 4095, 4999)] == [2, 2, 2]
    assert index.segments() == [SegmentRow(1, 1_000_000, 1_000_000)]


def test_lmdb_pages_leave_the_process_and_come_back(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ledger.storage.index_lmdb._MAP_RESIDENT_BYTES", 0)
    monkeypatch.setattr("ledger.storage.index_lmdb._LOOKS_MAX", 3)
    index = LmdbIndex(str(tmp_path / "index"))
    index.commit_segment(1, [block(n, 0, 9) for n in range(1000)], [LedgerRow(n) for n in range(1000)])
    for n in range(1000):
        assert index.blocks(n) == [block(n, 0, 9)]
    index.close()


def changed(index, rng: random.Random) -> None:
    """Do whatever a bookie does to an index, in a drawn order."""
    living: dict[int, list[BlockRow]] = {}
    for segment_id in range(1, 40):
        ids = rng.sample(range(60), 8)
        rows = [block(i, 10 * segment_id + n, 10 * segment_id + n, segment_id, n) for i in sorted(ids) for n in (0, 1)]
        index.commit_segment(segment_id, rows, [LedgerRow(i, b"k", rng.random() < 0.1) for i in sorted(ids)])
        deleted = {i for i, _ in index.deleted_ledgers(0, 100)}
        living[segment_id] = [row for row in rows if row.ledger_id not in deleted]
        drawn = rng.random()
        if drawn < 0.15:
            index.commit_segment(segment_id, rows, [LedgerRow(i, b"k") for i in sorted(ids)])
        elif drawn < 0.3:
            index.drop_ledgers(rng.sample(range(60), 3), segment_id)
        elif drawn < 0.4 and living[segment_id]:
            index.drop_block(rng.choice(living[segment_id]))
        elif drawn < 0.5:
            index.forget_ledgers(list(range(0, 60, 2)))
        elif drawn < 0.7 and segment_id > 2:
            old = [segment_id - 1, segment_id]
            removed = [row for i in range(60) for row in index.blocks(i) if row.segment_id in old]
            added = [
                BlockRow(row.ledger_id, row.first_entry_id, row.last_entry_id, 100 + segment_id, n, 100)
                for n, row in enumerate(removed)
            ]
            index.replace_segments(old, removed, 100 + segment_id, added)
            index.drop_segment(segment_id - 1)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_counted_adds_up_whatever_is_changed(index, seed: int) -> None:
    changed(index, random.Random(seed))
    index.check()


@pytest.mark.parametrize("table", [IndexTable.BLOCKS, IndexTable.LEDGERS])
@pytest.mark.parametrize("what", ["lost", "old", "foreign"])
def test_rows_that_vanish_or_come_back_are_noticed(index, table: IndexTable, what: str) -> None:
    index.commit_segment(1, [block(n, 0, 9) for n in range(20)], [LedgerRow(n, b"key") for n in range(20)])
    key = (7).to_bytes(8, "big")
    with index._maps.read() as txn:
        key, value = next(txn.ascend(table, key))
    index.commit_segment(2, [block(7, 10, 19, 2)], [LedgerRow(7, b"key", is_fenced=True)])
    index.drop_ledgers([8], 5)
    index.check()
    with index._maps.write() as txn:
        if what == "lost":
            txn.delete(table, key)
        elif what == "old" and table is IndexTable.LEDGERS:
            txn.put(table, key, value)
        else:  # Of a ledger that was deleted, or never was.
            for foreign in (block(8, 0, 9), block(99, 0, 9)):
                txn.put_all(IndexTable.BLOCKS, [_block_item(foreign)])
    with pytest.raises(CorruptIndexError, match=r"missing|no row"):
        index.check()


def test_an_index_from_before_there_were_totals_is_counted_once(tmp_path) -> None:
    index = LmdbIndex(str(tmp_path / "index"))
    changed(index, random.Random(1))
    with index._maps.write() as txn:
        txn.delete(IndexTable.TOTALS, b"ledgers")
    index.check()
    index.close()
    index = LmdbIndex(str(tmp_path / "index"))
    index.check()
    index.drop_ledgers([1, 2, 3], 77)
    index.check()
    with index._maps.read() as txn:
        assert txn.get(IndexTable.TOTALS, b"ledgers") is not None
    index.close()

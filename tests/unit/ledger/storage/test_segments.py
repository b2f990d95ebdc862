"""Segments: what a journal file held comes back entry by entry, and damage never passes for absence."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.errors import CorruptStorageError
from ledger.storage.disk import RealDisk
from ledger.storage.flush import JournalFile
from ledger.storage.index import LedgerRow
from ledger.storage.index_memory import MemoryIndex
from ledger.storage.journal_format import batch_buffers
from ledger.storage.records import explicit_lac_record, fence_record, key_record
from ledger.storage.segment_format import (
    BLOCK_ENTRIES_MAX,
    BLOCK_SPAN_MAX,
    decode_block,
    decode_ids,
    encode_block,
    split_ids,
)
from ledger.storage.segments import Segments

SEGMENT = (3 << 32) | 77


def entry(ledger_id: int, entry_id: int, lac: int = -1, payload: bytes = b"x") -> bytes:
    return b"".join(n.to_bytes(8, "big", signed=True) for n in (ledger_id, entry_id, lac, 0)) + payload


def journal(bodies: list[bytes]) -> bytearray:
    data = bytearray()
    for start in range(0, len(bodies), 7):
        part = bodies[start : start + 7]
        toc = array("I", [n for body in part for n in (0, len(body))])
        data += b"".join(batch_buffers(SEGMENT, len(data), toc, part, len(part)))
    return data


def written(folder, bodies: list[bytes], *, slice_bytes: int = 300) -> tuple[Segments, MemoryIndex]:
    segments = Segments(RealDisk(), [str(folder)])
    path = folder / "journal"
    path.write_bytes(journal(bodies))
    file = JournalFile(RealDisk(), str(path), SEGMENT, has_successor=False)
    converted = file.write_segment(segments, slice_bytes=slice_bytes)
    file.close()
    index = MemoryIndex()
    if converted is None:
        assert not bodies
        return segments, index
    index.commit_segment(SEGMENT, converted.blocks, converted.ledgers)
    rows = segments.rows(SEGMENT)
    assert (rows.blocks, rows.damages) == (converted.blocks, [])
    assert sorted(rows.ledgers, key=lambda row: row.ledger_id) == converted.ledgers
    return segments, index


def found(segments: Segments, index: MemoryIndex, ledger_id: int, entry_id: int) -> bytes | None:
    for row in index.candidates(ledger_id, entry_id):
        body = segments.read_block(row).get(entry_id)
        if body is not None:
            return body
    return None


@given(st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 9000)), st.binary(max_size=50), max_size=60))
@settings(deadline=None)
def test_every_entry_comes_back_and_no_other(tmp_path_factory, entries) -> None:
    bodies = {place: entry(*place, payload=payload) for place, payload in entries.items()}
    segments, index = written(tmp_path_factory.mktemp("s"), list(bodies.values()))
    for place, body in bodies.items():
        assert found(segments, index, *place) == body
        assert found(segments, index, place[0], place[1] + 1) == bodies.get((place[0], place[1] + 1))
    assert not bodies or sum(segments.footer(SEGMENT).ledger_bytes.values()) > 0


def test_records_of_a_ledger_are_all_kept(tmp_path) -> None:
    lac = [explicit_lac_record(1, b"\0" * 15 + bytes([n]) + b"sum") for n in (4, 9, 6)]
    bodies = [key_record(1, b"k" * 20), entry(1, 0, 7), lac[0], fence_record(1), lac[1], lac[2]]
    _, index = written(tmp_path, bodies)
    assert index.ledger(1) == LedgerRow(1, b"k" * 20, True, 0, 7, b"\0" * 15 + b"\x09sum")


def test_an_entry_that_came_twice_counts_with_its_last_bytes(tmp_path) -> None:
    segments, index = written(tmp_path, [entry(1, 0, payload=b"first"), entry(1, 0, payload=b"again")])
    assert found(segments, index, 1, 0).endswith(b"again")


def test_large_ledgers_are_cut_into_blocks(tmp_path) -> None:
    segments, index = written(tmp_path, [entry(1, n) for n in range(2000)])
    rows = index.blocks(1)
    assert [row.last_entry_id - row.first_entry_id + 1 for row in rows] == [512, 512, 512, 464]
    assert [i for row in rows for i in segments.entry_ids(row)] == list(range(2000))


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=900, unique=True), st.integers(0, 3000))
def test_blocks_keep_their_bounds_and_lose_nothing(ids, length) -> None:
    ids.sort()
    cuts = list(split_ids(ids, [length] * len(ids)))
    assert [n for start, end in cuts for n in range(start, end)] == list(range(len(ids)))
    for start, end in cuts:
        assert end - start <= BLOCK_ENTRIES_MAX
        assert ids[end - 1] - ids[start] < BLOCK_SPAN_MAX


@given(st.lists(st.integers(0, 4000), min_size=1, max_size=20, unique=True), st.data())
def test_any_flipped_bit_of_a_block_is_noticed(ids, data) -> None:
    ids.sort()
    buffers, _ = encode_block(1, ids, [entry(1, n) for n in ids], -1)
    block = bytearray(b"".join(buffers))
    assert list(decode_block(block, "here").ids) == ids == decode_ids(block, "here")
    bit = data.draw(st.integers(0, len(block) * 8 - 1))
    block[bit // 8] ^= 1 << bit % 8
    with pytest.raises(CorruptStorageError):
        decode_block(block, "here")


def test_a_rebuild_names_what_is_damaged_and_finds_the_rest(tmp_path) -> None:
    segments, index = written(tmp_path, [entry(1, n) for n in range(1000)] + [entry(2, 0)])
    path = tmp_path / segments.path(SEGMENT).rpartition("/")[2]
    content = bytearray(path.read_bytes())
    content[index.blocks(1)[0].byte_offset + 5000] ^= 1
    path.write_bytes(content)
    rows = segments.rows(SEGMENT)
    assert len(rows.damages) == 1
    assert [block.first_entry_id for block in rows.blocks] == [512, 0]


def test_an_unfinished_segment_does_not_count(tmp_path) -> None:
    (tmp_path / "0000000300000001.seg.tmp").write_bytes(b"half")
    segments = Segments(RealDisk(), [str(tmp_path)])
    segments.open()
    assert segments.segment_ids() == []
    assert list(tmp_path.iterdir()) == []


def test_without_its_trailer_a_segment_still_tells_what_it_holds(tmp_path) -> None:
    segments, index = written(tmp_path, [entry(1, n) for n in range(1000)])
    path = tmp_path / segments.path(SEGMENT).rpartition("/")[2]
    path.write_bytes(path.read_bytes()[:-20])
    rows = segments.rows(SEGMENT)
    assert rows.blocks == index.blocks(1)
    assert "trailer" in rows.damages[0]


def test_a_run_of_entries_is_one_slice_up_to_a_gap_or_a_limit(tmp_path) -> None:
    ids = [*range(10), *range(12, 20)]
    segments, index = written(tmp_path, [entry(1, n, payload=b"%d" % n) for n in ids])
    block = segments.read_block(index.blocks(1)[0])

    def unpacked(count: int, data: memoryview) -> list[bytes]:
        bodies = []
        while data:
            end = 4 + int.from_bytes(data[:4], "big")
            bodies.append(bytes(data[4:end]))
            data = data[end:]
        assert len(bodies) == count
        return bodies

    expected = [entry(1, n, payload=b"%d" % n) for n in ids]
    assert unpacked(*block.run(0, 99, 1 << 20)) == expected[:10]
    assert unpacked(*block.run(3, 4, 1 << 20)) == expected[3:7]
    assert unpacked(*block.run(12, 99, 1 << 20)) == expected[10:]
    assert unpacked(*block.run(0, 99, 3 * (4 + 33) + 5)) == expected[:3]
    assert unpacked(*block.run(0, 99, 10)) == []
    assert unpacked(*block.run(11, 99, 1 << 20)) == []

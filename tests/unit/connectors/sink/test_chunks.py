"""Chunks end where the rows say, whatever else is so; what is small is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connectors.sink.chunks import ChunkSplitter, RowLimits

LIMITS = RowLimits()
SIZES = st.lists(st.sampled_from([1, 400_000, LIMITS.chunk_bytes, LIMITS.chunk_bytes + 9]), max_size=30)


@given(SIZES, st.integers(0, 3), st.lists(st.booleans(), min_size=30, max_size=30))
def test_chunks_hold_all_rows_in_order_and_end_where_the_rows_say(
    sizes: list[int], part: int, takes: list[bool]
) -> None:
    cutter = ChunkSplitter[int](part, LIMITS)
    chunks: list[list[int]] = []
    for number, size in enumerate(sizes):
        cutter.add(number, size)
        if takes[number]:
            chunks += map(list, cutter.take())
    chunks += map(list, cutter.finish())
    assert [number for chunk in chunks for number in chunk] == list(range(len(sizes)))
    for chunk in chunks:
        assert len(chunk) == 1 or sum(sizes[number] for number in chunk) <= LIMITS.chunk_bytes
    other = ChunkSplitter[int](part + 1, LIMITS)
    for number, size in enumerate(sizes):
        other.add(number, size)
    assert chunks == list(map(list, other.finish()))
    assert (cutter.row_count, cutter.size) == (len(sizes), sum(sizes))


def test_a_chunk_has_so_many_rows() -> None:
    cutter = ChunkSplitter[int](0, LIMITS)
    for number in range(LIMITS.whole_rows + 1):
        assert not cutter.take()
        cutter.add(number, 1)
    assert [len(chunk) for chunk in cutter.take()] == [LIMITS.chunk_rows] * (LIMITS.whole_rows // LIMITS.chunk_rows)


@given(st.integers(1, 40), st.integers(0, LIMITS.whole_rows))
def test_rows_that_are_spread_evenly_and_fit_one_command_are_all_kept(parts: int, rows: int) -> None:
    per_part = rows // parts
    for part in range(parts):
        cutter = ChunkSplitter[int](part, LIMITS)
        cutter.row_count, cutter.size = per_part, LIMITS.whole_bytes // parts
        assert cutter.is_kept

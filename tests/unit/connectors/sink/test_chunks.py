"""Chunks end where the rows say, whatever else is so; what is small is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connectors.sink.chunks import CHUNK_BYTES_MAX, CHUNK_ROWS_MAX, WHOLE_BYTES_MAX, WHOLE_ROWS_MAX, ChunkSplitter

SIZES = st.lists(st.sampled_from([1, 400_000, CHUNK_BYTES_MAX, CHUNK_BYTES_MAX + 9]), max_size=30)


@given(SIZES, st.integers(0, 3), st.lists(st.booleans(), min_size=30, max_size=30))
def test_chunks_hold_all_rows_in_order_and_end_where_the_rows_say(
    sizes: list[int], part: int, takes: list[bool]
) -> None:
    cutter = ChunkSplitter[int](part)
    chunks: list[list[int]] = []
    for number, size in enumerate(sizes):
        cutter.add(number, size)
        if takes[number]:
            chunks += map(list, cutter.take())
    chunks += map(list, cutter.finish())
    assert [number for chunk in chunks for number in chunk] == list(range(len(sizes)))
    for chunk in chunks:
        assert len(chunk) == 1 or sum(sizes[number] for number in chunk) <= CHUNK_BYTES_MAX
    other = ChunkSplitter[int](part + 1)
    for number, size in enumerate(sizes):
        other.add(number, size)
    assert chunks == list(map(list, other.finish()))
    assert (cutter.row_count, cutter.size) == (len(sizes), sum(sizes))


def test_a_chunk_has_so_many_rows() -> None:
    cutter = ChunkSplitter[int](0)
    for number in range(WHOLE_ROWS_MAX + 1):
        assert not cutter.take()
        cutter.add(number, 1)
    assert [len(chunk) for chunk in cutter.take()] == [CHUNK_ROWS_MAX] * (WHOLE_ROWS_MAX // CHUNK_ROWS_MAX)


@given(st.integers(1, 40), st.integers(0, WHOLE_ROWS_MAX))
def test_rows_that_are_spread_evenly_and_fit_one_command_are_all_kept(parts: int, rows: int) -> None:
    per_part = rows // parts
    for part in range(parts):
        cutter = ChunkSplitter[int](part)
        cutter.row_count, cutter.size = per_part, WHOLE_BYTES_MAX // parts
        assert cutter.is_kept

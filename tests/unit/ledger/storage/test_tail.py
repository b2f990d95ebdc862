"""Places of entries that are in no segment yet: sealed or not, the same answers."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from ledger.storage.tail import LENGTH_BITS, Generation, SealedPlaces


@given(st.dictionaries(st.integers(0, 60), st.integers(0, 1 << 60), max_size=40))
def test_sealed_places_answer_like_the_dictionary(entries) -> None:
    sealed = SealedPlaces(entries)
    assert [sealed.get(n) for n in range(-1, 62)] == [entries.get(n) for n in range(-1, 62)]
    assert sorted(sealed) == sorted(entries)


@given(st.integers(0, 1 << 40), st.integers(0, 300))
def test_dense_places_keep_their_order(first, count) -> None:
    entries = {first + n: n * 3 for n in range(count)}
    sealed = SealedPlaces(entries)
    assert list(sealed) == list(entries)
    assert [sealed.get(n) for n in entries] == list(entries.values())


def test_entries_are_found_in_a_sealed_generation() -> None:
    generation = Generation(0, 1, 2, "path")
    for n in range(5):
        body = b"body %d" % n
        generation.places_of(7)[n] = generation.virtual_bytes << LENGTH_BITS | len(body)
        generation.add_chunk(body)
    generation.seal()
    generation.seal()
    assert [bytes(cast("bytes", generation.find(7, n))) for n in range(5)] == [b"body %d" % n for n in range(5)]
    assert generation.find(7, 5) is None
    assert generation.find(8, 0) is None

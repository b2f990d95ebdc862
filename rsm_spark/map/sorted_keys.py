"""The keys of the map in order, kept up lazily: writes note a key, scans pay for its place.

Sorted chunks of at most `_CHUNK_MAX` keys; a list of each chunk's last key finds the chunk by bisection. A key that
came or went is only noted (one dict write); noted keys are placed when somebody asks for the order, or when
`_NOTED_MAX` have gathered, so that no scan ever pays for a whole bulk load. Placing one costs two bisections and the
move of half a chunk of pointers: about 1 µs, amortised O(log n) for all sizes that fit into memory. A put on a key
that exists costs nothing here.

`freeze` gives the order away as it is: the list of chunks is copied, a chunk only when it changes afterwards.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Iterator
from itertools import islice

_CHUNK_MAX = 1024
_CHUNK_LOAD = 512
_NOTED_MAX = 4096
_MERGED_MIN = 32
"""So many keys of one chunk, as bulk loads bring them, are merged into it at once."""


class SortedKeys:
    """The keys of `present`, in order.

    Args:
        present: The keys themselves (a dict of theirs); shared, never changed here.

    """

    __slots__ = ("_chunks", "_freeze_count", "_freezes_seen", "_lasts", "_noted", "_present")

    def __init__(self, present: Container[bytes]) -> None:
        self._present = present
        # Non-empty sorted lists; `_lasts[i]` is `_chunks[i][-1]`. Together with `_noted` they say which keys exist.
        self._chunks: list[list[bytes]] = []
        self._lasts: list[bytes] = []
        # Invariant: `_freezes_seen[i] == _freeze_count` if and only if no frozen order holds `_chunks[i]`.
        self._freezes_seen: list[int] = []
        self._freeze_count = 0
        # Keys that came or went since they were last placed; whether they exist now, `_present` knows.
        self._noted: dict[bytes, None] = {}

    def note(self, key: bytes) -> None:
        """Say that this key came or went, after `present` has changed."""
        self._noted[key] = None
        if len(self._noted) >= _NOTED_MAX:
            self._place()

    def load(self, keys: Iterable[bytes]) -> None:
        """Begin anew with all keys of `present`, in any order."""
        ordered = sorted(keys)
        self._noted.clear()
        self._chunks = [ordered[at : at + _CHUNK_LOAD] for at in range(0, len(ordered), _CHUNK_LOAD)]
        self._lasts = [chunk[-1] for chunk in self._chunks]
        self._freezes_seen = [self._freeze_count] * len(self._chunks)

    def freeze(self) -> list[list[bytes]]:
        """Return the keys in order, in lists that never change again; any thread may read them."""
        self._place()
        self._freeze_count += 1
        return self._chunks.copy()

    def since(self, start: bytes) -> Iterator[bytes]:
        """Iterate over the keys >= start, in order; nothing may change meanwhile."""
        self._place()
        at = bisect_left(self._lasts, start)
        if at == len(self._chunks):
            return
        yield from islice(self._chunks[at], bisect_left(self._chunks[at], start), None)
        for index in range(at + 1, len(self._chunks)):
            yield from self._chunks[index]

    def count(self, start: bytes, end: bytes | None) -> int:
        """Return how many keys there are with start <= key < end (None = to the last); costs a step a chunk."""
        self._place()
        return max(0, self._rank(end) - self._rank(start))

    def _rank(self, key: bytes | None) -> int:
        """Return how many keys are below one; None = all."""
        at = len(self._chunks) if key is None else bisect_left(self._lasts, key)
        before = sum(map(len, islice(self._chunks, at)))
        return before if key is None or at == len(self._chunks) else before + bisect_left(self._chunks[at], key)

    def _place(self) -> None:
        came: list[bytes] = []
        for key in self._noted:
            if key in self._present:
                came.append(key)
            elif (at := bisect_left(self._lasts, key)) < len(self._chunks):
                self._remove(at, key)
        self._noted.clear()
        came.sort()
        begin = 0
        while begin < len(came):
            at = bisect_left(self._lasts, came[begin])
            is_behind = at == len(self._chunks)
            end = len(came) if is_behind else bisect_right(came, self._lasts[at], lo=begin)
            if end - begin >= _MERGED_MIN and self._chunks:
                self._merge(at - is_behind, came[begin:end])
            else:
                end = begin + 1
                self._insert(at, came[begin])
            begin = end

    def _merge(self, at: int, keys: list[bytes]) -> None:
        """Place many keys that belong to one chunk: two sorted runs are merged at once."""
        merged = sorted(dict.fromkeys(self._chunks[at] + keys))
        size = len(merged) if len(merged) <= _CHUNK_MAX else _CHUNK_LOAD
        chunks = [merged[begin : begin + size] for begin in range(0, len(merged), size)]
        self._chunks[at : at + 1] = chunks
        self._lasts[at : at + 1] = [chunk[-1] for chunk in chunks]
        self._freezes_seen[at : at + 1] = [self._freeze_count] * len(chunks)

    def _insert(self, at: int, key: bytes) -> None:
        if at == len(self._chunks):
            if not self._chunks:
                self._chunks.append([key])
                self._lasts.append(key)
                self._freezes_seen.append(self._freeze_count)
                return
            at -= 1
        chunk = self._chunks[at]
        place = bisect_left(chunk, key)
        if place < len(chunk) and chunk[place] == key:
            return
        chunk = self._own(at)
        insort(chunk, key, lo=place)
        self._lasts[at] = chunk[-1]
        if len(chunk) > _CHUNK_MAX:
            tail = chunk[_CHUNK_LOAD:]
            del chunk[_CHUNK_LOAD:]
            self._lasts[at] = chunk[-1]
            self._chunks.insert(at + 1, tail)
            self._lasts.insert(at + 1, tail[-1])
            self._freezes_seen.insert(at + 1, self._freeze_count)

    def _remove(self, at: int, key: bytes) -> None:
        chunk = self._chunks[at]
        place = bisect_left(chunk, key)
        if place == len(chunk) or chunk[place] != key:
            return
        chunk = self._own(at)
        del chunk[place]
        if chunk:
            self._lasts[at] = chunk[-1]
        else:
            del self._chunks[at], self._lasts[at], self._freezes_seen[at]

    def _own(self, at: int) -> list[bytes]:
        """Return a chunk that may be changed."""
        if self._freezes_seen[at] != self._freeze_count:
            self._freezes_seen[at] = self._freeze_count
            self._chunks[at] = self._chunks[at].copy()
        return self._chunks[at]

    def validate(self) -> None:
        assert len(self._chunks) == len(self._lasts) == len(self._freezes_seen)
        assert all(self._chunks)
        keys = [key for chunk in self._chunks for key in chunk]
        assert keys == sorted(set(keys))
        assert self._lasts == [chunk[-1] for chunk in self._chunks]
        assert all(key in self._present or key in self._noted for key in keys)

"""The keys of the map in order, kept up lazily: writes note a key, scans pay for its place.

Sorted chunks of at most `_CHUNK_MAX` keys; a list of each chunk's last key finds the chunk by bisection. A key that
came or went is only noted (one dict write); noted keys are placed when somebody asks for the order, or when
`_NOTED_MAX` have gathered, so that no scan ever pays for a whole bulk load. Placing one costs two bisections and the
move of half a chunk of pointers: about 1 µs, amortised O(log n) for all sizes that fit into memory. A put on a key
that exists costs nothing here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator
from itertools import islice

__all__ = ["SortedKeys"]

_CHUNK_MAX = 1024
_CHUNK_LOAD = 512
_NOTED_MAX = 4096


class SortedKeys:
    """The keys of `present`, in order.

    Args:
        present: The keys themselves (a dict of theirs); shared, never changed here.

    """

    __slots__ = ("_chunks", "_lasts", "_noted", "_present")

    def __init__(self, present: Container[bytes]) -> None:
        self._present = present
        # Non-empty sorted lists; `_lasts[i]` is `_chunks[i][-1]`. Together with `_noted` they say which keys exist.
        self._chunks: list[list[bytes]] = []
        self._lasts: list[bytes] = []
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

    def since(self, start: bytes) -> Iterator[bytes]:
        """Iterate over the keys >= start, in order; nothing may change meanwhile."""
        self._place()
        at = bisect_left(self._lasts, start)
        if at == len(self._chunks):
            return
        yield from islice(self._chunks[at], bisect_left(self._chunks[at], start), None)
        for index in range(at + 1, len(self._chunks)):
            yield from self._chunks[index]

    def _place(self) -> None:
        for key in self._noted:
            at = bisect_left(self._lasts, key)
            if key in self._present:
                self._insert(at, key)
            elif at < len(self._chunks):
                self._remove(at, key)
        self._noted.clear()

    def _insert(self, at: int, key: bytes) -> None:
        if at == len(self._chunks):
            if not self._chunks:
                self._chunks.append([key])
                self._lasts.append(key)
                return
            at -= 1
        chunk = self._chunks[at]
        place = bisect_left(chunk, key)
        if place < len(chunk) and chunk[place] == key:
            return
        insort(chunk, key, lo=place)
        self._lasts[at] = chunk[-1]
        if len(chunk) > _CHUNK_MAX:
            tail = chunk[_CHUNK_LOAD:]
            del chunk[_CHUNK_LOAD:]
            self._lasts[at] = chunk[-1]
            self._chunks.insert(at + 1, tail)
            self._lasts.insert(at + 1, tail[-1])

    def _remove(self, at: int, key: bytes) -> None:
        chunk = self._chunks[at]
        place = bisect_left(chunk, key)
        if place == len(chunk) or chunk[place] != key:
            return
        del chunk[place]
        if chunk:
            self._lasts[at] = chunk[-1]
        else:
            del self._chunks[at], self._lasts[at]

    def validate(self) -> None:
        """Check the invariants."""
        assert len(self._chunks) == len(self._lasts)
        assert all(self._chunks)
        keys = [key for chunk in self._chunks for key in chunk]
        assert keys == sorted(set(keys))
        assert self._lasts == [chunk[-1] for chunk in self._chunks]
        assert all(key in self._present or key in self._noted for key in keys)

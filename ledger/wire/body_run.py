"""The entries of one answer as a sequence of slices that are made when they are looked at, and not kept.

A slice is an object that the garbage collector follows: thousands that live at the same time cost more in its rounds
than reading them does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload


class BodyRun(Sequence[bytes | memoryview]):
    """Slices of a packet.

    Args:
        packet: Where they lie.
        starts: Where each begins.
        ends: Where each ends.

    """

    __slots__ = ("_ends", "_packet", "_starts")

    def __init__(self, packet: bytes | memoryview, starts: list[int], ends: list[int]) -> None:
        self._packet = packet
        self._starts = starts
        self._ends = ends

    def __len__(self) -> int:
        """Return how many they are."""
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> bytes | memoryview: ...

    @overload
    def __getitem__(self, place: slice) -> BodyRun: ...

    def __getitem__(self, place: int | slice) -> bytes | memoryview | BodyRun:
        """Return one, or some of them."""
        if isinstance(place, slice):
            return BodyRun(self._packet, self._starts[place], self._ends[place])
        return self._packet[self._starts[place] : self._ends[place]]

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Yield each, made anew."""
        packet = self._packet
        for start, end in zip(self._starts, self._ends, strict=True):
            yield packet[start:end]

    def __eq__(self, other: object) -> bool:
        """Compare with any sequence of bodies."""
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(_is_same, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Say how many they are."""
        return f"BodyRun({len(self)} entries)"


def _is_same(one: bytes | memoryview, other: bytes | memoryview) -> bool:
    return one == other

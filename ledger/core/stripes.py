"""Entries of a range that comes in stripes: every so many-th entry from one bookie, and the others from others.

In a striped ledger (ensemble larger than write quorum) entry e lies at the bookies of places e, e + 1, … of the
ensemble, modulo its size. So every entry that is as many behind as the ensemble has bookies lies at the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ledger.core.entry import Entry
from ledger.core.entry_block import EntryBlock

STRIDE_MAX: Final = 255
"""Of a batch read: the wire has eight bits for it."""


class Stripes:
    """Consecutive entries, put together from stripes; each entry is put once.

    Args:
        first_entry_id: The first of them.
        count: How many.
        stride: Entries of one stripe are so far apart.
        takes_blocks: They come as blocks, and leave as one.

    """

    __slots__ = ("_left", "_lengths", "_values", "count", "first_entry_id", "stride", "takes_blocks")

    def __init__(self, first_entry_id: int, count: int, stride: int, *, takes_blocks: bool) -> None:
        self.first_entry_id = first_entry_id
        self.count = count
        self.stride = stride
        self.takes_blocks = takes_blocks
        self._left = count
        # Payloads and lengths of blocks; else entries alone. None = it has not come.
        self._values: list[Any] = [None] * count
        self._lengths: list[Any] = [None] * count if takes_blocks else []

    @property
    def is_whole(self) -> bool:
        """Return whether all have come."""
        return not self._left

    def put(self, first: int, entries: Sequence[Entry] | EntryBlock) -> None:
        """Put entries of one stripe, from `first` on; a single entry may come as itself."""
        block = self._as_wanted(entries)
        begin = first - self.first_entry_id
        places = slice(begin, begin + (len(block) - 1) * self.stride + 1, self.stride)
        if isinstance(block, EntryBlock):
            self._values[places] = block.payloads
            self._lengths[places] = block.lengths
        else:
            self._values[places] = block
        self._left -= len(block)

    def taken(self) -> Sequence[Entry] | EntryBlock:
        """Return all of them, in order."""
        assert self.is_whole
        if self.takes_blocks:
            return EntryBlock(self.first_entry_id, self._values, self._lengths)
        return self._values

    def present(self) -> Iterator[tuple[int, Sequence[Entry] | EntryBlock]]:
        """Yield those that have come, each by its id."""
        for place, value in enumerate(self._values):
            if value is not None:
                entry_id = self.first_entry_id + place
                if self.takes_blocks:
                    yield entry_id, EntryBlock(entry_id, (value,), (self._lengths[place],))
                else:
                    yield entry_id, (value,)

    def one_by_one(
        self, first: int, entries: Sequence[Entry] | EntryBlock
    ) -> Iterator[tuple[int, Sequence[Entry] | EntryBlock]]:
        """Yield entries of one stripe, from `first` on, each by its id."""
        block = self._as_wanted(entries)
        for number in range(len(block)):
            entry_id = first + number * self.stride
            if isinstance(block, EntryBlock):
                yield entry_id, EntryBlock(entry_id, (block.payloads[number],), (block.lengths[number],))
            else:
                yield entry_id, (block[number],)

    def _as_wanted(self, entries: Sequence[Entry] | EntryBlock) -> Sequence[Entry] | EntryBlock:
        if self.takes_blocks and not isinstance(entries, EntryBlock):
            return EntryBlock.of(entries)
        return entries

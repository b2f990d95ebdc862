"""Rows of one part, cut into chunks, and what becomes of them. Pure.

A part that is small is *kept*: it goes to the driver in the message of its task, and the driver writes the whole batch
in one command. A part that is not is sent by its task, chunk by chunk. Where a chunk ends hangs on the rows alone, so
that a part that is run again with the same rows has the same chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")

WHOLE_ROWS_MAX = 10_000
WHOLE_BYTES_MAX = 3 * 1024 * 1024
"""Bounds of a batch that is written in one command: one entry of the log holds it."""

CHUNK_ROWS_MAX = 5_000
CHUNK_BYTES_MAX = 1024 * 1024
"""Bounds of a chunk: what the leader decides in one go. A single row may have more bytes."""


class ChunkSplitter(Generic[Item]):
    """Cuts the rows of one part.

    The part `n` keeps at most 1 / (n + 1) of what a batch in one command may have: nobody tells a task how many others
    there are, and rows that are spread evenly are then kept by all; what reaches the driver stays bounded.

    Args:
        part: Number of the part, from 0.

    Attributes:
        row_count: Rows so far.
        size: Bytes so far.

    """

    def __init__(self, part: int) -> None:
        self.row_count = 0
        self.size = 0
        self._rows_kept = WHOLE_ROWS_MAX // (part + 1)
        self._bytes_kept = WHOLE_BYTES_MAX // (part + 1)
        self._closed: list[list[Item]] = []
        self._open: list[Item] = []
        self._open_size = 0

    @property
    def is_kept(self) -> bool:
        """Return whether the rows so far are few enough to be kept."""
        return self.row_count <= self._rows_kept and self.size <= self._bytes_kept

    def add(self, item: Item, size: int) -> None:
        """Add a row of so many bytes."""
        if self._open and (len(self._open) >= CHUNK_ROWS_MAX or self._open_size + size > CHUNK_BYTES_MAX):
            self._close()
        self._open.append(item)
        self._open_size += size
        self.row_count += 1
        self.size += size

    def _close(self) -> None:
        self._closed.append(self._open)
        self._open, self._open_size = [], 0

    def take(self) -> Sequence[Sequence[Item]]:
        """Return the chunks that are full, and forget them; none as long as the part is kept."""
        if self.is_kept:
            return ()
        taken, self._closed = self._closed, []
        return taken

    def finish(self) -> Sequence[Sequence[Item]]:
        """Return the chunks that are left; there will be no more rows."""
        if self._open:
            self._close()
        taken, self._closed = self._closed, []
        return taken

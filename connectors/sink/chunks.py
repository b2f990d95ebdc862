"""Rows of one part, cut into chunks, and what becomes of them. Pure.

A part that is small is *kept*: it goes to the driver in the message of its task, and the driver writes the whole batch
in one command. A part that is not is sent by its task, chunk by chunk. Where a chunk ends hangs on the rows alone, so
that a part that is run again with the same rows has the same chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")


class RowLimits(NamedTuple):
    """Bounds of what is sent at once, by the kind of rows.

    Attributes:
        whole_rows: Of a batch that is written in one command: one entry of the log holds it. 0 = none is.
        whole_bytes: The same.
        chunk_rows: Of a chunk: what the leader decides in one go.
        chunk_bytes: The same; a single row may have more.

    """

    whole_rows: int = 10_000
    whole_bytes: int = 3 * 1024 * 1024
    chunk_rows: int = 5_000
    chunk_bytes: int = 1024 * 1024


class ChunkSplitter(Generic[Item]):
    """Cuts the rows of one part.

    The part `n` keeps at most 1 / (n + 1) of what a batch in one command may have: nobody tells a task how many others
    there are, and rows that are spread evenly are then kept by all; what reaches the driver stays bounded.

    Args:
        part: Number of the part, from 0.
        limits: Of the kind of rows.

    Attributes:
        row_count: Rows so far.
        size: Bytes so far.

    """

    def __init__(self, part: int, limits: RowLimits) -> None:
        self.row_count = 0
        self.size = 0
        self._rows_kept = limits.whole_rows // (part + 1)
        self._bytes_kept = limits.whole_bytes // (part + 1)
        self._limits = limits
        self._closed: list[list[Item]] = []
        self._open: list[Item] = []
        self._open_size = 0

    @property
    def is_kept(self) -> bool:
        """Return whether the rows so far are few enough to be kept."""
        return self.row_count <= self._rows_kept and self.size <= self._bytes_kept

    def add(self, item: Item, size: int) -> None:
        """Add a row of so many bytes."""
        limits = self._limits
        if self._open and (len(self._open) >= limits.chunk_rows or self._open_size + size > limits.chunk_bytes):
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

"""A file looked at in small pieces and read in large ones."""

from __future__ import annotations

from collections.abc import Callable

from ledger.storage.disk import Buffer

WINDOW_BYTES = 1 << 20
"""Size of one read of a file."""


class FileWindow:
    """A file read in large pieces, so that looking at it in small ones costs no system call each.

    Args:
        read: Reads (byte count, byte offset) of the file; fewer bytes only at its end.
        byte_count: Size of the file.

    """

    def __init__(self, read: Callable[[int, int], Buffer], byte_count: int) -> None:
        self._read = read
        self.byte_count = byte_count
        self._data = memoryview(b"")
        self._start = 0

    @classmethod
    def of(cls, data: Buffer) -> FileWindow:
        """Return a window on a whole file in memory."""
        view = memoryview(data)
        return cls(lambda count, offset: view[offset : offset + count], len(view))

    def view(self, byte_offset: int, byte_count: int) -> memoryview:
        """Return bytes of the file; valid as long as it is held. Fewer only at the end of the file."""
        start = byte_offset - self._start
        if start < 0 or start + byte_count > len(self._data):
            self._data = memoryview(self._read(max(byte_count, WINDOW_BYTES), byte_offset))
            self._start = byte_offset
            start = 0
        return self._data[start : start + byte_count]

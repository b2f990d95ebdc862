"""Files of which a device cannot give back a part: which errors say so, and how to read around the place.

Some errors say that the bytes are gone (a medium that fails, a file system that found its own damage); all others say
something of the process or the machine (no such file, no rights, too many files), and nothing may be concluded.
"""

from __future__ import annotations

import errno

from ledger.storage.disk import Disk

_PIECE_BYTES = 4096
_PIECES_MAX = 64
_ERRORS = (errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.EILSEQ, errno.ENODATA, errno.EREMOTEIO)


def is_unreadable(error: BaseException) -> bool:
    """Return whether an error says that the bytes of a file cannot be read."""
    return isinstance(error, OSError) and error.errno in _ERRORS


class FileReader:
    """Reads an open file; zeros stand where the device cannot read, and the place is named.

    What fails is tried again in pieces of 4 KiB. A dying device may take long for each, so after 64 that failed the
    others of a read that fails count as unreadable untried.

    Args:
        disk: The disk.
        handle: Of the file, which stays the caller's.

    Attributes:
        lost: (first, end) byte offsets of what cannot be read, in the order of reading.
        is_settled: What could be read once must be readable now: what fails in addition is an `OSError`.

    """

    def __init__(self, disk: Disk, handle: int) -> None:
        self._disk = disk
        self._handle = handle
        self._failed_count = 0
        self.lost: list[tuple[int, int]] = []
        self.is_settled = False

    def read(self, byte_count: int, byte_offset: int) -> bytes:
        """Return bytes of the file; fewer only at its end.

        Raises:
            OSError: It cannot be read, for another reason than that its bytes are gone.

        """
        try:
            return self._disk.pread(self._handle, byte_count, byte_offset)
        except OSError as error:
            if not is_unreadable(error):
                raise
        size = self._disk.size(self._handle)
        end = min(byte_offset + byte_count, size)
        first = byte_offset // _PIECE_BYTES * _PIECE_BYTES
        pieces = [self._piece(start, min(start + _PIECE_BYTES, size)) for start in range(first, end, _PIECE_BYTES)]
        return b"".join(pieces)[byte_offset - first : end - first]

    def _piece(self, start: int, stop: int) -> bytes:
        if any(first <= start and stop <= end for first, end in self.lost):
            return bytes(stop - start)
        if self._failed_count < _PIECES_MAX or self.is_settled:
            try:
                return self._disk.pread(self._handle, stop - start, start)
            except OSError as error:
                if self.is_settled or not is_unreadable(error):
                    raise
        self._failed_count += 1
        is_next = bool(self.lost) and self.lost[-1][1] == start
        self.lost.append((self.lost.pop()[0] if is_next else start, stop))
        return bytes(stop - start)

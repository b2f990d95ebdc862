"""Writes one segment file: block after block, synced in portions, named only when all of it is durable."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ledger.storage.disk import Buffer, Disk
from ledger.storage.index import BlockRow
from ledger.storage.segment_format import BlockHeader, Footer, encode_block, encode_footer

_LOGGER = logging.getLogger(__name__)
_SYNC_BYTES = 4 << 20
"""A large sync would queue before the journal's: so one every 4 MiB."""
_WRITE_BYTES = 1 << 20


class SegmentWriter:
    """One segment under way. Every call blocks and raises `OSError`: then `abandon` it and keep what it was made of.

    Args:
        disk: The disk.
        folder: Where it goes.
        name: Its file name; until `finish` it carries a suffix.
        segment_id: Its id.

    """

    def __init__(self, disk: Disk, folder: str, name: str, segment_id: int) -> None:
        self._disk = disk
        self._folder = folder
        self._segment_id = segment_id
        self._temporary = f"{folder}/{name}.tmp"
        self.path = f"{folder}/{name}"
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self._written = 0
        self._synced = 0
        self._ledger_bytes: dict[int, int] = {}
        if disk.exists(self._temporary):
            disk.remove(self._temporary)  # An attempt that found the disk full.
        self._handle = disk.open(self._temporary, create=True)
        self._is_open = True

    @property
    def byte_count(self) -> int:
        """Bytes taken so far."""
        return self._written + self._pending_bytes

    def add_block(
        self, ledger_id: int, ids: Sequence[int], entries: Sequence[Buffer], last_add_confirmed: int
    ) -> BlockRow:
        """Encode and append a block; return its row (which no index wants if it holds records)."""
        buffers, byte_count = encode_block(ledger_id, ids, entries, last_add_confirmed)
        return self._add(ledger_id, ids[0], ids[-1], buffers, byte_count)

    def copy_block(self, header: BlockHeader, data: Buffer) -> BlockRow:
        """Append a block of another segment as it is."""
        return self._add(header.ledger_id, header.first_entry_id, header.last_entry_id, [data], header.byte_count)

    def _add(self, ledger_id: int, first: int, last: int, buffers: list[Buffer], byte_count: int) -> BlockRow:
        row = BlockRow(ledger_id, first, last, self._segment_id, self.byte_count, byte_count)
        self._pending += buffers
        self._pending_bytes += byte_count
        self._ledger_bytes[ledger_id] = self._ledger_bytes.get(ledger_id, 0) + byte_count
        if self._pending_bytes >= _WRITE_BYTES:
            self._flush()
            if self._written - self._synced >= _SYNC_BYTES:
                self._disk.fdatasync(self._handle)
                self._synced = self._written
        return row

    def _flush(self) -> None:
        if self._pending:
            self._disk.pwritev(self._handle, self._pending, self._written)
            self._written += self._pending_bytes
            self._pending, self._pending_bytes = [], 0

    def finish(self, replaces: Sequence[int] = ()) -> None:
        """Write the footer; when this returns the segment is durable under its name."""
        footer = encode_footer(self._segment_id, self.byte_count, Footer(self._ledger_bytes, list(replaces)))
        self._pending.append(footer)
        self._pending_bytes += len(footer)
        self._flush()
        self._disk.fdatasync(self._handle)
        self._close()
        self._disk.rename(self._temporary, self.path)
        self._disk.fsync_dir(self._folder)

    def abandon(self) -> None:
        """Give up: let the file and its space go. Raises nothing: the next start removes what stays."""
        try:
            self._close()
            if self._disk.exists(self._temporary):
                self._disk.remove(self._temporary)
        except OSError:
            _LOGGER.warning("an unfinished segment stays until the next start", extra={"path": self._temporary})

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._disk.close(self._handle)

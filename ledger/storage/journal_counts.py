"""Counts of a journal, taken once a batch."""

from __future__ import annotations

from typing import Final

SYNC_MS_BOUNDS: Final = tuple(1 << bits for bits in range(13))
"""Upper bounds of the buckets of times: 1, 2, 4, … 4,096 ms."""
ENTRIES_BOUNDS: Final = tuple(1 << bits for bits in range(0, 17, 2))
"""The same of entries: 1, 4, 16, … 65,536 a batch."""


class JournalCounts:
    """Counts since the start of the process.

    Attributes:
        entries: Entries, and records about ledgers, that are on disk.
        payload_bytes: Their bytes.
        syncs: Batches that had any.
        sync_s: Time from when a batch was handed to the disk's thread until the event loop heard that it is on disk.
        by_sync_ms: Batches by that time; the last counts what is above all bounds.
        by_entries: Batches by their entries.

    """

    __slots__ = ("by_entries", "by_sync_ms", "entries", "payload_bytes", "sync_s", "syncs")

    def __init__(self) -> None:
        self.entries = 0
        self.payload_bytes = 0
        self.syncs = 0
        self.sync_s = 0.0
        self.by_sync_ms = [0] * (len(SYNC_MS_BOUNDS) + 1)
        self.by_entries = [0] * (len(ENTRIES_BOUNDS) + 1)

    def note(self, entry_count: int, byte_count: int, sync_s: float) -> None:
        """Count a batch."""
        self.entries += entry_count
        self.payload_bytes += byte_count
        self.syncs += 1
        self.sync_s += sync_s
        # The bit length of what is below a power of two is its exponent: no search.
        ms = int(sync_s * 1000)
        self.by_sync_ms[min(ms.bit_length(), len(SYNC_MS_BOUNDS))] += 1
        bits = (entry_count - 1).bit_length() if entry_count else 0
        self.by_entries[min((bits + 1) // 2, len(ENTRIES_BOUNDS))] += 1

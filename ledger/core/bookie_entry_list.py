"""List of a bookie's entries of a ledger, packed as BookKeeper packs it.

A 64-byte header (int version 0, int group count, zeros), then groups of 24 bytes: start of the first run (8),
start of the last run (8), run length (4), distance between the starts of two runs (4; 0 for a single run).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

_HEADER_BYTES = 64
_GROUP = struct.Struct(">qqii")


def _runs(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return (start, length) of every run of consecutive ids."""
    runs: list[tuple[int, int]] = []
    for entry_id in ids:
        if runs and entry_id == runs[-1][0] + runs[-1][1]:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((entry_id, 1))
    return runs


def pack_entry_ids(ids: Sequence[int]) -> bytes:
    """Pack ascending entry ids; striped entries (every third, say) take one group."""
    groups: list[tuple[int, int, int, int]] = []
    for start, length in _runs(ids):
        if groups:
            first, last, size, period = groups[-1]
            if size == length and start - last < 1 << 31 and (period in (0, start - last)):
                groups[-1] = (first, start, size, start - last)
                continue
        groups.append((start, start, length, 0))
    head = struct.pack(">ii", 0, len(groups)).ljust(_HEADER_BYTES, b"\0")
    return head + b"".join(_GROUP.pack(*group) for group in groups)

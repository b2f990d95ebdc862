"""The index in memory: for the simulation, where nothing but the simulated disk may survive a crash."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

import msgspec

from ledger.store.index import BlockRow, LedgerRow, merge_ledger_rows
from ledger.store.segment_format import BLOCK_SPAN_MAX

__all__ = ["MemoryIndex"]


class MemoryIndex:
    """See `ledger.store.index.Index`; always empty at a start, so always rebuilt."""

    def __init__(self) -> None:
        # ledger id -> {(first entry, segment): row}, and the sorted keys of that dictionary.
        self._blocks: dict[int, dict[tuple[int, int], BlockRow]] = {}
        self._keys: dict[int, list[tuple[int, int]]] = {}
        self._ledgers: dict[int, LedgerRow] = {}
        self._segments: dict[int, None] = {}

    def segment_ids(self) -> list[int]:
        """See `Index`."""
        return sorted(self._segments)

    def commit_segment(self, segment_id: int, blocks: Sequence[BlockRow], ledgers: Sequence[LedgerRow]) -> None:
        """See `Index`."""
        for row in blocks:
            key = (row.first_entry_id, row.segment_id)
            rows = self._blocks.setdefault(row.ledger_id, {})
            if key not in rows:
                insort(self._keys.setdefault(row.ledger_id, []), key)
            rows[key] = row
        for ledger in ledgers:
            self._ledgers[ledger.ledger_id] = merge_ledger_rows(self._ledgers.get(ledger.ledger_id), ledger)
        self._segments[segment_id] = None

    def drop_segment(self, segment_id: int) -> None:
        """See `Index`."""
        self._segments.pop(segment_id, None)

    def ledger(self, ledger_id: int) -> LedgerRow | None:
        """See `Index`."""
        return self._ledgers.get(ledger_id)

    def candidates(self, ledger_id: int, entry_id: int) -> list[BlockRow]:
        """See `Index`."""
        keys = self._keys.get(ledger_id, [])
        start = bisect_left(keys, (entry_id - BLOCK_SPAN_MAX + 1, 0))
        end = bisect_left(keys, (entry_id + 1, 0))
        rows = [self._blocks[ledger_id][key] for key in reversed(keys[start:end])]
        return [row for row in rows if row.last_entry_id >= entry_id]

    def blocks(self, ledger_id: int) -> list[BlockRow]:
        """See `Index`."""
        return [self._blocks[ledger_id][key] for key in self._keys.get(ledger_id, [])]

    def ledger_ids(self, first: int, limit: int) -> list[int]:
        """See `Index`."""
        ids = sorted(i for i, row in self._ledgers.items() if i >= first and not row.deleted_at_ms)
        return ids[:limit]

    def drop_ledger(self, ledger_id: int, deleted_at_ms: int) -> None:
        """See `Index`."""
        self._blocks.pop(ledger_id, None)
        self._keys.pop(ledger_id, None)
        row = self._ledgers.get(ledger_id, LedgerRow(ledger_id))
        self._ledgers[ledger_id] = msgspec.structs.replace(row, deleted_at_ms=deleted_at_ms, is_fenced=True)

    def close(self) -> None:
        """See `Index`."""

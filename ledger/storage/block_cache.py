"""Recently read blocks of segments, bounded in bytes."""

from __future__ import annotations

import contextlib
from collections import OrderedDict

from ledger.storage.segment_format import Block

Key = tuple[int, int]
"""Segment id and byte offset: never used twice for different blocks."""


class BlockCache:
    """Least recently used blocks go first.

    Used by several reader threads without a lock: each single operation is atomic, and a race costs at most a second
    read and a byte count that is off by a block until that block goes.
    """

    def __init__(self, byte_count_max: int) -> None:
        self._byte_count_max = byte_count_max
        self._blocks: OrderedDict[Key, Block] = OrderedDict()
        self._byte_count = 0

    def get(self, key: Key) -> Block | None:
        """Return a block and make it the youngest."""
        block = self._blocks.get(key)
        if block is not None:
            with contextlib.suppress(KeyError):  # Another reader's block pushed it out just now.
                self._blocks.move_to_end(key)
        return block

    def put(self, key: Key, block: Block) -> None:
        """Keep a block; let the oldest go if it is too much."""
        if self._blocks.setdefault(key, block) is block:
            self._byte_count += block.header.byte_count
        while self._byte_count > self._byte_count_max and len(self._blocks) > 1:
            try:
                _, evicted = self._blocks.popitem(last=False)
            except KeyError:
                break  # Another reader emptied it.
            self._byte_count -= evicted.header.byte_count

"""Consecutive entries without an object for each: only their payloads and what is counted along with them."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.core.entry import Entry


class EntryBlock:
    """Consecutive entries of one ledger whose digests have been checked.

    For readers that hand on columns, not objects.

    Args:
        first_entry_id: Id of the first; the others follow.
        payloads: What the application appended, one an entry.
        lengths: Payload bytes of the ledger up to and including each entry.

    Attributes:
        first_entry_id: Id of the first entry.
        payloads: One an entry.
        lengths: One an entry.

    """

    __slots__ = ("first_entry_id", "lengths", "payloads")

    def __init__(self, first_entry_id: int, payloads: Sequence[memoryview | bytes], lengths: Sequence[int]) -> None:
        assert len(payloads) == len(lengths)
        self.first_entry_id = first_entry_id
        self.payloads = payloads
        self.lengths = lengths

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> EntryBlock:
        """Return consecutive entries as a block; there must be at least one."""
        return cls(entries[0].entry_id, [one.payload for one in entries], [one.length for one in entries])

    def __len__(self) -> int:
        """Return how many entries it has."""
        return len(self.payloads)

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, self.payloads))

    def head(self, count: int) -> EntryBlock:
        """Return the first entries, at most `count`."""
        if count >= len(self):
            return self
        return EntryBlock(self.first_entry_id, self.payloads[:count], self.lengths[:count])

"""Ack window of a writer: for each unconfirmed entry, the ensemble positions that have stored it.

confirmed   on an ack quorum, and so is everything before it  -> id <= `confirmed`
pending     pushed, not confirmed                             -> `confirmed` < id <= `pushed`
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ledger.core.quorum import QuorumConfig, write_set

_COMPACT_AT: Final = 4096  # confirmed entries kept at the front of the list before they are cut off


class AckWindow:
    """Counts answers for a run of entries and confirms them in order.

    Attributes:
        confirmed: Highest entry that is on an ack quorum together with all before it; inclusive.
        is_held: Answers are counted and `confirmed` stands still, until `release`.

    """

    __slots__ = ("_base", "_head", "_is_striped", "_masks", "_quorum", "_write_masks", "confirmed", "is_held")

    def __init__(self, quorum: QuorumConfig, first_entry_id: int = 0) -> None:
        self._quorum = quorum
        self._is_striped = quorum.write_quorum < quorum.ensemble_size
        self.confirmed = first_entry_id - 1
        self.is_held = False
        # Bit p of _masks[i]: position p has stored entry _base + i. Invariant: the entries below index _head
        # are confirmed, those from it on are pending: _base + _head == confirmed + 1.
        self._masks: list[int] = []
        self._base = first_entry_id
        self._head = 0
        # Bit p of _write_masks[e % E]: position p is in the write set of entry e.
        self._write_masks = tuple(
            sum(1 << position for position in write_set(entry_id, quorum)) for entry_id in range(quorum.ensemble_size)
        )

    @property
    def pushed(self) -> int:
        """Highest entry that was pushed."""
        return self._base + len(self._masks) - 1

    @property
    def pending_count(self) -> int:
        """Entries pushed and not confirmed."""
        return len(self._masks) - self._head

    def push(self, count: int) -> None:
        """Take `count` more entries, stored nowhere yet."""
        self._masks.extend([0] * count)

    def store(self, position: int, entry_ids: Iterable[int]) -> bool:
        """Count one position's answers for a batch of entries; tell whether `confirmed` moved.

        Answers for entries already confirmed, given twice, or from outside the write set (a bookie that has come
        back to another position answers late) change nothing.
        """
        masks = self._masks
        base = self._base
        bit = 1 << position
        low, high = self.confirmed, base + len(masks)
        if self._is_striped:
            write_masks, size = self._write_masks, self._quorum.ensemble_size
            entry_ids = [entry_id for entry_id in entry_ids if write_masks[entry_id % size] & bit]
        for entry_id in entry_ids:
            if low < entry_id < high:
                masks[entry_id - base] |= bit
        return not self.is_held and self._advance()

    def hold(self) -> None:
        """Keep `confirmed` where it is."""
        self.is_held = True

    def release(self) -> bool:
        """Undo `hold`; tell whether `confirmed` moved."""
        self.is_held = False
        return self._advance()

    def drop(self, position: int) -> None:
        """Forget what a position stored of the pending entries: another bookie takes its place."""
        keep = ~(1 << position)
        for index in range(self._head, len(self._masks)):
            self._masks[index] &= keep

    def head(self) -> tuple[int, int]:
        """Return the first pending entry as two masks: the positions that have stored it, and those that owe it."""
        stored = self._masks[self._head]
        return stored, self._write_masks[(self._base + self._head) % self._quorum.ensemble_size] & ~stored

    def missing(self, position: int) -> list[int]:
        """Return the pending entries that the position should store and has not, ascending."""
        bit = 1 << position
        size = self._quorum.ensemble_size
        first = self._base + self._head
        return [
            entry_id
            for entry_id, mask in enumerate(self._masks[self._head :], first)
            if not mask & bit and self._write_masks[entry_id % size] & bit
        ]

    def stuck(self, failed_mask: int) -> int | None:
        """Return the first pending entry that cannot reach its ack quorum without the failed positions."""
        size = self._quorum.ensemble_size
        first = self._base + self._head
        for entry_id, mask in enumerate(self._masks[self._head :], first):
            reachable = mask | self._write_masks[entry_id % size] & ~failed_mask
            if reachable.bit_count() < self._quorum.ack_quorum:
                return entry_id
        return None

    def validate(self) -> None:
        assert self._base + self._head == self.confirmed + 1
        assert 0 <= self._head <= len(self._masks)
        if self.pending_count and not self.is_held:
            assert self._masks[self._head].bit_count() < self._quorum.ack_quorum
        for entry_id, mask in enumerate(self._masks, self._base):
            assert not mask & ~self._write_masks[entry_id % self._quorum.ensemble_size]

    def _advance(self) -> bool:
        masks = self._masks
        head = self._head
        ack_quorum = self._quorum.ack_quorum
        end = len(masks)
        while head < end and masks[head].bit_count() >= ack_quorum:
            head += 1
        if head == self._head:
            return False
        self._head = head
        self.confirmed = self._base + head - 1
        # Cutting moves the rest of the list: done rarely, it costs next to nothing per entry.
        if head >= _COMPACT_AT:
            del masks[:head]
            self._base += head
            self._head = 0
        return True

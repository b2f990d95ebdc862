"""Copies that a ledger lacks, by what the metadata say and who serves: no bookie is asked."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ledger.core.metadata import LedgerMetadata
from ledger.replication.core.fragments import Fragment, fragments_of


class LackingCopies(msgspec.Struct, frozen=True):
    """A ledger that lacks copies.

    Attributes:
        ledger_id: The ledger.
        bookie_ids: Bookies that it names and that do not serve, sorted.
        entry_count: Entries known to lack a copy; those behind the last segment's begin of an open ledger are not
            counted, since nobody knows how many they are.
        is_being_written: That last segment lacks a bookie too; its writer may replace it by itself.
        copies_min: Fewest copies that serve, of any of its entries.
        ack_quorum: Of the ledger.

    """

    ledger_id: int
    bookie_ids: tuple[str, ...]
    entry_count: int
    is_being_written: bool
    copies_min: int
    ack_quorum: int

    @property
    def is_unreadable(self) -> bool:
        """Nobody who serves has some of its entries."""
        return self.copies_min == 0

    @property
    def is_short(self) -> bool:
        """Some of its entries have fewer copies than an acknowledgement needs."""
        return self.copies_min < self.ack_quorum


def lacking_copies(ledger_id: int, metadata: LedgerMetadata, serving: Collection[str]) -> LackingCopies | None:
    """Return what a ledger lacks; None if each of its entries has all of its copies on bookies that serve."""
    missing: dict[str, None] = {}
    entry_count, copies_min = 0, metadata.quorum.write_quorum
    is_being_written = False
    for fragment in fragments_of(metadata):
        gone = [n for n, bookie_id in enumerate(fragment.bookies) if bookie_id not in serving]
        if not gone:
            continue
        lacking, fewest = _of_fragment(fragment, gone, metadata)
        if not lacking and fragment.is_settled:
            continue  # No entry of it lies there.
        entry_count += lacking
        copies_min = min(copies_min, fewest)
        is_being_written = is_being_written or not fragment.is_settled
        missing.update((fragment.bookies[n], None) for n in gone)
    if not missing:
        return None
    names = tuple(sorted(missing))
    return LackingCopies(ledger_id, names, entry_count, is_being_written, copies_min, metadata.quorum.ack_quorum)


def _of_fragment(fragment: Fragment, gone: Collection[int], metadata: LedgerMetadata) -> tuple[int, int]:
    """Return how many entries of a fragment lack a copy, and the fewest copies that one has."""
    span, quorum = metadata.quorum.ensemble_size, metadata.quorum.write_quorum
    first, last = fragment.first_entry_id, fragment.last_entry_id
    entry_count, copies_min = 0, quorum
    # Entries that are the same modulo the ensemble lie on the same positions.
    for turn in range(span):
        lost = sum((position - turn) % span < quorum for position in gone)
        if not lost:
            continue
        begin = first + (turn - first) % span
        count = (last - begin) // span + 1 if begin <= last else 0
        if count or not fragment.is_settled:
            entry_count += count
            copies_min = min(copies_min, quorum - lost)
    return entry_count, copies_min

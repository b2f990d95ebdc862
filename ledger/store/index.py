"""The index: where blocks lie and what is known of each ledger. Derived from segments: any doubt, rebuild.

* `CorruptIndexError`   a `CorruptStorageError` of the index alone: nothing is lost
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ledger.core.metadata import NO_ENTRY
from ledger.errors import CorruptStorageError

__all__ = ["BlockRow", "CorruptIndexError", "Index", "LedgerRow", "merge_ledger_rows"]


class CorruptIndexError(CorruptStorageError):
    """The index contradicts itself; it is rebuilt from the segments at the next start."""


class BlockRow(msgspec.Struct, frozen=True, gc=False):
    """One block of a segment. Key: ledger, first entry, segment.

    Attributes:
        ledger_id: Its ledger.
        first_entry_id: Inclusive, >= 0: blocks of records have no row.
        last_entry_id: Inclusive.
        segment_id: The file.
        byte_offset: Of the block's header.
        byte_count: Of the whole block.

    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    segment_id: int
    byte_offset: int
    byte_count: int


class LedgerRow(msgspec.Struct, frozen=True, gc=False):
    """What is durable about one ledger.

    Attributes:
        ledger_id: Its id.
        master_key: Pinned by the first add or fence; empty if its record was lost.
        is_fenced: No ordinary add is taken any more.
        last_entry_id: Highest entry held, or `NO_ENTRY`.
        last_add_confirmed: Highest LAC that an entry's header named.
        explicit_lac: Sealed body of the highest explicit LAC, or empty.
        deleted_at_ms: Wall clock when the collector deleted it, or 0. A deleted ledger refuses adds.

    """

    ledger_id: int
    master_key: bytes = b""
    is_fenced: bool = False
    last_entry_id: int = NO_ENTRY
    last_add_confirmed: int = NO_ENTRY
    explicit_lac: bytes = b""
    deleted_at_ms: int = 0


def merge_ledger_rows(old: LedgerRow | None, new: LedgerRow) -> LedgerRow:
    """Join what two sources know of a ledger: everything in it only grows, so order does not matter."""
    if old is None:
        return new
    explicit = max(old.explicit_lac, new.explicit_lac, key=lambda body: body[8:16])
    return LedgerRow(
        new.ledger_id,
        old.master_key or new.master_key,
        old.is_fenced or new.is_fenced,
        max(old.last_entry_id, new.last_entry_id),
        max(old.last_add_confirmed, new.last_add_confirmed),
        explicit,
        max(old.deleted_at_ms, new.deleted_at_ms),
    )


class Index(Protocol):
    """Every change is one durable transaction. Calls block; reads may come from several threads."""

    def segment_ids(self) -> list[int]:
        """Return the segments whose rows are in the index, ascending."""
        ...

    def commit_segment(self, segment_id: int, blocks: Sequence[BlockRow], ledgers: Sequence[LedgerRow]) -> None:
        """Add a segment's rows; ledger rows are merged with what is there. Doing it twice changes nothing."""
        ...

    def drop_segment(self, segment_id: int) -> None:
        """Forget that a segment is indexed; its ledgers were dropped before."""
        ...

    def ledger(self, ledger_id: int) -> LedgerRow | None:
        """Return what is durable about a ledger, or None if it was never seen."""
        ...

    def candidates(self, ledger_id: int, entry_id: int) -> list[BlockRow]:
        """Return the blocks whose range covers an entry, best first; an entry may be in none of them."""
        ...

    def blocks(self, ledger_id: int) -> list[BlockRow]:
        """Return all blocks of a ledger, ascending."""
        ...

    def ledger_ids(self, first: int, limit: int) -> list[int]:
        """Return up to `limit` ids of ledgers not deleted, ascending, from `first` on."""
        ...

    def drop_ledger(self, ledger_id: int, deleted_at_ms: int) -> None:
        """Forget a ledger's blocks; remember that it was deleted."""
        ...

    def close(self) -> None:
        """Release files and threads."""
        ...

"""The index: where blocks lie and what is known of each ledger. Derived from segments: any doubt, rebuild.

* `CorruptIndexError`   a `CorruptStorageError` of the index alone: nothing is lost
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ledger.core.metadata import NO_ENTRY
from ledger.errors import CorruptStorageError


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


class LedgerRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Durable facts about one ledger.

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


class SegmentRow(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One segment, and how much of it is still needed.

    Attributes:
        segment_id: The file.
        byte_count: Bytes of its blocks of entries.
        live_byte_count: Of these, the bytes that the index still points to.
        is_retired: Nothing points to it any more: it is being unlinked, and must never be indexed again.

    """

    segment_id: int
    byte_count: int
    live_byte_count: int
    is_retired: bool = False


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
    """Every change is one durable transaction. Calls block; reads may come from several threads.

    Invariants: no block row belongs to a deleted ledger or to a retired segment; `live_byte_count` of a segment is
    the sum of its block rows; the rows of ledgers are as many, and of the same sum of checksums, as was counted when
    they were written. `check` looks whether they hold: a damaged page may hide sound rows, or bring old ones back.

    A call that changes something raises `OSError`: with ENOSPC when there is no room, and then nothing changed and it
    may be tried again; with any other number nothing may be assumed. Every call raises `CorruptIndexError` for what
    cannot be believed.
    """

    def check(self) -> None:
        """Look at every row.

        Raises:
            CorruptIndexError: A row is damaged, missing, or one too many.

        """
        ...

    def segment_ids(self) -> list[int]:
        """Return the segments whose rows are in the index, ascending; no retired ones."""
        ...

    def segments(self) -> list[SegmentRow]:
        """Return what is known of every segment, retired ones too, ascending."""
        ...

    def commit_segment(self, segment_id: int, blocks: Sequence[BlockRow], ledgers: Sequence[LedgerRow]) -> None:
        """Add a segment's rows; ledger rows are merged with what is there. Doing it twice changes nothing.

        Of an interrupted one some rows may be there, all true; until all are, the segment is not in `segment_ids`.

        A ledger that is deleted, by now or by one of `ledgers`, gets no block rows and loses those it has.
        """
        ...

    def replace_segments(
        self, retired_ids: Sequence[int], removed: Sequence[BlockRow], segment_id: int | None, added: Sequence[BlockRow]
    ) -> None:
        """Let one segment take the place of others, whose files may be unlinked afterwards.

        Args:
            retired_ids: The segments that go.
            removed: All their block rows.
            segment_id: The new one, already durable; None if nothing of the old ones is needed any more.
            added: Its block rows; those of ledgers that were deleted meanwhile are left out.

        """
        ...

    def drop_segment(self, segment_id: int) -> None:
        """Forget a retired segment: its file is gone for good."""
        ...

    def drop_block(self, row: BlockRow) -> None:
        """Forget one block: what it held lies in other blocks by now."""
        ...

    def ledger(self, ledger_id: int) -> LedgerRow | None:
        """Return what is durable about a ledger, or None if it was never seen, or deleted long ago."""
        ...

    def candidates(self, ledger_id: int, entry_id: int) -> list[BlockRow]:
        """Return the blocks whose range covers an entry, best first; an entry may be in none of them."""
        ...

    def holds(self, row: BlockRow) -> bool:
        """Return whether this very row is in the index."""
        ...

    def blocks(self, ledger_id: int) -> list[BlockRow]:
        """Return all blocks of a ledger, ascending."""
        ...

    def ledger_ids(self, first: int, limit: int) -> list[int]:
        """Return up to `limit` ids of ledgers not deleted, ascending, from `first` on."""
        ...

    def deleted_ledgers(self, first: int, limit: int) -> list[tuple[int, int]]:
        """Return up to `limit` pairs (id, deleted at, ms) of deleted ledgers, ascending, from id `first` on."""
        ...

    def drop_ledgers(self, ledger_ids: Sequence[int], deleted_at_ms: int) -> None:
        """Forget the blocks of ledgers; remember that they were deleted."""
        ...

    def forget_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """Forget deleted ledgers altogether; any that is not deleted stays."""
        ...

    def close(self) -> None:
        """Release files and threads."""
        ...

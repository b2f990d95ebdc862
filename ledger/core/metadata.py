"""Metadata of one ledger as values; the formats are in `ledger.wire`."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from ledger.core.quorum import QuorumConfig

NO_ENTRY = -1
"""The entry id before the first: last entry of an empty ledger, LAC before anything is confirmed."""


class LedgerState(IntEnum):
    """Life of a ledger. OPEN -> CLOSED by its writer; OPEN -> IN_RECOVERY -> CLOSED by a recoverer."""

    OPEN = 1
    IN_RECOVERY = 2
    CLOSED = 3


class DigestType(IntEnum):
    """Protection of entries; the numbers are those of the metadata format."""

    CRC32 = 1
    HMAC = 2
    CRC32C = 3
    DUMMY = 4


class Segment(msgspec.Struct, frozen=True):
    """Entries from `first_entry_id` on are written to `bookies`, until the next segment begins.

    Attributes:
        first_entry_id: Inclusive.
        bookies: Bookie ids ("host:port"), one per ensemble position.

    """

    first_entry_id: int
    bookies: tuple[str, ...]


class LedgerMetadata(msgspec.Struct, frozen=True):
    """One ledger as its znode describes it.

    Attributes:
        quorum: Replication.
        state: See `LedgerState`.
        segments: Ascending by `first_entry_id`, the first starts at 0; at least one.
        digest_type: How entries are protected.
        password: In clear, as BookKeeper stores it.
        last_entry_id: Inclusive; only meaningful when CLOSED, else `NO_ENTRY`.
        length: Payload bytes of all entries; only meaningful when CLOSED, else 0.
        created_ms: Wall clock at creation.
        custom: The application's own key-value pairs.
        token: Random number of the creation, which tells whose create came through; kept by format 3 only.
        format_version: Of the node's value; a change keeps it, so that every writer of the cluster goes on reading.

    """

    quorum: QuorumConfig
    state: LedgerState
    segments: tuple[Segment, ...]
    digest_type: DigestType
    password: bytes
    last_entry_id: int = NO_ENTRY
    length: int = 0
    created_ms: int = 0
    custom: dict[str, bytes] = {}
    token: int = 0
    format_version: int = 3

    @property
    def is_closed(self) -> bool:
        """True if the last entry is final."""
        return self.state == LedgerState.CLOSED

    def ensemble_at(self, entry_id: int) -> tuple[str, ...]:
        """Return the bookies of the segment that holds `entry_id`."""
        for segment in reversed(self.segments):
            if segment.first_entry_id <= entry_id:
                return segment.bookies
        return self.segments[0].bookies

"""Fragments of a ledger, and one bookie's share of a fragment: which entries belong on which bookie.

A fragment is what the entries of one segment are called when they are to be copied. It is settled once nobody can
add to it: a later segment follows, so that all its entries are confirmed, or the ledger is closed. Of the last segment
of an open ledger only what is known to be confirmed is ever copied (see `ledger.replication.core.confirmed_end`): what
lies beyond may still be taken back.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ledger.core.metadata import NO_ENTRY, LedgerMetadata
from ledger.core.quorum import QuorumConfig


class Fragment(msgspec.Struct, frozen=True):
    """The entries of one segment.

    Attributes:
        first_entry_id: Inclusive; names the segment.
        last_entry_id: Inclusive; `first_entry_id - 1` if there are none. If it is not settled, the last one that is
            known to be confirmed.
        bookies: By ensemble position.
        is_settled: Nobody can add to it.

    """

    first_entry_id: int
    last_entry_id: int
    bookies: tuple[str, ...]
    is_settled: bool


class Share(msgspec.Struct, frozen=True):
    """The entries of a fragment that one ensemble position stores.

    Attributes:
        first_entry_id: Of the fragment, inclusive.
        last_entry_id: Of the fragment, inclusive.
        position: In the ensemble.
        quorum: Replication of the ledger.

    """

    first_entry_id: int
    last_entry_id: int
    position: int
    quorum: QuorumConfig

    def __contains__(self, entry_id: int) -> bool:
        """Return whether the position stores this entry."""
        if not self.first_entry_id <= entry_id <= self.last_entry_id:
            return False
        return (self.position - entry_id) % self.quorum.ensemble_size < self.quorum.write_quorum

    def between(self, first: int, last: int) -> Iterator[int]:
        """Yield the entries of the share from `first` to `last`, both inclusive."""
        first, last = max(first, self.first_entry_id), min(last, self.last_entry_id)
        if self.quorum.write_quorum == self.quorum.ensemble_size:
            yield from range(first, last + 1)
            return
        for entry_id in range(first, last + 1):
            if entry_id in self:
                yield entry_id

    def ends(self) -> list[int]:
        """Return the first and the last entry of the share; fewer if it has fewer."""
        span = self.quorum.ensemble_size
        first = next(self.between(self.first_entry_id, self.first_entry_id + span - 1), None)
        if first is None:
            return []
        *_, last = self.between(self.last_entry_id - span + 1, self.last_entry_id)
        return [first] if first == last else [first, last]


def fragments_of(metadata: LedgerMetadata, confirmed: int = NO_ENTRY) -> list[Fragment]:
    """Return the fragments of a ledger, one a segment, ascending.

    Args:
        metadata: Of the ledger.
        confirmed: If it is open, the last entry that is known to be confirmed.

    """
    fragments: list[Fragment] = []
    for index, segment in enumerate(metadata.segments):
        first = segment.first_entry_id
        is_last = index == len(metadata.segments) - 1
        last = confirmed if is_last else metadata.segments[index + 1].first_entry_id - 1
        if metadata.is_closed:
            last = metadata.last_entry_id if is_last else min(last, metadata.last_entry_id)
        fragments.append(Fragment(first, max(last, first - 1), segment.bookies, not is_last or metadata.is_closed))
    return fragments


def share_of(fragment: Fragment, position: int, quorum: QuorumConfig) -> Share:
    """Return what one position of a fragment's ensemble stores."""
    return Share(fragment.first_entry_id, fragment.last_entry_id, position, quorum)

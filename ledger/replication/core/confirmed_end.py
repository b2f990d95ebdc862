"""End of what is confirmed in an open ledger, learnt without its writer, and without anything being fenced.

An entry is confirmed, and no recovery can leave it out, if

1. its writer says so: the LAC that comes with entries, or by itself, covers it; or
2. an ack quorum of bookies holds it, and the same is true of all entries before it. A recovery ends a ledger only
   before an entry that so many bookies deny that no ack quorum can hold it.

The first lags behind by what the writer had under way, for ever if it writes nothing any more; the second knows nothing
of entries whose copies have been lost since. What was acknowledged is found by the second as long as all bookies tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from ledger.core.metadata import LedgerMetadata
from ledger.replication.core.fragments import Share
from ledger.replication.core.held_entries import NOTHING_HELD, HeldEntries

_BEYOND_LAC_MAX: Final = 1 << 18
"""Entries behind the LAC that are looked at: more than a writer has under way."""


def confirmed_end(metadata: LedgerMetadata, lacs: Iterable[int], holdings: Mapping[str, HeldEntries]) -> int:
    """Return the last entry of an open ledger that is known to be confirmed.

    Args:
        metadata: Of the ledger; read before the bookies were asked or after, for confirmed is confirmed.
        lacs: What bookies of its last ensemble told, each seen to be the writer's.
        holdings: What bookies of its last ensemble hold; those that did not tell hold nothing.

    """
    quorum, segment = metadata.quorum, metadata.segments[-1]
    told = max([segment.first_entry_id - 1, *lacs])
    first, last = told + 1, told + _BEYOND_LAC_MAX
    gaps = [
        list(holdings.get(bookie_id, NOTHING_HELD).gaps(Share(first, last, position, quorum)))
        for position, bookie_id in enumerate(segment.bookies)
    ]
    span, spared = quorum.ensemble_size, quorum.write_quorum - quorum.ack_quorum
    starts = sorted({first, last + 1, *(entry_id for each in gaps for a, b in each for entry_id in (a, b + 1))})
    cursors = [0] * len(gaps)
    for begin, after in pairwise(starts):
        lacking: list[int] = []  # Positions that hold nothing of theirs from `begin` up to `after`.
        for position, each in enumerate(gaps):
            while cursors[position] < len(each) and each[cursors[position]][1] < begin:
                cursors[position] += 1
            if cursors[position] < len(each) and each[cursors[position]][0] <= begin:
                lacking.append(position)
        # Entries that are the same modulo the ensemble lie on the same positions.
        for entry_id in range(begin, min(after, begin + span)):
            if sum((position - entry_id) % span < quorum.write_quorum for position in lacking) > spared:
                return entry_id - 1
    return last

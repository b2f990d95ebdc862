"""Sans-IO change of the ensemble of a ledger that is written: what to put into the metadata, and what was found there.

The bookies that failed (positions F of the old ensemble O) give their places to spares: that is the new ensemble N.
The metadata get a new segment with N that begins at S = LAC + 1, or N takes O's place if O's segment begins at S.

1. The answers of F are taken back before the first attempt to write, also for entries that were complete and waited
   only for their turn to be confirmed. They never count again, whatever comes later.
2. Every attempt is a compare-and-set on a version whose content was judged. A refused or unanswered attempt means:
   read again and decide. Still O: try again from what was read (somebody may have replaced a bookie of an older
   segment). One of the own attempts: it came through, only its reply was lost. IN_RECOVERY or CLOSED: this writer is
   fenced. Anything else: somebody else writes this ledger, stop.
3. While an attempt is on its way, the LAC stands still, so that S stays LAC + 1; answers are counted meanwhile. If the
   store takes its time, or gave no reply, the writer goes on confirming: an entry counts once an ack quorum of
   positions *outside F* has it. Nobody knows then whether the metadata name O or N, so that rule has to do for both.
4. If an attempt with S came through and the LAC has moved past S meanwhile, the boundary moves too: one more
   compare-and-set keeps O up to the LAC and begins N after it. So N's new members are only ever owed entries that are
   still pending and whose bytes are still at hand, and nothing has to be kept while the store is away.
5. Spares get entries only when the metadata name them for sure; bookies that fail meanwhile wait for the next change.

Why 3 is safe, by the invariants of the TLA+ model of BookKeeper's protocol:

* `AllAckedEntriesAreReadable`. Outside F, O and N have the same bookies at the same positions, and the write set of an
  entry is the same positions in both. So an ack quorum outside F is an ack quorum of the entry's write set in O and
  in N: whichever segment the metadata assign the entry to, now or after 4 has moved the boundary, its replicas hold it.
* A recoverer fences the last ensemble that it reads, O or N, until every write set has at most ack quorum - 1 bookies
  that it has not fenced. Those that the writer counts are in that ensemble too, so from then on none of its entries
  can reach an ack quorum; and of those confirmed before, at most write quorum - ack quorum replicas of the write set
  lack it, which is one fewer than recovery needs to call it absent. A bookie of F that nobody fences does no harm: its
  word does not count.
* A recoverer begins with a compare-and-set to IN_RECOVERY. An attempt that comes after it is refused and ends the
  writer (2); one that comes before it is what the recoverer reads.
* `NoOutOfOrderEntries`. S is above every confirmed entry and at or above the first entry of O's segment, and only grows
  from one attempt to the next: segments stay ascending, and no confirmed entry moves to bookies that lack it.

Sources: BookKeeper's LedgerHandle (which lets the LAC stand still until the store has answered, however long that
takes); the TLA+ specification of its replication protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from ledger.core.metadata import LedgerMetadata, LedgerState, Segment
from ledger.errors import FencedError, LedgerError


class WriteMetadata(msgspec.Struct, frozen=True):
    """Compare-and-set these metadata on this version."""

    metadata: LedgerMetadata
    version: int


class ChangeSettled(msgspec.Struct, frozen=True):
    """The metadata hold the new ensemble, from the entry after the LAC on."""

    metadata: LedgerMetadata
    version: int


class ChangeFailed(msgspec.Struct, frozen=True):
    """The ledger is not this writer's any more."""

    error: LedgerError


Verdict: TypeAlias = ChangeSettled | ChangeFailed | None
"""None: propose again."""


class EnsembleChange:
    """One change, from chosen spares to what the metadata store then holds.

    Args:
        ledger_id: The ledger.
        metadata: As the writer last saw them, OPEN.
        version: Of `metadata`.
        spares: Position -> the bookie that takes its place.

    Attributes:
        bookies: The new ensemble.

    """

    def __init__(self, ledger_id: int, metadata: LedgerMetadata, version: int, spares: Mapping[int, str]) -> None:
        self.ledger_id = ledger_id
        old = metadata.segments[-1]
        self.bookies = tuple(spares.get(position, bookie) for position, bookie in enumerate(old.bookies))
        assert spares
        assert len(set(self.bookies)) == len(old.bookies), "a bookie is in an ensemble once"
        self._old = old
        # The metadata with the old ensemble in its last segment: what every attempt starts from.
        self._base = metadata
        # Of what the store holds for sure, or of an own attempt that came through.
        self._version = version
        # Where the new segment began in the attempts so far, ascending: any of them may have come through.
        self._attempts: list[int] = []

    def propose(self, first_entry_id: int) -> WriteMetadata:
        """Return the next attempt, whose new segment begins at `first_entry_id`: LAC + 1, and the LAC stands."""
        assert first_entry_id >= max(self._old.first_entry_id, *self._attempts[-1:], 0)
        if self._attempts[-1:] != [first_entry_id]:
            self._attempts.append(first_entry_id)
        segments = self._base.segments
        kept = segments[:-1] if self._old.first_entry_id == first_entry_id else segments
        changed = msgspec.structs.replace(self._base, segments=(*kept, Segment(first_entry_id, self.bookies)))
        return WriteMetadata(changed, self._version)

    def on_written(self, written: WriteMetadata, version: int, last_add_confirmed: int) -> Verdict:
        """Take the store's word that an attempt came through as this version."""
        self._version = version
        return self._settle(written.metadata, last_add_confirmed)

    def on_read(self, found: LedgerMetadata, version: int, last_add_confirmed: int) -> Verdict:
        """Judge what the store holds after an attempt that was refused or not answered."""
        if found.state != LedgerState.OPEN:
            what = "is being recovered" if found.state == LedgerState.IN_RECOVERY else "was closed"
            return self._fail(f"it {what} by another client; stop writing, close it to learn its end")
        self._version = version
        last = found.segments[-1]
        if last == self._old:
            self._base = found
            return None
        if last.bookies == self.bookies and last.first_entry_id in self._attempts:
            return self._settle(found, last_add_confirmed)
        return self._fail(
            f"another client has changed its ensemble to {', '.join(last.bookies)} from entry {last.first_entry_id} "
            "on; stop writing, close it to learn its end"
        )

    def _settle(self, held: LedgerMetadata, last_add_confirmed: int) -> Verdict:
        first_entry_id = held.segments[-1].first_entry_id
        if first_entry_id == last_add_confirmed + 1:
            return ChangeSettled(held, self._version)
        kept = held.segments[:-1]
        if first_entry_id == self._old.first_entry_id:  # it took the place of the old one, which now returns
            kept = (*kept, self._old)
        self._base = msgspec.structs.replace(held, segments=kept)
        return None

    def _fail(self, what: str) -> ChangeFailed:
        error = FencedError(f"ledger {self.ledger_id}: cannot replace a bookie: {what}", ledger_id=self.ledger_id)
        return ChangeFailed(error)

"""Sans-IO recovery of one ledger that is not closed: fence, find the end, write the tail back, close.

1. Fence: read entry -1 with the fence flag at the whole last ensemble, until no write set has an ack quorum of
   bookies unheard of (the old writer cannot confirm anything any more).
2. start = max(highest LAC found, first entry of the last segment - 1) + 1. Everything below is confirmed.
3. Read forward from start, every read fencing too: first at one replica, if one is known to have entries up to
   there, and at all others when that one has it not, or is silent. An entry is found once one replica gives it;
   absent only once WQ - AQ + 1 replicas say that they never had it. Anything else (silence, an IO error, bytes that
   fail the digest, a refused password) is "unknown". It stops the recovery if the others do not decide without it:
   it never cuts the ledger short.
4. Write each found entry back to its write set with RECOVERY_ADD. It carries start - 1 as LAC, the one that the
   recovery began with, so that a reader never sees a LAC that another recovery could still take back.
5. Where a write set cannot reach its ack quorum, a spare bookie takes the place of a failed one: in a new
   segment that starts at the first entry not yet written back, kept here and published only with the close. A bookie
   that is silent while others have stored the entry is treated so too, if a spare is there; if none is, it is awaited.
6. Close by compare-and-set at the last entry found, over the metadata that the own compare-and-set to IN_RECOVERY
   gave (`closed_metadata`); the shell does it, and adopts a CLOSED that was quicker.

    unread      not asked for yet                        -> id >= `_next_read`
    reading     asked for, not decided                   -> `_reads`
    held        found, not on an ack quorum again yet    -> `_held`
    restored    on an ack quorum                         -> id <= `_window.confirmed`

Sources: BookKeeper's LedgerRecoveryOp; the TLA+ model of its recovery (recovery reads must fence). BookKeeper gives
up at the first bookie that refuses the password; here a single one, whose key of the ledger is another, is as good as
silent.
"""

# Longer than 400 lines: the phases of one recovery share its state.

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final, TypeAlias

import msgspec

from ledger.core.ack_window import AckWindow
from ledger.core.coverage import is_covered
from ledger.core.entry import Answer, Entry, Miss, MissKind
from ledger.core.metadata import NO_ENTRY, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import write_set
from ledger.core.reader import read_failure, replicas_of
from ledger.errors import LedgerError, QuorumLostError, WrongPasswordError

READ_AHEAD_ENTRIES: Final = 64
"""Entries that are read or written back at a time at first; every entry restored lets one more in."""
READ_AHEAD_ENTRIES_MAX: Final = 4096
READ_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""Bound on the payload bytes in hand, for entries as large as the largest seen so far."""
_READ_AHEAD_ENTRIES_MIN: Final = 4
_READS_IN_A_ROW: Final = 16
"""Entries that the same bookie is asked for, one after the other."""


class FenceRead(msgspec.Struct, frozen=True, gc=False):
    """Read this entry at this bookie with the fence flag; -1 is the highest that it has stored."""

    bookie_id: str
    entry_id: int


class WriteBack(msgspec.Struct, frozen=True):
    """Store the entry at this bookie with RECOVERY_ADD, under this LAC."""

    bookie_id: str
    entry: Entry
    last_add_confirmed: int


class ReplaceBookie(msgspec.Struct, frozen=True):
    """Choose a bookie for this position of this ensemble, none of `excluded`; answer with `on_replacement`."""

    bookie_id: str
    position: int
    ensemble: tuple[str, ...]
    excluded: tuple[str, ...]


class CloseLedger(msgspec.Struct, frozen=True):
    """Compare-and-set the metadata to CLOSED with this end. The recovery is over."""

    last_entry_id: int
    length: int
    segments: tuple[Segment, ...]


class FailRecovery(msgspec.Struct, frozen=True):
    """Give up: the end cannot be known now. Nothing was cut short; it may be tried again."""

    error: LedgerError


Effect: TypeAlias = FenceRead | WriteBack | ReplaceBookie | CloseLedger | FailRecovery


class _Phase(Enum):
    FENCING = "fencing"
    READING = "reading"
    SIZING = "sizing"  # nothing to write back: one more read tells the length of what is confirmed
    OVER = "over"


class Recovery:
    """One recovery by one client, from metadata that is IN_RECOVERY."""

    def __init__(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        self.ledger_id = ledger_id
        self._quorum = metadata.quorum
        self._metadata = metadata
        self._segments = list(metadata.segments)
        self._phase = _Phase.FENCING
        self._fence_answers: dict[str, Answer] = {}
        self._lac_found = NO_ENTRY
        self._payload_bytes_max = 0  # of the entries seen so far
        self._read_ahead = READ_AHEAD_ENTRIES
        # Set when fencing is done; from then on the segments below `_start` are never touched.
        self._start = 0
        self._next_read = 0
        self._frontier = 0  # the first entry that is not decided
        self._end: int | None = None  # the last entry, once known
        self._end_length = 0
        # entry -> answers by bookie, for entries from `_frontier` on (and the one that is read for its length)
        self._reads: dict[int, dict[str, Answer]] = {}
        # Those of them for which one replica was asked only, and which.
        self._asked_one: dict[int, str] = {}
        self._frontier_before = NO_ENTRY  # at the last `on_silence`
        self._confirmed_before: int | None = None  # the same of `_window`
        # Bookie -> the highest entry that it has shown when it was fenced; and the highest of all.
        self._shown: dict[str, int] = {}
        self._highest_shown = NO_ENTRY
        self._held: dict[int, Entry] = {}
        self._window = AckWindow(metadata.quorum)
        self._failed: dict[str, str] = {}
        # Bookies that owe the answer to a `WriteBack` -> whether a spare may be sought.
        self._silent: dict[str, bool] = {}
        self._replacing: set[str] = set()

    @property
    def is_over(self) -> bool:
        """True if `CloseLedger` or `FailRecovery` has been returned."""
        return self._phase is _Phase.OVER

    def start(self) -> list[Effect]:
        """Fence the last ensemble."""
        return [FenceRead(bookie_id, NO_ENTRY) for bookie_id in self._segments[-1].bookies]

    def wants(self, entry_id: int) -> bool:
        """Return whether an answer about the entry can still matter; if not, nobody needs to check its digest."""
        return not self.is_over and entry_id in self._reads

    def on_answers(self, answers: Iterable[tuple[str, int, Answer]]) -> list[Effect]:
        """Take one wake-up's answers to fencing reads: (bookie, entry id asked for, answer)."""
        effects: list[Effect] = []
        for bookie_id, entry_id, answer in answers:
            if self.is_over:
                break
            if entry_id == NO_ENTRY:
                effects += self._on_fenced(bookie_id, answer)
            elif entry_id in self._reads:
                self._reads[entry_id].setdefault(bookie_id, answer)
                if isinstance(answer, Miss):
                    effects += self._ask_others(entry_id)
        if not self.is_over and self._phase is not _Phase.FENCING:
            effects += self._advance()
        return effects

    def on_silence(self) -> list[Effect]:
        """Ask all other replicas too if nothing was decided since the last call; made at intervals while one waits.

        Seek spares for those that owe the oldest entry, if nothing was restored since the last call.
        """
        has_moved, self._frontier_before = self._frontier != self._frontier_before, self._frontier
        has_restored = self._window.confirmed != self._confirmed_before
        self._confirmed_before = self._window.confirmed
        if self.is_over:
            return []
        effects: list[Effect] = []
        if not has_moved:
            effects += [read for entry_id in list(self._asked_one) for read in self._ask_others(entry_id)]
        if not has_restored and self._window.pending_count:
            effects += self._doubt_the_silent()
        return effects

    def on_stored(self, bookie_id: str, entry_ids: Iterable[int]) -> list[Effect]:
        """Take one bookie's answers to `WriteBack`; a bookie that has been replaced does not count."""
        ensemble = self._segments[-1].bookies
        if self.is_over or bookie_id not in ensemble:
            return []
        self._silent.pop(bookie_id, None)
        before = self._window.confirmed
        if self._window.store(ensemble.index(bookie_id), entry_ids):
            for entry_id in range(before + 1, self._window.confirmed + 1):
                del self._held[entry_id]
            self._read_ahead += self._window.confirmed - before
        return self._advance()

    def on_store_failed(self, bookie_id: str, reason: str) -> list[Effect]:
        """Go on without a bookie that did not take a `WriteBack`; replace it if a write set needs it."""
        if self.is_over or bookie_id not in self._segments[-1].bookies:
            return []
        self._failed[bookie_id] = reason
        return self._advance()

    def on_replacement(self, bookie_id: str, spare: str | None) -> list[Effect]:
        """Put the spare where the failed bookie was, or give up if there is none."""
        self._replacing.discard(bookie_id)
        last = self._segments[-1]
        if self.is_over or bookie_id not in last.bookies:
            return []
        if spare is None and bookie_id not in self._failed:
            self._silent[bookie_id] = False
            return self._advance()
        if spare is None:
            return self._fail(self._blocked("write back", self._window.confirmed + 1, self._failed))
        bookies = tuple(spare if bookie == bookie_id else bookie for bookie in last.bookies)
        first = self._window.confirmed + 1
        if last.first_entry_id == first:
            self._segments.pop()
        self._segments.append(Segment(first, bookies))
        position = bookies.index(spare)
        self._window.drop(position)
        effects: list[Effect] = [self._write_back(spare, entry_id) for entry_id in self._window.missing(position)]
        return effects + self._advance()

    def validate(self) -> None:
        if self._phase is _Phase.FENCING:
            return
        self._window.validate()
        assert self._frontier <= self._next_read
        assert list(self._held) == list(range(self._window.confirmed + 1, self._window.pushed + 1))
        # It may be over before the fence told where to start.
        assert self._phase is _Phase.OVER or self._start >= self._metadata.segments[-1].first_entry_id

    def _on_fenced(self, bookie_id: str, answer: Answer) -> list[Effect]:
        if self._phase is not _Phase.FENCING:
            return []
        self._fence_answers[bookie_id] = answer
        if isinstance(answer, Entry):
            self._lac_found = max(self._lac_found, answer.last_add_confirmed)
            self._payload_bytes_max = max(self._payload_bytes_max, len(answer.payload))
            self._shown[bookie_id] = answer.entry_id
            self._highest_shown = max(self._highest_shown, answer.entry_id)
        ensemble = self._segments[-1].bookies
        # A bookie that answers at all has fenced, even if its entry fails the digest or it had none.
        unheard = {
            bookie: miss
            for bookie, miss in self._fence_answers.items()
            if isinstance(miss, Miss) and miss.kind in (MissKind.UNKNOWN, MissKind.DENIED)
        }
        if not is_covered(ensemble, [b for b in self._fence_answers if b not in unheard], self._quorum):
            if is_covered(ensemble, [b for b in ensemble if b not in unheard], self._quorum):
                return []
            return self._fail(self._unknown("fence", None, unheard))
        last_segment_first = self._metadata.segments[-1].first_entry_id
        self._start = max(self._lac_found, last_segment_first - 1) + 1
        self._next_read = self._frontier = self._start
        self._window = AckWindow(self._quorum, self._start)
        self._phase = _Phase.READING
        return []

    def _advance(self) -> list[Effect]:
        """Decide what can be decided, and ask for what comes next."""
        effects: list[Effect] = []
        while self._end is None and not self.is_over and self._frontier in self._reads:
            decided = self._decide(self._frontier)
            if decided is None:
                break
            effects += decided
        if self.is_over:
            return effects
        if self._phase is _Phase.SIZING:
            return effects + self._size()
        if self._end is None:
            effects += self._read_on()
        if self._failed or self._silent:
            effects += self._replace()
        if self._end is not None and self._window.confirmed == self._end:
            effects += self._finish()
        return effects

    def _decide(self, entry_id: int) -> list[Effect] | None:
        """Return what follows from the answers about one entry; None as long as they do not decide it."""
        answers = self._reads[entry_id]
        found = next((answer for answer in answers.values() if isinstance(answer, Entry)), None)
        if found is not None:
            del self._reads[entry_id]
            self._asked_one.pop(entry_id, None)
            self._held[entry_id] = found
            self._payload_bytes_max = max(self._payload_bytes_max, len(found.payload))
            self._end_length = found.length
            self._frontier = entry_id + 1
            self._window.push(1)
            ensemble = self._segments[-1].bookies
            return [self._write_back(ensemble[p], entry_id) for p in write_set(entry_id, self._quorum)]
        misses = [(bookie, answer) for bookie, answer in answers.items() if isinstance(answer, Miss)]
        if sum(miss.kind == MissKind.ABSENT for _, miss in misses) >= self._quorum.coverage_count:
            self._end = entry_id - 1
            self._reads.clear()
            self._asked_one.clear()
            return []
        if len(misses) == self._quorum.write_quorum:
            unknown = {bookie: miss for bookie, miss in misses if miss.kind != MissKind.ABSENT}
            return self._fail(self._unknown("tell whether there is an", entry_id, unknown))
        return None

    def _read_on(self) -> list[Effect]:
        effects: list[Effect] = []
        fitting = max(_READ_AHEAD_ENTRIES_MIN, READ_AHEAD_BYTES // (self._payload_bytes_max + 1))
        limit = self._window.confirmed + min(self._read_ahead, fitting, READ_AHEAD_ENTRIES_MAX)
        limit = min(limit, max(self._highest_shown, self._frontier) + READ_AHEAD_ENTRIES)
        while self._next_read <= limit:
            entry_id = self._next_read
            self._next_read += 1
            self._reads[entry_id] = {}
            replicas = replicas_of(self._metadata, entry_id)
            holders = [bookie_id for bookie_id in replicas if self._shown.get(bookie_id, NO_ENTRY) >= entry_id]
            if holders:
                self._asked_one[entry_id] = holders[entry_id // _READS_IN_A_ROW % len(holders)]
                replicas = [self._asked_one[entry_id]]
            effects += [FenceRead(bookie_id, entry_id) for bookie_id in replicas]
        return effects

    def _ask_others(self, entry_id: int) -> list[Effect]:
        asked = self._asked_one.pop(entry_id, None)
        if asked is None:
            return []
        replicas = replicas_of(self._metadata, entry_id)
        return [FenceRead(bookie_id, entry_id) for bookie_id in replicas if bookie_id != asked]

    def _write_back(self, bookie_id: str, entry_id: int) -> Effect:
        return WriteBack(bookie_id, self._held[entry_id], self._start - 1)

    def is_silent(self, bookie_id: str) -> bool:
        """Return whether a bookie owes the answer to a `WriteBack`, though another has stored the entry."""
        return bookie_id in self._silent

    def _doubt_the_silent(self) -> list[Effect]:
        stored, owing = self._window.head()
        for position, bookie_id in enumerate(self._segments[-1].bookies) if stored else ():
            if owing >> position & 1 and bookie_id not in self._failed:
                self._silent.setdefault(bookie_id, True)
        return self._replace()

    def _replace(self) -> list[Effect]:
        ensemble = self._segments[-1].bookies
        failed = [
            (position, bookie)
            for position, bookie in enumerate(ensemble)
            if bookie in self._failed or self._silent.get(bookie)
        ]
        if self._replacing or self._window.stuck(sum(1 << position for position, _ in failed)) is None:
            return []
        position, bookie_id = failed[0]  # one at a time: the spare for the next one depends on this one's
        self._replacing.add(bookie_id)
        return [ReplaceBookie(bookie_id, position, ensemble, tuple(sorted({*ensemble, *self._failed, *self._silent})))]

    def _finish(self) -> list[Effect]:
        assert self._end is not None
        if self._end < self._start and self._end >= 0:
            self._phase = _Phase.SIZING
            self._reads = {self._end: {}}
            return [FenceRead(bookie_id, self._end) for bookie_id in replicas_of(self._metadata, self._end)]
        self._phase = _Phase.OVER
        return [CloseLedger(self._end, self._end_length, tuple(self._segments))]

    def _size(self) -> list[Effect]:
        """Take the length from the last confirmed entry; it exists, so only all replicas together can deny it."""
        assert self._end is not None
        answers = self._reads[self._end]
        for answer in answers.values():
            if isinstance(answer, Entry):
                self._phase = _Phase.OVER
                return [CloseLedger(self._end, answer.length, tuple(self._segments))]
        if len(answers) < self._quorum.write_quorum:
            return []
        misses = [(bookie, answer) for bookie, answer in answers.items() if isinstance(answer, Miss)]
        return self._fail(read_failure(self.ledger_id, self._end, misses))

    def _fail(self, error: LedgerError) -> list[Effect]:
        self._phase = _Phase.OVER
        return [FailRecovery(error)]

    def _unknown(self, what: str, entry_id: int | None, misses: dict[str, Miss]) -> LedgerError:
        """Return why the recovery stops: the password, if nothing else stands in its way."""
        if all(miss.kind == MissKind.DENIED for miss in misses.values()):
            return WrongPasswordError(
                f"cannot recover ledger {self.ledger_id}: {', '.join(misses)} refuse its password, or demand TLS "
                "or a log-in; nothing was changed there",
                ledger_id=self.ledger_id,
            )
        return self._blocked(what, entry_id, {bookie: miss.reason for bookie, miss in misses.items()})

    def _blocked(self, what: str, entry_id: int | None, seen: dict[str, str]) -> QuorumLostError:
        subject = "it" if entry_id is None else f"entry {entry_id}"
        details = "; ".join(f"{bookie}: {reason}" for bookie, reason in seen.items())
        return QuorumLostError(
            f"cannot recover ledger {self.ledger_id}: too few bookies to {what} {subject} ({details}). It stays "
            "unclosed and nothing was cut off; try again when they are back",
            ledger_id=self.ledger_id,
        )


def closed_metadata(held: LedgerMetadata, current: LedgerMetadata, end: CloseLedger) -> LedgerMetadata | None:
    """Return the metadata that close a recovered ledger, or None if the recovery has to begin again.

    Args:
        held: What the recovery began with.
        current: What the store has now; the replication worker may have replaced bookies of earlier segments.
        end: What the recovery found.

    """
    if current.state != LedgerState.IN_RECOVERY or current.segments[-1] != held.segments[-1]:
        return None
    return msgspec.structs.replace(
        current,
        state=LedgerState.CLOSED,
        segments=current.segments[:-1] + end.segments[len(held.segments) - 1 :],
        last_entry_id=end.last_entry_id,
        length=end.length,
    )

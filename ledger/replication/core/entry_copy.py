"""Sans-IO copy of entries of one ledger to one bookie: read from any replica that has them, store with RECOVERY_ADD.

    planned     not asked for yet                 -> `_planned`, ascending, consumed as there is room
    reading     asked for, at one replica         -> `_reading`: entry -> the replicas that are left to ask
    storing     sent to the target, not answered  -> `_storing`: entry -> its payload bytes
    stored      answered                          -> counted
    unreadable  no replica gave it                -> `failures`

1. Only what has passed the digest is stored, under the LAC and the length that it came with: the same bytes again.
2. An entry that no replica gives does not stop the others: the more copies, the better. The copy as a whole has
   then failed.
3. A target that refuses an entry ends the copy: what it took stays, harmless, and need not be sent again.
4. Memory is bounded: as many entries are under way as `window_bytes` hold of their size so far.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from ledger.core.entry import Answer, Entry, Miss, MissKind
from ledger.core.metadata import LedgerMetadata
from ledger.core.reader import ReadEntry, read_failure, replicas_of
from ledger.errors import LedgerError

_COUNT_FIRST: Final = 8
"""Entries under way as long as their size is not known."""
_COUNT_MAX: Final = 512
_FAILURES_MAX: Final = 10
"""Errors kept; the count goes on."""


class StoreEntry(msgspec.Struct, frozen=True):
    """Store this entry at the target with RECOVERY_ADD."""

    entry: Entry


CopyEffect: TypeAlias = ReadEntry | StoreEntry


class EntryCopy:
    """One copy.

    Args:
        ledger_id: The ledger.
        metadata: They say which bookies hold an entry; the target is never asked.
        entry_ids: What to copy, ascending; consumed bit by bit.
        target: Where to.
        last_asked: Bookies that are asked last: those that are gone or failed lately.
        window_bytes: Payload bytes under way; at least one entry always is.

    Attributes:
        stored_count: Entries that the target has acknowledged.
        stored_bytes: Their payload.
        failures: Why entries could not be read, the first few; and how many in `failure_count`.
        target_failure: Why the target does not take entries; None if it does.

    """

    def __init__(
        self,
        ledger_id: int,
        metadata: LedgerMetadata,
        entry_ids: Iterable[int],
        target: str,
        *,
        last_asked: Collection[str] = (),
        window_bytes: int = 8 << 20,
    ) -> None:
        self.ledger_id = ledger_id
        self.target = target
        self.stored_count = 0
        self.stored_bytes = 0
        self.failure_count = 0
        self.failures: list[LedgerError] = []
        self.target_failure: str | None = None
        self._metadata = metadata
        self._planned: Iterator[int] = iter(entry_ids)
        self._has_planned = True
        self._last_asked = last_asked
        self._window_bytes = window_bytes
        self._reading: dict[int, list[str]] = {}
        self._misses: dict[int, list[tuple[str, Miss]]] = {}
        self._storing: dict[int, int] = {}
        self._largest_bytes = 0

    @property
    def is_over(self) -> bool:
        """True if nothing more will come of it."""
        if self.target_failure is not None:
            return True
        return not (self._has_planned or self._reading or self._storing)

    @property
    def is_complete(self) -> bool:
        """True if the target holds everything that was to be copied."""
        return self.is_over and self.target_failure is None and not self.failure_count

    def start(self) -> list[CopyEffect]:
        """Ask for the first entries."""
        return self._read_on()

    def on_answers(self, answers: Iterable[tuple[str, int, Answer]]) -> list[CopyEffect]:
        """Take one wake-up's (bookie, entry id, answer) and return what to do next."""
        effects: list[CopyEffect] = []
        for bookie_id, entry_id, answer in answers:
            if entry_id not in self._reading or self.is_over:
                continue
            if isinstance(answer, Entry):
                del self._reading[entry_id]
                self._misses.pop(entry_id, None)
                self._storing[entry_id] = len(answer.payload)
                self._largest_bytes = max(self._largest_bytes, len(answer.payload))
                effects.append(StoreEntry(answer))
            else:
                effects += self._on_miss(bookie_id, entry_id, answer)
        return effects + self._read_on()

    def on_stored(self, entry_ids: Iterable[int]) -> list[CopyEffect]:
        """Take the target's acknowledgements."""
        for entry_id in entry_ids:
            byte_count = self._storing.pop(entry_id, None)
            if byte_count is not None:
                self.stored_count += 1
                self.stored_bytes += byte_count
        return self._read_on()

    def on_store_failed(self, reason: str) -> None:
        """End the copy: the target did not take an entry."""
        if self.target_failure is None:
            self.target_failure = reason

    def validate(self) -> None:
        assert not self._reading.keys() & self._storing.keys()
        assert self._misses.keys() <= self._reading.keys()
        assert self.failure_count >= len(self.failures)
        assert all(self.target not in left for left in self._reading.values())

    def _room(self) -> int:
        if self._largest_bytes == 0:
            limit = _COUNT_FIRST
        else:
            limit = max(1, min(_COUNT_MAX, self._window_bytes // (self._largest_bytes + 1)))
        return limit - len(self._reading) - len(self._storing)

    def _read_on(self) -> list[CopyEffect]:
        effects: list[CopyEffect] = []
        room = 0 if self.is_over or not self._has_planned else self._room()
        while room > 0:
            entry_id = next(self._planned, None)
            if entry_id is None:
                self._has_planned = False
                break
            sources = [b for b in replicas_of(self._metadata, entry_id) if b != self.target]
            sources.sort(key=self._last_asked.__contains__)
            if not sources:
                self._fail(entry_id, [(self.target, Miss(MissKind.ABSENT, "the only replica"))])
                continue
            self._reading[entry_id] = sources[1:]
            effects.append(ReadEntry(sources[0], entry_id))
            room -= 1
        return effects

    def _on_miss(self, bookie_id: str, entry_id: int, miss: Miss) -> list[CopyEffect]:
        misses = self._misses.setdefault(entry_id, [])
        misses.append((bookie_id, miss))
        left = self._reading[entry_id]
        if left:
            return [ReadEntry(left.pop(0), entry_id)]
        del self._reading[entry_id]
        self._fail(entry_id, self._misses.pop(entry_id))
        return []

    def _fail(self, entry_id: int, misses: list[tuple[str, Miss]]) -> None:
        self.failure_count += 1
        if len(self.failures) < _FAILURES_MAX:
            self.failures.append(read_failure(self.ledger_id, entry_id, misses))

"""Plan of a read: the place of a revision, the end of a micro-batch. Pure arithmetic.

Reads are asked for by callbacks (`RevisionAt`, `HeadAt`), so that a search over a million entries costs twenty of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from connectors.errors import SparkOffsetError, StartGoneError
from connectors.source.offsets import LogOffset

RevisionAt = Callable[[int, int], int]
"""(ledger id, entry id) -> revision of the entry's last record, or of the record before it if it holds none."""

LengthAt = Callable[[int, int], int]
"""(ledger id, entry id) -> payload bytes of the ledger up to the entry, inclusive."""

_K = TypeVar("_K")


class EntryHead(NamedTuple):
    """Header and envelope of an entry, without its records.

    Attributes:
        last_revision: Of its last record, or of the record before it if it holds none.
        length: Payload bytes of the ledger up to the entry, inclusive.
        logged_ms: Logged time, milliseconds since 1970; never decreasing along the log.

    """

    last_revision: int
    length: int
    logged_ms: int


HeadAt = Callable[[int, int], EntryHead]
"""(ledger id, entry id) -> its head."""


class MicroBatchLimits(msgspec.Struct, frozen=True):
    """Bounds on one micro-batch; offsets count records of a log, entries of ledgers.

    Attributes:
        offsets_max: At most so many, rounded up to whole entries; None = no limit.
        bytes_max: At most so much payload, rounded up to whole entries; None = no limit.
        offsets_min: None unless so many wait, None = no minimum,
        trigger_delay_max_s: or the oldest of them waits for so long. See `admission`.

    """

    offsets_max: int | None = None
    bytes_max: int | None = None
    offsets_min: int | None = None
    trigger_delay_max_s: float = 900.0


class LogSpan(msgspec.Struct, frozen=True, gc=False):
    """One ledger of a chain, as far as it may be read.

    Attributes:
        ledger_id: Its id.
        first_revision: Revision of its first record, or of the next one if it holds none.
        last_entry_id: Last entry that may be read, inclusive; -1 = none.
        last_revision: Of the last record that may be read; `first_revision` - 1 = none.
        length: Payload bytes up to `last_entry_id`.
        last_logged_ms: Logged time of that entry, as far as the chain tells; None = look at it.

    """

    ledger_id: int
    first_revision: int
    last_entry_id: int
    last_revision: int
    length: int
    last_logged_ms: int | None = None


class LogView(msgspec.Struct, frozen=True):
    """A log as one look saw it: the ledgers still there, oldest first, each to its readable end.

    Attributes:
        log: Name.
        spans: Oldest first; revisions follow each other without a gap.
        first_revision: First record that is still there (or would be).
        moved: Ledgers whose place a copy with the same entries has taken, and the copy of each.

    """

    log: str
    spans: tuple[LogSpan, ...]
    first_revision: int = 1
    moved: dict[int, int] = {}

    @property
    def end(self) -> LogOffset:
        """Position after the last entry that may be read."""
        for span in reversed(self.spans):
            if span.last_entry_id >= 0:
                return LogOffset(span.ledger_id, span.last_entry_id + 1, span.last_revision + 1)
        return LogOffset(-1, 0, self.first_revision)

    @property
    def begin(self) -> LogOffset:
        """Position of the first entry that is still there."""
        if not self.spans:
            return LogOffset(-1, 0, self.first_revision)
        return LogOffset(self.spans[0].ledger_id, 0, self.spans[0].first_revision)

    def index_of(self, ledger_id: int) -> int:
        """Return the ledger's place, or its copy's, among `spans`; -1 if it is not there (any more, or yet)."""
        present = self.moved.get(ledger_id, ledger_id)
        return next((i for i, span in enumerate(self.spans) if span.ledger_id == present), -1)

    def present(self, offset: LogOffset) -> LogOffset:
        """Return where an offset lies now: in a copy of its ledger, if that has taken its place."""
        return offset._replace(ledger_id=self.moved.get(offset.ledger_id, offset.ledger_id))

    def place(self, offset: LogOffset) -> tuple[int, int]:
        """Return what orders offsets of this view by their entries."""
        index = self.index_of(offset.ledger_id)
        return (index, offset.entry_id if index >= 0 else 0)


def next_offset(view: LogView, start: LogOffset, *, counts_records: bool) -> LogOffset:
    """Return how far the log can be read from `start`: `start` itself if there is nothing new.

    Args:
        view: The log as it is.
        start: Where the query stands.
        counts_records: Entries without records are nothing new (the leader writes them when idle).

    Raises:
        StartGoneError, SparkOffsetError: See `check_start`.

    """
    check_start(view, start)
    end = view.end
    if counts_records:
        return end if end.revision > start.revision else start
    return end if view.place(end) > view.place(start) else start


def check_start(view: LogView, start: LogOffset) -> None:
    """Check that everything from `start` on is still there.

    Raises:
        StartGoneError: It has been trimmed.
        SparkOffsetError: The log never got there: another log of the same name, or a future revision.

    """
    if view.index_of(start.ledger_id) >= 0:
        return
    if start.revision < view.first_revision:
        restart = f'startingOffsets=earliest or {{"{view.log}": {{"revision": {view.first_revision}}}}}'
        raise StartGoneError(
            f"log {view.log}: records {start.revision} to {view.first_revision - 1} have been trimmed; the first that "
            f"is left is {view.first_revision} (ledger {view.begin.ledger_id}). Either start a new query (new "
            f"checkpoint location) with {restart} and "
            "accept the gap, or load a snapshot of that revision or later first and start behind it"
        )
    if start.revision > view.end.revision:
        raise SparkOffsetError(
            f"log {view.log}: the query stands before record {start.revision}, the log ends before "
            f"{view.end.revision}: it is another log of that name, or not the cluster that the checkpoint comes from"
        )


def locate_revision(view: LogView, revision: int, last_revision_at: RevisionAt) -> LogOffset:
    """Return the position of a record.

    Args:
        view: The log as it is.
        revision: 1, 2, …; the one after the last record = the end.
        last_revision_at: Asked about O(log n) entries of one ledger.

    Raises:
        StartGoneError: The record has been trimmed.
        SparkOffsetError: The log does not reach so far.

    """
    check_start(view, LogOffset(-1, 0, revision))
    if revision == view.end.revision:
        return view.end
    for span in view.spans:
        if span.first_revision <= revision <= span.last_revision:
            entry_id = _entry_of(span, revision, last_revision_at)
            return LogOffset(span.ledger_id, entry_id, revision)
    raise SparkOffsetError(f"log {view.log}: record {revision} is in none of its ledgers: the chain has a gap")


def locate_entry(view: LogView, ledger_id: int, entry_id: int, last_revision_at: RevisionAt) -> LogOffset:
    """Return the position of an entry; one past the last entry of a ledger is allowed.

    Raises:
        StartGoneError: The ledger is not in the chain.
        SparkOffsetError: The ledger does not reach so far.

    """
    index = view.index_of(ledger_id)
    if index < 0:
        ids = ", ".join(str(span.ledger_id) for span in view.spans) or "none"
        raise StartGoneError(
            f"log {view.log}: ledger {ledger_id} is not in its chain (ledgers {ids}): it has been trimmed, or belongs "
            "to another log; start from earliest or from a revision"
        )
    span = view.spans[index]
    ledger_id = span.ledger_id
    if entry_id > span.last_entry_id + 1:
        raise SparkOffsetError(
            f"log {view.log}: ledger {ledger_id} can be read up to entry {span.last_entry_id}, not from {entry_id} on"
        )
    if entry_id == 0:
        return LogOffset(ledger_id, 0, span.first_revision)
    return LogOffset(ledger_id, entry_id, last_revision_at(ledger_id, entry_id - 1) + 1)


def _entry_of(span: LogSpan, revision: int, last_revision_at: RevisionAt) -> int:
    """Return the first entry whose last record is at or after `revision`; it must exist."""
    record_count = span.last_revision - span.first_revision + 1
    guess = (revision - span.first_revision) * (span.last_entry_id + 1) // record_count
    return first_entry(0, span.last_entry_id, guess, lambda e: last_revision_at(span.ledger_id, e) >= revision)


def cut_log(view: LogView, start: LogOffset, end: LogOffset, limits: MicroBatchLimits, head_at: HeadAt) -> LogOffset:
    """Return the end of a micro-batch: `end`, or the first entry border that reaches one of the limits.

    At least one entry goes, however large it is.

    Args:
        view: The log as it is.
        start: Where the query stands.
        end: Where it could go, behind `start`.
        limits: The smallest wins; they count from `start` on.
        head_at: Asked about O(log n) entries of one ledger.

    """
    wanted = None if limits.offsets_max is None else start.revision + limits.offsets_max - 1
    if wanted is not None and wanted >= end.revision - 1:
        wanted = None
    left = limits.bytes_max
    if wanted is None and left is None:
        return end
    first, last = max(view.index_of(start.ledger_id), 0), view.index_of(end.ledger_id)
    for span in view.spans[first : last + 1]:
        low = start.entry_id if span.ledger_id == start.ledger_id else 0
        high = end.entry_id - 1 if span.ledger_id == end.ledger_id else span.last_entry_id
        if low > high:
            continue
        reach = _Reach(span, low, high, wanted, left, head_at)
        entry_id = reach.first_entry()
        if entry_id is not None:
            return LogOffset(span.ledger_id, entry_id + 1, head_at(span.ledger_id, entry_id).last_revision + 1)
        if left is not None:
            left -= reach.byte_count
    return end


class _Reach:
    """Reach of a micro-batch in one ledger: the entry with which it meets a limit."""

    def __init__(
        self, span: LogSpan, low: int, high: int, wanted: int | None, byte_count_max: int | None, head_at: HeadAt
    ) -> None:
        self._ledger_id = span.ledger_id
        self._low, self._high = low, high
        self._wanted, self._head_at = wanted, head_at
        before = head_at(span.ledger_id, low - 1) if low else EntryHead(span.first_revision - 1, 0, 0)
        is_whole = high == span.last_entry_id
        after = EntryHead(span.last_revision, span.length, 0) if is_whole else head_at(span.ledger_id, high)
        self._before, self._after = before, after
        self._length_wanted = None if byte_count_max is None else before.length + byte_count_max
        self.byte_count = after.length - before.length

    def first_entry(self) -> int | None:
        """Return the first entry with which a limit is reached; None = it is in a later ledger."""
        if not self._is_reached(self._after):
            return None
        return first_entry(self._low, self._high, self._guess(), self._is_reached_at)

    def _is_reached_at(self, entry_id: int) -> bool:
        return self._is_reached(self._head_at(self._ledger_id, entry_id))

    def _is_reached(self, head: EntryHead) -> bool:
        if self._wanted is not None and head.last_revision >= self._wanted:
            return True
        return self._length_wanted is not None and head.length >= self._length_wanted

    def _guess(self) -> int:
        """Return where the limit would be reached if all entries were alike."""
        shares = [1.0]
        records = self._after.last_revision - self._before.last_revision
        if self._wanted is not None and records > 0:
            shares.append((self._wanted - self._before.last_revision) / records)
        if self._length_wanted is not None and self.byte_count > 0:
            shares.append((self._length_wanted - self._before.length) / self.byte_count)
        return self._low + int(max(0.0, min(shares)) * (self._high - self._low))


def first_entry(low: int, high: int, guess: int, is_reached: Callable[[int], bool]) -> int:
    """Return the first entry from `low` to `high` that reaches something; `high` does, and all behind the first.

    Entries are asked about in growing steps around `guess`, then by bisection: a few where the guess is good, at most
    twice the logarithm where it is not.

    """
    step, probe = 1, min(max(guess, low), high)
    if is_reached(probe):
        high = probe
        while low < high:
            probe = max(low, high - step)
            if not is_reached(probe):
                low = probe + 1
                break
            high, step = probe, 2 * step
    else:
        low = probe + 1
        while low < high:
            probe = min(high, low + step - 1)
            if is_reached(probe):
                high = probe
                break
            low, step = probe + 1, 2 * step
    while low < high:
        middle = (low + high) // 2
        if is_reached(middle):
            high = middle
        else:
            low = middle + 1
    return low


def cut_ledgers(
    start: Mapping[int, int], end: Mapping[int, int], limits: MicroBatchLimits, length_at: LengthAt
) -> dict[int, int]:
    """Return the end of a micro-batch over ledgers: the limits are shared out by what each has waiting (`share`).

    Args:
        start: Next entry by ledger id; a ledger that is missing here begins at 0.
        end: The same: where the query could go.
        limits: The smallest wins.
        length_at: Asked about O(log n) entries of each ledger, if `bytes_max` is set.

    """
    waiting = {i: end[i] - start.get(i, 0) for i in sorted(end) if end[i] > start.get(i, 0)}
    taken = dict(waiting) if limits.offsets_max is None else share(waiting, limits.offsets_max)
    if limits.bytes_max is not None:
        # Lengths before the first and with the last entry that waits.
        before = {i: length_at(i, start[i] - 1) if start.get(i, 0) else 0 for i in waiting}
        after = {i: length_at(i, end[i] - 1) for i in waiting}
        allowed = share({i: after[i] - before[i] for i in waiting}, limits.bytes_max)
        for i, count in waiting.items():
            low, wanted = start.get(i, 0), before[i] + allowed[i]
            if wanted < after[i]:
                guess = low + count * allowed[i] // (after[i] - before[i])
                reached = partial(_reaches, length_at, i, wanted)
                taken[i] = min(taken[i], first_entry(low, end[i] - 1, guess, reached) + 1 - low)
    return {i: start.get(i, 0) + taken.get(i, 0) for i in sorted(end)}


def _reaches(length_at: LengthAt, ledger_id: int, length: int, entry_id: int) -> bool:
    return length_at(ledger_id, entry_id) >= length


def share(waiting: Mapping[_K, int], limit: int) -> dict[_K, int]:
    """Share a limit out by what each has waiting.

    As in Kafka's source, each that has anything waiting gets something, so that none starves beside larger ones: only
    where the limit is too small for that does the sum exceed it. What rounding leaves over goes to the first ones.

    """
    total = sum(waiting.values())
    if total <= limit:
        return dict(waiting)
    taken = {key: min(count, max(1, count * limit // total)) for key, count in waiting.items()}
    left = limit - sum(taken.values())
    for key, count in waiting.items():
        more = max(0, min(left, count - taken[key], 1))
        taken[key] += more
        left -= more
    return taken

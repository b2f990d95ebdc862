"""What to read: where a revision lies, where a micro-batch ends, how a range is split over tasks. Pure arithmetic.

Reads are asked for by callbacks (`RevisionAt`), so that a binary search over a million entries costs twenty of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from connectors.errors import SparkOffsetError, StartGoneError
from connectors.spark.offsets import LogOffset

__all__ = [
    "PARTITION_BYTES",
    "EntryRange",
    "LogSpan",
    "LogView",
    "RevisionAt",
    "cut_ledgers",
    "cut_log",
    "locate_entry",
    "locate_revision",
    "next_offset",
    "split_ledgers",
    "split_log",
]

PARTITION_BYTES = 32 * 1024 * 1024
"""Payload that one task reads, about, unless more partitions are asked for: seconds of work, little to do again."""

RevisionAt = Callable[[int, int], int]
"""(ledger id, entry id) -> revision of the entry's last record, or of the record before it if it holds none."""


class LogSpan(msgspec.Struct, frozen=True, gc=False):
    """One ledger of a chain, as far as it may be read.

    Attributes:
        ledger_id: Its id.
        first_revision: Revision of its first record, or of the next one if it holds none.
        last_entry_id: Last entry that may be read, inclusive; -1 = none.
        last_revision: Of the last record that may be read; `first_revision` - 1 = none.
        length: Payload bytes up to `last_entry_id`.

    """

    ledger_id: int
    first_revision: int
    last_entry_id: int
    last_revision: int
    length: int


class LogView(msgspec.Struct, frozen=True):
    """A log as one look saw it: the ledgers still there, oldest first, each to its readable end.

    Attributes:
        log: Name.
        spans: Oldest first; revisions follow each other without a gap.
        first_revision: First record that is still there (or would be).

    """

    log: str
    spans: tuple[LogSpan, ...]
    first_revision: int = 1

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
        """Return the ledger's place among `spans`; -1 if it is not there (any more, or yet)."""
        return next((i for i, span in enumerate(self.spans) if span.ledger_id == ledger_id), -1)

    def place(self, offset: LogOffset) -> tuple[int, int]:
        """Return what orders offsets of this view by their entries."""
        index = self.index_of(offset.ledger_id)
        return (index, offset.entry_id if index >= 0 else 0)


class EntryRange(NamedTuple):
    """What one task reads.

    Attributes:
        ledger_id: Of this ledger,
        first_entry_id: from this entry
        last_entry_id: to this one, inclusive;
        first_revision: records before this one are left out (they lie in the first entry),
        end_revision: and this one and those after it (they lie in the last entry); 0 = none.

    """

    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    first_revision: int = 0
    end_revision: int = 0


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
            entry_id = _entry_of(span, 0, revision, last_revision_at)
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
    if entry_id > span.last_entry_id + 1:
        raise SparkOffsetError(
            f"log {view.log}: ledger {ledger_id} can be read up to entry {span.last_entry_id}, not from {entry_id} on"
        )
    if entry_id == 0:
        return LogOffset(ledger_id, 0, span.first_revision)
    return LogOffset(ledger_id, entry_id, last_revision_at(ledger_id, entry_id - 1) + 1)


def cut_log(
    view: LogView, start: LogOffset, end: LogOffset, record_count_max: int, last_revision_at: RevisionAt
) -> LogOffset:
    """Return the end of a micro-batch: at most `end`, and the first entry border at or after that many records.

    Raises:
        StartGoneError, SparkOffsetError: See `locate_revision`.

    """
    wanted = start.revision + record_count_max - 1
    if wanted >= end.revision - 1:
        return end
    for span in view.spans:
        if not span.first_revision <= wanted <= span.last_revision:
            continue
        low = start.entry_id if span.ledger_id == start.ledger_id else 0
        entry_id = _entry_of(span, low, wanted, last_revision_at)
        return LogOffset(span.ledger_id, entry_id + 1, last_revision_at(span.ledger_id, entry_id) + 1)
    return end


def _entry_of(span: LogSpan, low: int, revision: int, last_revision_at: RevisionAt) -> int:
    """Return the first entry at or after `low` whose last record is at or after `revision`; it must exist."""
    high = span.last_entry_id
    while low < high:
        # Entries hold similar numbers of records only in quiet logs: bisection needs no such luck.
        middle = (low + high) // 2
        if last_revision_at(span.ledger_id, middle) >= revision:
            high = middle
        else:
            low = middle + 1
    return low


def split_log(view: LogView, start: LogOffset, end: LogOffset, partition_count_min: int | None) -> list[EntryRange]:
    """Split [start, end) into what the tasks read, in the order of the log; never across ledgers.

    Args:
        view: The log as it is. Its own end does not matter: `end` was readable once, and stays so.
        start: Inclusive.
        end: Exclusive.
        partition_count_min: None = by size only.

    Raises:
        StartGoneError: Entries of the range have been trimmed.
        SparkOffsetError: The range is of another log.

    """
    if end == start or end.ledger_id < 0:
        return []
    check_start(view, start)
    if view.index_of(end.ledger_id) < 0:
        raise StartGoneError(
            f"log {view.log}: records {start.revision} to {end.revision - 1} were planned but have not been read, and "
            f"ledger {end.ledger_id} has been trimmed since; start a new query behind a snapshot of that revision"
        )
    first, last = max(view.index_of(start.ledger_id), 0), view.index_of(end.ledger_id)
    ranges: list[tuple[EntryRange, int]] = []
    for index in range(first, last + 1):
        span = view.spans[index]
        low = start.entry_id if span.ledger_id == start.ledger_id else 0
        high = end.entry_id - 1 if index == last else span.last_entry_id
        if low <= high:
            size = span.length // (span.last_entry_id + 1) if span.last_entry_id >= 0 else 0
            ranges.append((EntryRange(span.ledger_id, low, high, start.revision, end.revision), size))
    return _split(ranges, partition_count_min)


def split_ledgers(
    start: Mapping[int, int],
    end: Mapping[int, int],
    entry_bytes: Mapping[int, int],
    partition_count_min: int | None,
) -> list[EntryRange]:
    """Split the entries of ledgers, [start, end) each, into what the tasks read.

    Args:
        start: Next entry by ledger id; a ledger that is missing here begins at 0.
        end: The same, exclusive.
        entry_bytes: Mean payload of an entry by ledger id.
        partition_count_min: None = by size only.

    """
    ranges = [
        (EntryRange(ledger_id, start.get(ledger_id, 0), end[ledger_id] - 1), entry_bytes.get(ledger_id, 0))
        for ledger_id in sorted(end)
        if start.get(ledger_id, 0) < end[ledger_id]
    ]
    return _split(ranges, partition_count_min)


def _split(ranges: Sequence[tuple[EntryRange, int]], partition_count_min: int | None) -> list[EntryRange]:
    total = sum(r.last_entry_id - r.first_entry_id + 1 for r, _ in ranges)
    entries_max = -(-total // partition_count_min) if partition_count_min and total else total
    parts: list[EntryRange] = []
    for entry_range, entry_bytes in ranges:
        step = max(1, min(entries_max, PARTITION_BYTES // max(entry_bytes, 1)))
        for low in range(entry_range.first_entry_id, entry_range.last_entry_id + 1, step):
            high = min(low + step - 1, entry_range.last_entry_id)
            parts.append(entry_range._replace(first_entry_id=low, last_entry_id=high))
    return parts


def cut_ledgers(start: Mapping[int, int], end: Mapping[int, int], entry_count_max: int) -> dict[int, int]:
    """Return the end of a micro-batch over ledgers: the limit is shared out by what each has waiting.

    No ledger starves: what rounding leaves over goes to the ledgers in ascending order.

    """
    waiting = {ledger_id: end[ledger_id] - start.get(ledger_id, 0) for ledger_id in sorted(end)}
    total = sum(waiting.values())
    if total <= entry_count_max:
        return dict(end)
    taken = {ledger_id: count * entry_count_max // total for ledger_id, count in waiting.items()}
    left = entry_count_max - sum(taken.values())
    for ledger_id, count in waiting.items():
        if left and taken[ledger_id] < count:
            taken[ledger_id] += 1
            left -= 1
    return {ledger_id: start.get(ledger_id, 0) + taken[ledger_id] for ledger_id in waiting}

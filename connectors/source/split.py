"""Split of a range of a log, or of ledgers, over tasks. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from connectors.errors import StartGoneError
from connectors.source.offsets import LogOffset
from connectors.source.plan import LogView, check_start

PARTITION_BYTES = 32 * 1024 * 1024
"""Payload that one task reads, about, unless more partitions are asked for: seconds of work, little to do again."""


class EntryRange(NamedTuple):
    """Range of entries that one task reads.

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

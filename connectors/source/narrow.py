"""Range of a log, narrowed to the bounds of a query's filters: fewer ledgers and entries. Pure arithmetic.

Revisions and times only grow along a log, so both become positions, found as those of the options are. Leader epochs
only grow too, but an entry may be of an earlier epoch than its ledger: a ledger is left out where that cannot matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectors.source.entry_bounds import EntryBounds, Interval
from connectors.source.locate import locate_time
from connectors.source.offsets import LogOffset
from connectors.source.plan import HeadAt, LogView, locate_revision
from connectors.source.split import EntryRange


def narrow_log(
    view: LogView, start: LogOffset, end: LogOffset, bounds: EntryBounds, head_at: HeadAt, *, counts_records: bool
) -> tuple[LogOffset, LogOffset]:
    """Return what has to be read of [start, end); the same offset twice if it is nothing.

    Args:
        view: The log as it is.
        start: Inclusive.
        end: Exclusive.
        bounds: Of the query's filters.
        head_at: Asked about O(log n) entries.
        counts_records: Whether rows are records. Else entries without records count too: each has the revision of the
            next record, and may stand before the entry that holds it.

    """
    if bounds.is_empty:
        return end, end

    def last_revision_at(ledger_id: int, entry_id: int) -> int:
        return head_at(ledger_id, entry_id).last_revision

    low, high = bounds.revision.low - (0 if counts_records else 1), bounds.revision.high
    if low >= end.revision or high < start.revision - 1:
        return end, end
    if low > start.revision:
        start = _later(view, start, locate_revision(view, low, last_revision_at))
    if high + 1 < end.revision:
        last = locate_revision(view, max(high, start.revision), last_revision_at)
        end = _earlier(view, end, LogOffset(last.ledger_id, last.entry_id + 1, max(high, start.revision) + 1))
    times, everything = bounds.logged_ms, Interval()
    if times.low != everything.low:
        since = locate_time(view, times.low, head_at)
        start = end if since is None else _later(view, start, since)
    if times.high != everything.high:
        until = locate_time(view, times.high + 1, head_at)
        end = end if until is None else _earlier(view, end, until)
    return (start, end) if view.place(start) < view.place(end) else (end, end)


def _later(view: LogView, one: LogOffset, other: LogOffset) -> LogOffset:
    return other if view.place(other) > view.place(one) else one


def _earlier(view: LogView, one: LogOffset, other: LogOffset) -> LogOffset:
    return other if view.place(other) < view.place(one) else one


def narrow_ranges(
    ranges: Sequence[EntryRange], bounds: EntryBounds, epochs: Mapping[int, tuple[int, int]]
) -> list[EntryRange]:
    """Return what is left of ranges of entries, and of the records in them.

    Args:
        ranges: Of ledgers.
        bounds: Of the query's filters.
        epochs: Lowest and highest epoch that an entry of a ledger can have, by ledger id; () for plain ledgers.

    """
    ledgers, entries, records, asked = bounds.ledger_id, bounds.entry_id, bounds.revision, bounds.leader_epoch
    kept: list[EntryRange] = []
    for one in ranges:
        lowest, highest = epochs.get(one.ledger_id, (asked.low, asked.high))
        if not ledgers.low <= one.ledger_id <= ledgers.high or highest < asked.low or lowest > asked.high:
            continue
        first, last = max(one.first_entry_id, entries.low), min(one.last_entry_id, entries.high)
        if first <= last:
            since, until = max(one.first_revision, records.low), one.end_revision
            if records.high != Interval().high:
                until = min(until or records.high + 1, records.high + 1)
            kept.append(EntryRange(one.ledger_id, first, last, since, until))
    return kept

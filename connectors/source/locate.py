"""Meaning of a bound in a log as it is: a word, a revision, a place or a time becomes a position. Pure arithmetic.

A time is found by bisection: logged times never decrease along a log, whoever leads it.
"""

from __future__ import annotations

from connectors.errors import SparkOffsetError
from connectors.source.bounds import Bound, BoundKind
from connectors.source.offsets import LogOffset
from connectors.source.plan import HeadAt, LogSpan, LogView, first_entry, locate_entry, locate_revision


def locate_bound(view: LogView, bound: Bound, head_at: HeadAt) -> LogOffset | None:
    """Return the position that a bound means; None for a time at or after which nothing was logged yet.

    Args:
        view: The log as it is.
        bound: Of any kind but SNAPSHOT.
        head_at: Asked about O(log n) entries.

    Raises:
        StartGoneError: It has been trimmed.
        SparkOffsetError: The log does not reach so far.

    """

    def last_revision_at(ledger_id: int, entry_id: int) -> int:
        return head_at(ledger_id, entry_id).last_revision

    match bound.kind:
        case BoundKind.EARLIEST:
            return view.begin
        case BoundKind.LATEST:
            return view.end
        case BoundKind.BEFORE_LATEST:
            revision = max(view.first_revision, view.end.revision - bound.count)
            return locate_revision(view, revision, last_revision_at)
        case BoundKind.REVISION:
            return locate_revision(view, bound.revision, last_revision_at)
        case BoundKind.POSITION:
            return locate_entry(view, bound.ledger_id, bound.entry_id, last_revision_at)
        case BoundKind.TIMESTAMP:
            return locate_time(view, bound.timestamp_ms, head_at)
    raise SparkOffsetError(f"log {view.log}: a {bound.kind} is no place in a log")


def locate_time(view: LogView, timestamp_ms: int, head_at: HeadAt) -> LogOffset | None:
    """Return the position of the first entry that was logged at or after a time; None if there is none yet.

    If the first entry that is left was logged later, it is that one: nothing tells what was trimmed before it.

    Args:
        view: The log as it is.
        timestamp_ms: Since 1970.
        head_at: Asked about O(log n) entries.

    """
    spans = [span for span in view.spans if span.last_entry_id >= 0]

    def is_late(span: LogSpan, entry_id: int) -> bool:
        return head_at(span.ledger_id, entry_id).logged_ms >= timestamp_ms

    def ends_late(span: LogSpan) -> bool:
        # The chain knows when a closed ledger ended: those outside are not opened.
        if span.last_logged_ms is not None:
            return span.last_logged_ms >= timestamp_ms
        return is_late(span, span.last_entry_id)

    if not spans or not ends_late(spans[-1]):
        return None
    index = first_entry(0, len(spans) - 1, len(spans) - 1, lambda i: ends_late(spans[i]))
    span = spans[index]
    entry_id = first_entry(0, span.last_entry_id, span.last_entry_id // 2, lambda e: is_late(span, e))
    if entry_id == 0:
        return LogOffset(span.ledger_id, 0, span.first_revision)
    return LogOffset(span.ledger_id, entry_id, head_at(span.ledger_id, entry_id - 1).last_revision + 1)


def is_inside_entry(view: LogView, position: LogOffset, head_at: HeadAt) -> bool:
    """Return whether a position lies behind the first record of its entry."""
    if position.entry_id == 0:
        return position.revision > view.spans[view.index_of(position.ledger_id)].first_revision
    return position.revision > head_at(position.ledger_id, position.entry_id - 1).last_revision + 1


def round_up(view: LogView, position: LogOffset, head_at: HeadAt) -> LogOffset:
    """Return an exclusive end as offsets write it: the entry that holds it is read too, its later records left out."""
    if position == view.end or position.ledger_id < 0 or not is_inside_entry(view, position, head_at):
        return position
    return position._replace(entry_id=position.entry_id + 1)

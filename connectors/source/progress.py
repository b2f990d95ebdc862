"""Lag of a query, for its progress: records, bytes, milliseconds, and skipped ranges. Pure arithmetic.

Spark shows it as `sources[].latestOffset` of a `StreamingQueryProgress`: the end of what may be read, and beside it

| key | meaning |
| --- | --- |
| behindRecords | records (of logs) or entries (of ledgers) that wait behind the micro-batch |
| behindBytes | payload of the entries that wait, in bytes |
| behindMs | how much later the newest entry was logged than the oldest that waits; ledgers know no time |
| losses | list of ranges that were skipped as they are gone (`failOnDataLoss=false`); absent while there are none |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from connectors.source.offsets import LogOffset
from connectors.source.plan import HeadAt, LogView

BEHIND_RECORDS = "behindRecords"
BEHIND_BYTES = "behindBytes"
BEHIND_MS = "behindMs"
LOSSES = "losses"


class SourceLag(NamedTuple):
    """Lag behind the end: the records and bytes that wait behind a position.

    Attributes:
        records: Records of logs, entries of ledgers.
        bytes: Payload of the entries, the one that holds the position included.
        ms: Logged time of the newest entry minus that of the oldest that waits; None = not known.

    """

    records: int
    bytes: int
    ms: int | None


def log_backlog(view: LogView, offset: LogOffset, head_at: HeadAt) -> SourceLag:
    """Return what waits in a log behind `offset`.

    Args:
        view: The log as it is.
        offset: A position in it, or one that has been trimmed: then what is left waits.
        head_at: Asked about three entries at most.

    """
    end = view.end
    if view.place(offset) >= view.place(end):
        return SourceLag(0, 0, 0)
    first = view.index_of(offset.ledger_id)
    spans = [span for span in view.spans[max(first, 0) :] if span.last_entry_id >= 0]
    low = offset.entry_id if first >= 0 and spans[0].ledger_id == offset.ledger_id else 0
    byte_count = sum(span.length for span in spans)
    if low:
        byte_count -= head_at(spans[0].ledger_id, low - 1).length
    oldest = (spans[0].ledger_id, low) if low <= spans[0].last_entry_id else (spans[1].ledger_id, 0)
    newest = head_at(end.ledger_id, end.entry_id - 1)
    records = end.revision - max(offset.revision, view.first_revision)
    return SourceLag(records, byte_count, newest.logged_ms - head_at(*oldest).logged_ms)


def sum_backlogs(backlogs: Iterable[SourceLag]) -> SourceLag:
    """Return what waits in several logs: records and bytes of all, the time of the one that is furthest behind."""
    found = list(backlogs)
    known = [backlog.ms for backlog in found if backlog.ms is not None]
    return SourceLag(
        sum(backlog.records for backlog in found),
        sum(backlog.bytes for backlog in found),
        max(known) if known else None,
    )


def report(end: Mapping[str, Any], backlog: SourceLag | None, losses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what a query reports as its latest offset.

    Args:
        end: Offset after everything that may be read.
        backlog: Behind the micro-batch that was planned last; None = none was planned yet.
        losses: Ranges that were skipped: ``{"log": …, "from": …, "to": …, "count": …}`` each.

    """
    told = dict(end)
    if backlog is not None:
        told |= {BEHIND_RECORDS: backlog.records, BEHIND_BYTES: backlog.bytes}
        if backlog.ms is not None:
            told[BEHIND_MS] = backlog.ms
    if losses:
        told[LOSSES] = [dict(loss) for loss in losses]
    return told

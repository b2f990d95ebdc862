"""Rows of finished batches, in a task: what a range of a log shows, and the rows that are read from before it for that.

Memory: where rows of open batches were seen in the range, and while a batch is shown, some entries of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from connectors.errors import StartGoneError
from connectors.source.link import LogLink
from connectors.source.record_plans import RawRecord
from connectors.source.record_rows import DecodedEntry, EntrySlice, RecordSlice, entry_records, read_entries
from connectors.source.seals import LedgerSeals, leave_out
from ledger.core.entry_block import EntryBlock
from ledger.core.metadata import LedgerMetadata
from rsm_spark.core.finished_batches import BackwardScan, BatchWatch, EndedBatch, RowsPlace

_WINDOW_BYTES = 4 * 1024 * 1024
"""Entries that a search reads at once, about."""
_WINDOW_ENTRIES_MAX = 256
_GAP_ENTRIES_MAX = 16
"""Entries of others that are read along rather than asked for around."""


@dataclass(frozen=True)
class BackLedger:
    """A ledger that a task may read beside its own range.

    Attributes:
        ledger_id: Its id.
        last_entry_id: Last entry that may be read.
        metadata: Of it.
        log_id: That its entries bear.
        seals: What is known of them.

    """

    ledger_id: int
    last_entry_id: int
    metadata: LedgerMetadata
    log_id: bytes
    seals: LedgerSeals


ReadBack = Callable[[BackLedger, int, int], Iterable[EntryBlock]]
"""(ledger, first entry, last entry) -> its entries, ascending."""


class FinishedRows:
    """Rows that a range shows, entry by entry; `slices` is a `record_rows.SlicesOf`.

    Args:
        span: The range.
        ledgers: Its own ledger, then those before it that may have rows of its batches, the nearest first.
        read: Reads them.

    """

    def __init__(self, span: RecordSlice, ledgers: Sequence[BackLedger], read: ReadBack) -> None:
        self._span = span
        self._ledgers = ledgers
        self._by_id = {one.ledger_id: one for one in ledgers}
        self._read = read
        self._watch = BatchWatch()

    def slices(self, entry: DecodedEntry, records: list[RawRecord]) -> Iterator[EntrySlice]:
        """Yield what becomes rows behind the next entry.

        Raises:
            StartGoneError: Rows of a batch that ends here are not in the log any more.
            CorruptLogError, ForkedLogError: What is read is not the log's.

        """
        span, ledger_id = self._span, self._span.ledger_id
        skipped = max(0, span.first_revision - entry.first_revision)
        last = span.end_revision - entry.first_revision if span.end_revision else entry.record_count
        for shown in self._watch.take(ledger_id, entry.entry_id, *_asked(records)):
            if isinstance(shown, EndedBatch):
                if skipped <= shown.record < last:
                    yield from self._recalled(shown, entry)
                continue
            first, end = max(shown[0], skipped), min(shown[1], last)
            if first < end:
                yield EntrySlice(ledger_id, entry, records, first, end)

    def _recalled(self, recall: EndedBatch, at: DecodedEntry) -> Iterator[EntrySlice]:
        """Yield the rows of a batch, read again."""
        places = self._searched(recall, at) if recall.places is None else recall.places
        for first, end in _runs(places):
            wanted = {one.entry_id: one for one in places[first:end]}
            ledger = self._by_id[places[first].ledger_id]
            for entry, records in self._entries(ledger, places[first].entry_id, places[end - 1].entry_id):
                one = wanted.get(entry.entry_id)
                if one is not None:
                    yield EntrySlice(ledger.ledger_id, entry, records, one.first, one.end)

    def _searched(self, recall: EndedBatch, at: DecodedEntry) -> tuple[RowsPlace, ...]:
        """Search backward, from the entry of the end's mark on."""
        search = BackwardScan(recall)
        last, before, window = at.entry_id, recall.record, 1
        for ledger in self._ledgers:
            last = min(last, ledger.last_entry_id) if ledger is self._ledgers[0] else ledger.last_entry_id
            while last >= 0 and not search.is_over:
                first = max(0, last - window + 1)
                found = list(self._entries(ledger, first, last))
                for entry, records in reversed(found):
                    is_end = ledger is self._ledgers[0] and entry.entry_id == at.entry_id
                    search.take(ledger.ledger_id, entry.entry_id, *_asked(records), before if is_end else None)
                size = sum(len(entry.payload) for entry, _ in found) // max(1, len(found))
                window = max(1, min(2 * window, _WINDOW_ENTRIES_MAX, _WINDOW_BYTES // max(1, size)))
                last = first - 1
        places = search.places
        if places is None:
            batch = recall.batch
            raise StartGoneError(
                f"log {self._span.log}: batch {batch.batch} of writer {batch.writer!r} ends with record "
                f"{at.first_revision + recall.record}, and some of its {recall.row_count} rows are not in the log any "
                "more: they were trimmed. Start a new query (new checkpoint location) behind that record, or leave "
                "finishedBatches out"
            )
        return places

    def _entries(self, ledger: BackLedger, first: int, last: int) -> Iterator[tuple[DecodedEntry, list[RawRecord]]]:
        log = self._span.log
        link = LogLink(log, ledger.log_id, ledger.ledger_id, seals=ledger.seals)
        blocks = self._read(ledger, first, last)
        if ledger.seals.aside:
            blocks = leave_out(blocks, ledger.seals.aside, f"log {log}: ledger {ledger.ledger_id}")
        for block in blocks:
            for entry in read_entries(block, link.follow(block), None):
                records = entry_records(entry, link, keeps_bad=False)
                assert not isinstance(records, str), "raised"
                yield entry, records


def _asked(records: Sequence[RawRecord]) -> tuple[list[int], Callable[[int], list[Any]]]:
    def fields_of(at: int) -> list[Any]:
        return [msgspec.msgpack.decode(field) for field in records[at].fields]

    return [record.type for record in records], fields_of


def _runs(places: Sequence[RowsPlace]) -> Iterator[tuple[int, int]]:
    """Yield runs of places, [first, end), whose entries are read at once: of one ledger, near each other, rising."""
    first = 0
    for at in range(1, len(places) + 1):
        is_near = at < len(places) and (
            places[at].ledger_id == places[at - 1].ledger_id
            and 0 < places[at].entry_id - places[at - 1].entry_id <= _GAP_ENTRIES_MAX
        )
        if not is_near:
            yield first, at
            first = at

"""Entries of a plain log in memory, composed as its writer composes them, and what readers of finished batches see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from rsm_spark.core.append_queue import AppendComposer, AppendQueue, PendingRecords
from rsm_spark.core.envelope import body_of
from rsm_spark.core.finished_batches import BackwardScan, BatchWatch, EndedBatch, open_batches
from rsm_spark.core.plain_log import PlainRecord, WrittenEnd, appended_records, ledger_records, resumed_record
from rsm_spark.core.producers import ProducerTable
from rsm_spark.core.records import Record, decode_records, pack
from rsm_spark.core.state import StateTip
from rsm_spark.core.writers import WriterTable


class KeptEntry(NamedTuple):
    """An entry of the log."""

    ledger_id: int
    entry_id: int
    records: list[Record]


class ComposedLog:
    """See the module.

    Args:
        is_old: It is written as releases did that did not say where rows of a chunk end.

    Attributes:
        entries: The log.
        queue: What is in no entry yet.

    """

    def __init__(self, *, is_old: bool = False) -> None:
        self.entries: list[KeptEntry] = []
        self.queue = AppendQueue("log", WrittenEnd())
        self._is_old = is_old
        self._composer = AppendComposer(bytes(16), 1, StateTip(0, bytes(32), 0, 0), WrittenEnd(), None, ProducerTable())
        self._ledger_id, self._entry_id = 11, 0
        self._own: list[tuple[object, ...]] = []
        self.note()

    @property
    def writers(self) -> WriterTable:
        assert self._composer.producers is not None
        return self._composer.producers.writers

    def roll(self) -> None:
        """Begin another ledger."""
        self.flush()
        self._ledger_id, self._entry_id = self._ledger_id + 1, 0
        self.note()

    def note(self) -> None:
        """Have the next entry begin with a note."""
        self._own = ledger_records(self._composer.end, self._composer.note(1, 10**9)) + self._composer.writer_records()
        if self._is_old and self._own[-2][0] == 14:
            self._own.pop()

    def flush(self) -> bool:
        """Make an entry of what waits; return whether there is one."""
        appends = self.queue.take()
        if not appends and not self._own:
            return False
        own, self._own = self._own, []
        if self._is_old:
            records = self._composed_as_before(own, appends)
        else:
            batch = self._composer.compose(own, appends, confirmed_revision=0, logged_ms=1)
            records = decode_records(body_of(batch.payload))
        self.entries.append(KeptEntry(self._ledger_id, self._entry_id, records))
        self._entry_id += 1
        return True

    def _composed_as_before(self, own: Sequence[tuple[object, ...]], appends: Sequence[PendingRecords]) -> list[Record]:
        """Compose an entry as releases before this one did: nothing says where rows of a chunk end."""
        records, txid = list(own), 0
        for append in appends:
            for kind, fields in append.marks:
                self.writers.fold(kind, fields, 1)
                records.append((kind, None, fields))
            if append.source is not None:
                records.append((int(PlainRecord.PRODUCED), None, ("p", append.source.sequence, 1)))
            records += appended_records(1, append.keys, txid, append.payloads)
            if not append.payloads:
                records.append(resumed_record(txid))
        return decode_records(pack(records))


class KeptLog(Protocol):
    """A log that was written."""

    entries: list[KeptEntry]


def shown_of(log: KeptLog, first: int, end: int) -> list[tuple[int, bytes]]:
    """Return what a reader of finished batches sees in a range of entries, and in which entry."""
    watch = BatchWatch()
    found: list[tuple[int, bytes]] = []
    for number in range(first, end):
        entry = log.entries[number]
        for one in watch.take(entry.ledger_id, entry.entry_id, *asked(entry)):
            if isinstance(one, EndedBatch):
                found += [(number, payload) for payload in _recalled(log, number, one)]
            else:
                found += [(number, payload) for payload in _payloads(entry, *one)]
    return found


def _recalled(log: KeptLog, number: int, recall: EndedBatch) -> list[bytes]:
    places = recall.places
    if places is None:
        search = BackwardScan(recall)
        before: int | None = recall.record
        while number >= 0 and not search.is_over:
            entry = log.entries[number]
            search.take(entry.ledger_id, entry.entry_id, *asked(entry), before)
            number, before = number - 1, None
        places = search.places
        assert places is not None, f"rows of {recall.batch} are missing"
    at = {(entry.ledger_id, entry.entry_id): entry for entry in log.entries}
    return [payload for one in places for payload in _payloads(at[one.ledger_id, one.entry_id], one.first, one.end)]


def asked(entry: KeptEntry) -> tuple[list[int], Any]:
    """Return types and fields of an entry's records, as they are asked for."""
    return [record.type for record in entry.records], lambda at: entry.records[at].fields


def _payloads(entry: KeptEntry, first: int, end: int) -> list[bytes]:
    return [one.fields[3] for one in entry.records[first:end] if one.type == PlainRecord.APPENDED]


def open_before(entry: KeptEntry) -> Any:
    """Return the batches that are open before an entry; see `open_batches`."""
    return open_batches(*asked(entry))

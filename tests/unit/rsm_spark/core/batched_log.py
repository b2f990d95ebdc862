"""A plain log with batches of several writers, in memory, and the truth about what is finished in it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from rsm_spark.core.append_queue import AppendComposer, AppendQueue, PendingRecords
from rsm_spark.core.envelope import body_of
from rsm_spark.core.finished_batches import BackwardScan, BatchWatch, EndedBatch, open_batches
from rsm_spark.core.plain_log import PlainRecord, WrittenEnd, appended_records, ledger_records, resumed_record
from rsm_spark.core.producers import ProducerTable, RecordSource
from rsm_spark.core.records import Record, decode_records, pack
from rsm_spark.core.state import StateTip
from rsm_spark.core.writer_marks import MarkKind, WriterMark, digest_of
from rsm_spark.core.writers import MarkVerdict

CLAIMED = 7
"""Rows that a writer who lies says its batch has."""


class KeptEntry(NamedTuple):
    """An entry of the log."""

    ledger_id: int
    entry_id: int
    records: list[Record]


class BatchedLog:
    """Writes a log by chance; what is shown of it to readers of finished batches is known.

    Args:
        rng: Decides everything.
        is_old: It is written as releases before this one did.

    Attributes:
        entries: The log.
        shown: Payloads as a reader of finished batches has to see them, with the number of the entry that shows them.

    """

    def __init__(self, rng: random.Random, *, is_old: bool = False) -> None:
        self.entries: list[KeptEntry] = []
        self.shown: list[tuple[int, bytes]] = []
        self._rng = rng
        self._is_old = is_old
        self._composer = AppendComposer(bytes(16), 1, StateTip(0, bytes(32), 0, 0), WrittenEnd(), None, ProducerTable())
        self._queue = AppendQueue("log", WrittenEnd())
        self._ledger_id, self._entry_id = 10, 0
        self._own: list[tuple[object, ...]] = []
        self._busy: set[str] = set()  # Writers with something in no entry yet.
        self._later: list[bytes] = []  # Shown with the next entry.
        self._number = 0
        self._sequence = 0
        self._rows: dict[str, list[bytes]] = {}  # By writer, of its open batch: as they were appended.
        self._runs: dict[str, _WriterRun] = {}
        self.roll()

    @property
    def writers(self) -> Any:
        assert self._composer.producers is not None
        return self._composer.producers.writers

    # ---- what happens

    def step(self) -> None:
        """Do something."""
        match self._rng.choices(range(7), (8, 4, 2, 3, 1, 1, 1))[0]:
            case 0 | 1:
                self._batch_step(self._rng.choice("abcd"))
            case 2:
                self._append((self._payload(b"loose"),))
            case 3:
                self.flush()
            case 4:
                self._sequence += 1
                self._append((self._payload(b"made"),), source=RecordSource("p", "o", self._sequence))
            case 5:
                self.flush()
                self.roll() if self._rng.random() < 0.5 else self._note()
            case _:
                self._forget(self._rng.choice("abcd"))

    def _payload(self, name: bytes) -> bytes:
        self._number += 1
        return b"%s %d" % (name, self._number)

    def _append(self, payloads: Sequence[bytes], *, source: RecordSource | None = None, is_shown: bool = True) -> None:
        self._queue.add(payloads, [None] * len(payloads), None, lambda: None, source)
        if is_shown:
            self._later += payloads

    def _batch_step(self, writer: str) -> None:
        if writer in self._busy:
            self.flush()
        run = self._runs.get(writer)
        if run is None or run.is_over:
            passing = writer == "d"
            name = f"{writer}{self._number}" if passing else writer
            following = _WriterRun(name, is_passing=passing)
            if run is not None and not passing:
                following.follow(run)
            run = self._runs[writer] = following
            self._rows.pop(name, None)
        if self._rng.random() < 0.03 and not run.is_passing:  # Another checkpoint takes its place.
            before, run.checkpoint = run.checkpoint, self._rng.choice("cef")
            if before != run.checkpoint:
                run.takes_over_from, run.chunks = before, {}
                self._rows.pop(run.name, None)
        if run.is_passing and not run.has_begun:
            run.has_begun = True
            self._send(run, MarkKind.BEGIN)
        elif not run.chunks and self._rng.random() < 0.3 and not run.is_passing:
            rows = [self._payload(b"whole") for _ in range(self._rng.randint(1, 3))]
            if self._send(run, MarkKind.WHOLE, rows=rows):
                self._later += rows
                run.is_over = True
        elif run.chunks and self._rng.random() < 0.3:
            parts = tuple(sorted(run.chunks.items()))
            if self._send(run, MarkKind.END, parts=parts, row_count=CLAIMED):
                self._later += self._rows.pop(run.name, [])
            run.is_over = True
        else:
            part = self._rng.choice([*run.chunks, len(run.chunks)])
            rows = [self._payload(b"row") for _ in range(self._rng.randint(1, 4))]
            chunk = run.chunks.get(part, 0)
            if self._send(run, MarkKind.CHUNK, part=part, chunk=chunk, rows=rows):
                self._rows.setdefault(run.name, []).extend(rows)
                run.chunks[part] = chunk + 1
            else:
                run.is_over = True

    def _send(self, run: _WriterRun, kind: MarkKind, *, rows: Sequence[bytes] = (), **more: Any) -> bool:
        keys = [None] * len(rows)
        mark = WriterMark(run.name, kind, run.checkpoint, "r", run.batch, digest=digest_of(pack((keys, rows))))
        mark = msgspec.structs.replace(
            mark, is_passing=run.is_passing, takes_over_from=run.takes_over_from, **{"row_count": len(rows), **more}
        )
        if kind is MarkKind.END:
            mark = self.judged_end(mark)
        judged = self.writers.judge(mark)
        if judged.standing is not MarkVerdict.APPLY or not (judged.records or rows):
            return False
        self._queue.add(rows, keys, None, lambda: None, None, judged.records)
        self._busy.add(run.name[0])
        return True

    def judged_end(self, mark: WriterMark) -> WriterMark:
        """Return the mark of an end as the log's writer judges it."""
        row_count = sum(row.row_count for row in self.writers.parts(mark.writer).values())
        return msgspec.structs.replace(mark, row_count=row_count)

    def _forget(self, writer: str) -> None:
        self.flush()
        run = self._runs.get(writer)
        if run is None or not self.writers.forgetting(run.name):
            return
        self._queue.add((), (), None, lambda: None, None, self.writers.forgetting(run.name))
        self._rows.pop(run.name, None)
        if self._rng.random() < 0.5 and not run.is_passing:
            run.chunks, run.takes_over_from = {}, ""  # The same batch is written anew.
        else:
            run.is_over = True
        self.flush()

    # ---- entries

    def roll(self) -> None:
        """Begin another ledger."""
        self.flush()
        self._ledger_id, self._entry_id = self._ledger_id + 1, 0
        self._note()

    def _note(self) -> None:
        self._own = ledger_records(self._composer.end, self._composer.note(1, 10**9)) + self._composer.writer_records()
        if self._is_old and self._own[-2][0] == 14:
            self._own.pop()

    def flush(self) -> None:
        """Make an entry of what waits."""
        appends = self._queue.take()
        if not appends and not self._own:
            return
        own, self._own = self._own, []
        if self._is_old:
            records = self._composed_as_before(own, appends)
        else:
            batch = self._composer.compose(own, appends, confirmed_revision=0, logged_ms=1)
            records = decode_records(body_of(batch.payload))
        self.shown += [(len(self.entries), payload) for payload in self._later]
        self.entries.append(KeptEntry(self._ledger_id, self._entry_id, records))
        self._entry_id += 1
        self._later, self._busy = [], set()

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


class _WriterRun:
    """What a writer is at."""

    def __init__(self, name: str, *, is_passing: bool) -> None:
        self.name = name
        self.checkpoint = "c"
        self.batch = 0
        self.is_passing = is_passing
        self.takes_over_from = ""
        self.chunks: dict[int, int] = {}
        self.has_begun = False
        self.is_over = False

    def follow(self, before: _WriterRun) -> None:
        """Be the next batch of the same writer."""
        self.checkpoint, self.takes_over_from = before.checkpoint, before.takes_over_from
        self.batch = before.batch + 1


# ---- reading


def shown_of(log: BatchedLog, first: int, end: int) -> list[tuple[int, bytes]]:
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


def _recalled(log: BatchedLog, number: int, recall: EndedBatch) -> list[bytes]:
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

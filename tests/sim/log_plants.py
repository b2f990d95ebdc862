"""Bugs to plant into plain logs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rsm_spark.core import plain_log, producers, trimming
from rsm_spark.core.append_queue import AppendBatch, AppendComposer, AppendQueue, PendingRecords
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_events import AppendEntry, BatchComposed, Effect, LedgerEndLearned
from rsm_spark.core.pipelined_leadership import PipelinedProtocol
from rsm_spark.core.plain_log import PlainRecord, WrittenEnd
from rsm_spark.core.producer_intake import ProducerIntake, ProducerVerdict
from rsm_spark.core.producers import EntryFacts, ProducedRange, ProducerState, ProducerTable, RecordSource
from rsm_spark.core.writers import OWN_PART
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.logs import log_end, producers_end, writing
from rsm_spark.logs.marked_writing import MarkedWriting
from rsm_spark.logs.record_reader import ReaderStart
from rsm_spark.logs.writing import WriterDriver
from tests.sim.replica_plants import peek


def _resolve(append: PendingRecords) -> None:
    if append.ticket is not None and not append.ticket.done():
        append.ticket.set_result(append.last_position)


def acknowledges_what_was_only_sent(patch: pytest.MonkeyPatch) -> None:
    composed = PipelinedProtocol._on_batch_composed

    def sent(self: PipelinedProtocol, event: BatchComposed) -> list[Effect]:
        assert isinstance(event.batch, AppendBatch)
        for append in event.batch.appends:
            _resolve(append)
        return composed(self, event)

    patch.setattr(PipelinedProtocol, "_on_batch_composed", sent)


def acknowledges_what_was_fenced(patch: pytest.MonkeyPatch) -> None:
    def drop(self: WriterDriver, batch: AppendBatch, *, applied_never: bool) -> None:  # noqa: ARG001
        for append in batch.appends:
            _resolve(append)

    patch.setattr(WriterDriver, "_drop", drop)


def calls_what_is_unknown_not_appended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriterDriver, "_unknown", WriterDriver._never)


def sends_again_before_the_end_is_known(patch: pytest.MonkeyPatch) -> None:
    """Take the ledger for ended where its last confirmed entry is."""
    learned = PipelinedProtocol._on_ledger_end_learned

    def end(self: PipelinedProtocol, event: LedgerEndLearned) -> list[Effect]:
        return learned(self, LedgerEndLearned(self.acked, event.length))

    patch.setattr(PipelinedProtocol, "_on_ledger_end_learned", end)


def sends_the_rest_again_in_another_order(patch: pytest.MonkeyPatch) -> None:
    chained = PipelinedProtocol._ledger_chained

    def turned(self: PipelinedProtocol) -> list[Effect]:
        effects = chained(self)
        sent = [one for one in effects if isinstance(one, AppendEntry)]
        return [*reversed(sent), *(one for one in effects if not isinstance(one, AppendEntry))]

    patch.setattr(PipelinedProtocol, "_ledger_chained", turned)


def leaves_out_what_was_in_flight_behind_the_failed_entry(patch: pytest.MonkeyPatch) -> None:
    created = LeaderProtocol._create

    def create(self: LeaderProtocol) -> list[Effect]:
        if isinstance(self, PipelinedProtocol) and self.behind:
            self.behind.pop()
        return created(self)

    patch.setattr(LeaderProtocol, "_create", create)


def does_not_claim(patch: pytest.MonkeyPatch) -> None:
    """Write with a version that was read a moment ago, whoever has written meanwhile."""
    judge = LeaderProtocol._judge

    def fresh(self: LeaderProtocol, event: Any) -> Any:
        assert self._write is not None
        self._write = type(self._write)(self._write.value, event.version)
        return judge(self, event)

    patch.setattr(LeaderProtocol, "_judge", fresh)


def shows_what_is_not_confirmed(patch: pytest.MonkeyPatch) -> None:
    def expose(self: LogReader) -> list[LogEntry]:
        shown, self._unexposed = self._unexposed, []
        if shown:
            self.position = shown[-1].position
            self.revision = shown[-1].envelope.last_revision
        return shown

    patch.setattr(LogReader, "_expose", expose)
    patch.setattr(LogReader, "_read_some", peek)


def truncates_what_is_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trimming, "is_held", lambda *_: False)


def transaction_ids_begin_anew_after_a_failover(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_end, "written_end", lambda payload: WrittenEnd(0, plain_log.written_end(payload).is_ended))


def takes_any_transaction_id(patch: pytest.MonkeyPatch) -> None:
    add = AppendQueue.add

    def taken(
        self: AppendQueue, payloads: Any, keys: Any, txid: int | None, make_ticket: Any, *more: Any
    ) -> PendingRecords:
        last = self.txid
        self.txid = 0
        try:
            return add(self, payloads, keys, last - 1 if txid is None and last else txid, make_ticket, *more)
        finally:
            self.txid = max(last, self.txid)

    patch.setattr(AppendQueue, "add", taken)


def forgets_the_end_mark(patch: pytest.MonkeyPatch) -> None:
    later, first = plain_log.ledger_records, plain_log.first_records
    patch.setattr(writing, "ledger_records", lambda end, note: later(WrittenEnd(end.txid), note))
    patch.setattr(writing, "first_records", lambda who, which, end, note: first(who, which, WrittenEnd(end.txid), note))


def begins_one_too_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReaderStart, "takes", lambda self, record: record.position > self.position)


def answers_what_is_on_its_way(patch: pytest.MonkeyPatch) -> None:
    """Answer a repeated sequence from the table, which knows entries before they are confirmed."""
    piece = ProducerIntake._piece

    def told(self: ProducerIntake, source: Any, state: Any, way: Any, sequence: int, end: int) -> Any:
        is_known = state is not None and any(one.sequence <= sequence <= one.last_sequence for one in state.ranges)
        return piece(self, source, state, None if is_known else way, sequence, end)

    patch.setattr(ProducerIntake, "_piece", told)


def forgets_the_producers_at_a_failover(patch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: object) -> ProducerTable:
        return ProducerTable()

    patch.setattr(writing, "read_producers", nobody)


def reads_the_note_and_nothing_behind_it(patch: pytest.MonkeyPatch) -> None:
    folded = producers.folded

    def noted(entries: Any) -> ProducerTable:
        return folded([entry for entry in entries if entry.has_note or entry.is_begin][:1])

    patch.setattr(producers_end, "folded", noted)


def notes_the_producers_in_the_first_ledger_alone(patch: pytest.MonkeyPatch) -> None:
    """So the note goes with the ledgers that are trimmed."""

    def without(end: WrittenEnd, note: bytes | None = None) -> list[tuple[object, ...]]:
        records = plain_log.ledger_records(end, note)
        return [record for record in records if record[0] != PlainRecord.PRODUCERS_NOTED]

    patch.setattr(writing, "ledger_records", without)


def appends_a_repeated_sequence_again(patch: pytest.MonkeyPatch) -> None:
    """Take what is sent again after its reply was lost for new."""

    def judge(self: ProducerIntake, source: RecordSource, count: int) -> ProducerVerdict:  # noqa: ARG001
        return ProducerVerdict((), count)

    def add(self: ProducerTable, producer: str, found: ProducedRange, logged_ms: int) -> None:
        state = self._states.setdefault(producer, ProducerState("", logged_ms))
        state.add(found, logged_ms)

    patch.setattr(ProducerIntake, "judge", judge)
    patch.setattr(ProducerTable, "add", add)


def refuses_by_a_table_that_may_be_old(patch: pytest.MonkeyPatch) -> None:
    """Refuse a gap although another writer may have taken what came before it."""

    async def unchecked(_: WriterDriver) -> None:
        return None

    patch.setattr(WriterDriver, "check", unchecked)


def folds_the_note_behind_the_appends_of_its_entry(patch: pytest.MonkeyPatch) -> None:
    facts = producers.facts_of

    def reordered(payload: bytes) -> EntryFacts:
        found = facts(payload)
        notes = [fact for fact in found.facts if fact.rows is not None]
        return EntryFacts((*notes[1:], *(one for one in found.facts if one.rows is None), *notes[:1]), found.is_begin)

    def lenient(self: ProducerTable, producer: str, found: ProducedRange, logged_ms: int) -> None:
        state = self._states.setdefault(producer, ProducerState("sim", logged_ms))
        state.add(found, logged_ms)

    patch.setattr(producers_end, "facts_of", reordered)
    patch.setattr(ProducerTable, "add", lenient)
    patch.setattr(ProducerTable, "open", lambda *_: None)


def forgets_the_writers_of_batches_at_a_note(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AppendComposer, "writer_records", lambda _: [])


def appends_rows_without_their_mark(patch: pytest.MonkeyPatch) -> None:
    """End batches, and remember nothing of their chunks."""
    add = AppendQueue.add

    def unmarked(self: AppendQueue, payloads: Any, keys: Any, txid: Any, make_ticket: Any, *rest: Any) -> Any:
        source, marks = rest
        marks = [one for one in marks if one[1][1] == OWN_PART or not payloads]
        return add(self, payloads, keys, txid, make_ticket, source, marks)

    patch.setattr(AppendQueue, "add", unmarked)


def judges_a_batch_while_its_rows_are_on_their_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MarkedWriting, "_lane", lambda _self, _name: asyncio.Lock())


def refuses_a_batch_by_a_table_that_may_be_old(patch: pytest.MonkeyPatch) -> None:
    async def look(_: MarkedWriting) -> None:
        pass

    patch.setattr(MarkedWriting, "_look", look)

"""Bugs to plant into plain logs."""

from __future__ import annotations

from typing import Any

import pytest

from rsm_spark.core import plain_log, trimming
from rsm_spark.core.append_queue import AppendBatch, AppendQueue, PendingRecords
from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_events import AppendEntry, BatchComposed, Effect, LedgerEndLearned
from rsm_spark.core.pipelined_leadership import PipelinedProtocol
from rsm_spark.core.plain_log import WrittenEnd
from rsm_spark.log.commit_log import LogEntry, LogReader
from rsm_spark.logs import log_end, writing
from rsm_spark.logs.record_reader import ReaderStart
from rsm_spark.logs.writing import WriterDriver
from tests.sim.replica_plants import peek


def acknowledges_what_was_only_sent(patch: pytest.MonkeyPatch) -> None:
    composed = PipelinedProtocol._on_batch_composed

    def sent(self: PipelinedProtocol, event: BatchComposed) -> list[Effect]:
        assert isinstance(event.batch, AppendBatch)
        for append in event.batch.appends:
            writing._resolve(append, append.last_position)
        return composed(self, event)

    patch.setattr(PipelinedProtocol, "_on_batch_composed", sent)


def acknowledges_what_was_fenced(patch: pytest.MonkeyPatch) -> None:
    def drop(self: WriterDriver, batch: AppendBatch, *, applied_never: bool) -> None:  # noqa: ARG001
        for append in batch.appends:
            writing._resolve(append, append.last_position)

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

    def taken(self: AppendQueue, payloads: Any, keys: Any, txid: int | None, make_ticket: Any) -> PendingRecords:
        last = self.txid
        self.txid = 0
        try:
            return add(self, payloads, keys, last - 1 if txid is None and last else txid, make_ticket)
        finally:
            self.txid = max(last, self.txid)

    patch.setattr(AppendQueue, "add", taken)


def forgets_the_end_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writing, "ledger_records", lambda end: plain_log.ledger_records(WrittenEnd(end.txid)))
    first = plain_log.first_records
    patch.setattr(writing, "first_records", lambda who, which, end: first(who, which, WrittenEnd(end.txid)))


def begins_one_too_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReaderStart, "takes", lambda self, record: record.position > self.position)

from __future__ import annotations

from connectors.source.offsets import LogOffset
from connectors.source.plan import EntryHead, LogSpan, LogView
from connectors.source.progress import SourceLag, log_backlog, report, sum_backlogs


class TimedLog:
    """Entries of two records and 100 bytes each, one logged each second, over several ledgers."""

    def __init__(self, *entry_counts: int, first_revision: int = 1) -> None:
        spans, revision, now_ms = [], first_revision, 0
        self.heads: dict[tuple[int, int], EntryHead] = {}
        for ledger_id, count in enumerate(entry_counts, start=10):
            first = revision
            for entry_id in range(count):
                revision += 2
                now_ms += 1000
                self.heads[ledger_id, entry_id] = EntryHead(revision - 1, 100 * (entry_id + 1), now_ms)
            spans.append(LogSpan(ledger_id, first, count - 1, revision - 1, 100 * count))
        self.view = LogView("orders", tuple(spans), first_revision)
        self.reads: list[tuple[int, int]] = []

    def head_at(self, ledger_id: int, entry_id: int) -> EntryHead:
        self.reads.append((ledger_id, entry_id))
        return self.heads[ledger_id, entry_id]


def test_a_query_at_the_end_is_not_behind_and_reads_nothing_to_find_out() -> None:
    log = TimedLog(3, 2)
    assert log_backlog(log.view, log.view.end, log.head_at) == SourceLag(0, 0, 0)
    assert log.reads == []


def test_what_waits_is_counted_over_ledgers() -> None:
    log = TimedLog(3, 0, 4)
    assert log_backlog(log.view, LogOffset(10, 1, 3), log.head_at) == SourceLag(12, 600, 5000)
    assert len(log.reads) <= 3
    assert log_backlog(log.view, LogOffset(10, 3, 7), log.head_at) == SourceLag(8, 400, 3000)
    assert log_backlog(log.view, LogOffset(12, 3, 13), log.head_at) == SourceLag(2, 100, 0)


def test_a_query_before_the_first_ledger_has_everything_before_it() -> None:
    log = TimedLog(3, 2)
    assert log_backlog(log.view, LogOffset(-1, 0, 1), log.head_at) == SourceLag(10, 500, 4000)


def test_records_that_are_gone_do_not_wait() -> None:
    log = TimedLog(3, first_revision=21)
    assert log_backlog(log.view, LogOffset(4, 2, 5), log.head_at) == SourceLag(6, 300, 2000)


def test_a_log_without_ledgers_has_nothing_waiting() -> None:
    assert log_backlog(TimedLog().view, LogOffset(-1, 0, 1), TimedLog().head_at) == SourceLag(0, 0, 0)
    assert log_backlog(TimedLog(0).view, LogOffset(-1, 0, 1), TimedLog().head_at) == SourceLag(0, 0, 0)


def test_several_logs_are_as_far_behind_as_the_oldest_of_them() -> None:
    assert sum_backlogs([SourceLag(1, 10, 5), SourceLag(2, 20, 500), SourceLag(0, 0, None)]) == SourceLag(3, 30, 500)
    assert sum_backlogs([]) == SourceLag(0, 0, None)


def test_losses_are_reported_only_if_there_are_any() -> None:
    assert report({"version": 1}, SourceLag(1, 2, None), []) == {"version": 1, "behindRecords": 1, "behindBytes": 2}
    loss = {"log": "orders", "from": 1, "to": 9, "count": 9}
    assert report({"version": 1}, None, [loss]) == {"version": 1, "losses": [loss]}

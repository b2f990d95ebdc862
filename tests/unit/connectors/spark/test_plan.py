from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import SparkOffsetError, StartGoneError
from connectors.spark.offsets import LogOffset
from connectors.spark.plan import (
    PARTITION_BYTES,
    LogSpan,
    LogView,
    cut_ledgers,
    cut_log,
    locate_entry,
    locate_revision,
    next_offset,
    split_ledgers,
    split_log,
)


class FakeLog:
    """A log as lists of records per entry, per ledger."""

    def __init__(self, ledgers: dict[int, list[int]], first_revision: int = 1, entry_bytes: int = 100) -> None:
        self.lasts: dict[tuple[int, int], int] = {}
        self.reads = 0
        spans, revision = [], first_revision
        for ledger_id, counts in ledgers.items():
            first = revision
            for entry_id, count in enumerate(counts):
                revision += count
                self.lasts[ledger_id, entry_id] = revision - 1
            spans.append(LogSpan(ledger_id, first, len(counts) - 1, revision - 1, entry_bytes * len(counts)))
        self.view = LogView("orders", tuple(spans), first_revision)

    def last_revision_at(self, ledger_id: int, entry_id: int) -> int:
        self.reads += 1
        return self.lasts[ledger_id, entry_id]


LOGS = st.lists(st.lists(st.integers(0, 5), max_size=12), min_size=1, max_size=5).map(
    lambda ledgers: FakeLog({10 + 3 * i: counts for i, counts in enumerate(ledgers)}, first_revision=4)
)


def test_end_is_written_as_the_end_of_the_last_ledger_that_holds_an_entry() -> None:
    assert FakeLog({3: [1, 2], 4: []}).view.end == LogOffset(3, 2, 4)
    assert FakeLog({}).view.end == LogOffset(-1, 0, 1)
    assert FakeLog({3: []}).view.end == LogOffset(-1, 0, 1)


def test_a_roll_without_new_records_is_nothing_new() -> None:
    start = FakeLog({3: [1, 2]}).view.end
    assert next_offset(FakeLog({3: [1, 2], 4: []}).view, start, counts_records=False) == start


def test_entries_without_records_are_new_for_raw_rows_only() -> None:
    start = FakeLog({3: [1, 2]}).view.end
    view = FakeLog({3: [1, 2, 0], 4: [0]}).view
    assert next_offset(view, start, counts_records=True) == start
    assert next_offset(view, start, counts_records=False) == LogOffset(4, 1, 4)


def test_a_trimmed_ledger_behind_the_query_is_no_loss() -> None:
    view = FakeLog({4: [2]}, first_revision=4).view
    assert next_offset(view, LogOffset(3, 2, 4), counts_records=True) == LogOffset(4, 1, 6)
    assert split_log(view, LogOffset(3, 2, 4), view.end, None)[0][:3] == (4, 0, 0)


def test_a_trimmed_start_names_the_range_and_the_choices() -> None:
    view = FakeLog({4: [2]}, first_revision=40).view
    with pytest.raises(StartGoneError, match=r"records 4 to 39 have been trimmed.*startingOffsets=earliest.*snapshot"):
        next_offset(view, LogOffset(3, 2, 4), counts_records=True)
    with pytest.raises(StartGoneError, match="records 7 to 39"):
        locate_revision(view, 7, lambda *_: 0)
    with pytest.raises(StartGoneError, match="ledger 3 is not in its chain"):
        locate_entry(view, 3, 0, lambda *_: 0)


def test_a_start_beyond_the_end_is_another_log() -> None:
    log = FakeLog({4: [2]})
    with pytest.raises(SparkOffsetError, match="before record 9, the log ends before 3"):
        next_offset(log.view, LogOffset(7, 2, 9), counts_records=True)
    with pytest.raises(SparkOffsetError, match="before record 9"):
        locate_revision(log.view, 9, log.last_revision_at)
    with pytest.raises(SparkOffsetError, match="up to entry 0"):
        locate_entry(log.view, 4, 2, log.last_revision_at)


@given(log=LOGS, data=st.data())
def test_a_revision_is_found_in_the_entry_that_holds_it(log: FakeLog, data: st.DataObject) -> None:
    revision = data.draw(st.integers(4, log.view.end.revision))
    offset = locate_revision(log.view, revision, log.last_revision_at)
    assert offset.revision == revision
    if revision == log.view.end.revision:
        assert offset == log.view.end
    else:
        last = log.lasts[offset.ledger_id, offset.entry_id]
        before = [value for place, value in log.lasts.items() if place < (offset.ledger_id, offset.entry_id)]
        assert max(before, default=3) < revision <= last


@given(log=LOGS, data=st.data())
def test_cuts_are_whole_entries_that_cover_the_limit_and_reach_the_end(log: FakeLog, data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, 9))
    position, end, borders = log.view.begin, log.view.end, {value + 1 for value in log.lasts.values()}
    for _ in range(200):
        target = next_offset(log.view, position, counts_records=True)
        if target == position:
            break
        following = cut_log(log.view, position, target, limit, log.last_revision_at)
        taken = following.revision - position.revision
        assert following.revision in borders
        assert taken >= min(limit, target.revision - position.revision)
        assert taken < limit + 5, "rounded up by less than an entry"
        position = following
    assert position.revision == end.revision


@given(log=LOGS, data=st.data(), minimum=st.one_of(st.none(), st.integers(1, 7)))
def test_input_partitions_cover_every_entry_once_in_order(
    log: FakeLog, data: st.DataObject, minimum: int | None
) -> None:
    places = sorted(log.lasts)
    if not places:
        assert split_log(log.view, log.view.begin, log.view.end, minimum) == []
        return
    low = data.draw(st.integers(0, len(places) - 1))
    high = data.draw(st.integers(low, len(places) - 1))
    start = LogOffset(*places[low], 4)
    end = LogOffset(places[high][0], places[high][1] + 1, 4)
    parts = split_log(log.view, start, end, minimum)
    covered = [(p.ledger_id, e) for p in parts for e in range(p.first_entry_id, p.last_entry_id + 1)]
    assert covered == places[low : high + 1]
    if minimum:
        assert len(parts) >= min(minimum, len(covered)) or len(parts) * -(-len(covered) // minimum) >= len(covered)


def test_large_ledgers_are_split_by_size() -> None:
    log = FakeLog({3: [1] * 100}, entry_bytes=PARTITION_BYTES // 10)
    parts = split_log(log.view, log.view.begin, log.view.end, None)
    assert [p.last_entry_id - p.first_entry_id + 1 for p in parts] == [10] * 10
    assert len(split_ledgers({}, {3: 100}, {3: PARTITION_BYTES // 10}, None)) == 10


def test_finding_a_revision_reads_few_entries() -> None:
    log = FakeLog({3: [1] * 100_000})
    assert locate_revision(log.view, 77_777, log.last_revision_at) == LogOffset(3, 77_776, 77_777)
    assert log.reads <= 20


@given(
    waiting=st.dictionaries(st.integers(0, 50), st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1),
    limit=st.integers(1, 150),
)
def test_a_limit_over_ledgers_is_shared_and_exact(waiting: dict[int, tuple[int, int]], limit: int) -> None:
    start = {ledger_id: first for ledger_id, (first, _) in waiting.items()}
    end = {ledger_id: first + count for ledger_id, (first, count) in waiting.items()}
    cut = cut_ledgers(start, end, limit)
    assert all(start[i] <= cut[i] <= end[i] for i in end)
    taken = sum(cut[i] - start[i] for i in end)
    assert taken == min(limit, sum(count for _, count in waiting.values()))

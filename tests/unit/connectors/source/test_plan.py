from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import SparkOffsetError, StartGoneError
from connectors.source.offsets import LogOffset
from connectors.source.plan import (
    EntryHead,
    LogSpan,
    LogView,
    MicroBatchLimits,
    cut_ledgers,
    cut_log,
    first_entry,
    locate_entry,
    locate_revision,
    next_offset,
    share,
)
from connectors.source.split import PARTITION_BYTES, split_ledgers, split_log


class FakeLog:
    """A log as lists of records per entry, per ledger."""

    def __init__(
        self, ledgers: dict[int, list[int]], first_revision: int = 1, entry_bytes: int = 100, record_bytes: int = 0
    ) -> None:
        self.lasts: dict[tuple[int, int], int] = {}
        self.sizes: dict[tuple[int, int], int] = {}
        self.lengths: dict[tuple[int, int], int] = {}
        self.reads = 0
        spans, revision = [], first_revision
        for ledger_id, counts in ledgers.items():
            first, length = revision, 0
            for entry_id, count in enumerate(counts):
                revision += count
                length += entry_bytes + record_bytes * count
                self.lasts[ledger_id, entry_id] = revision - 1
                self.sizes[ledger_id, entry_id] = entry_bytes + record_bytes * count
                self.lengths[ledger_id, entry_id] = length
            spans.append(LogSpan(ledger_id, first, len(counts) - 1, revision - 1, length))
        self.view = LogView("orders", tuple(spans), first_revision)

    def last_revision_at(self, ledger_id: int, entry_id: int) -> int:
        return self.head_at(ledger_id, entry_id).last_revision

    def head_at(self, ledger_id: int, entry_id: int) -> EntryHead:
        self.reads += 1
        return EntryHead(self.lasts[ledger_id, entry_id], self.lengths[ledger_id, entry_id], 0)


LOGS = st.lists(st.lists(st.integers(0, 5), max_size=12), min_size=1, max_size=5).map(
    lambda ledgers: FakeLog({10 + 3 * i: c for i, c in enumerate(ledgers)}, first_revision=4, record_bytes=37)
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
        following = cut_log(log.view, position, target, MicroBatchLimits(offsets_max=limit), log.head_at)
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


@given(log=LOGS, data=st.data())
def test_limits_in_bytes_are_reached_by_whole_entries_and_by_no_entry_more(log: FakeLog, data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, 1000))
    position, end = log.view.begin, log.view.end
    for _ in range(200):
        if log.view.place(position) >= log.view.place(end):
            break
        following = cut_log(log.view, position, end, MicroBatchLimits(bytes_max=limit), log.head_at)
        places = [place for place in sorted(log.sizes) if position[:2] <= place < following[:2]]
        assert places, "one entry always goes"
        taken = sum(log.sizes[place] for place in places)
        assert taken - log.sizes[places[-1]] < limit
        assert following == end or taken >= limit
        position = following
    assert position == end or not log.sizes


@given(log=LOGS, data=st.data())
def test_the_smallest_of_the_limits_and_of_what_is_there_wins(log: FakeLog, data: st.DataObject) -> None:
    offsets_max, bytes_max = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 3000))
    start, end = log.view.begin, log.view.end
    if start == end or end.revision == start.revision:
        return
    by_offsets = cut_log(log.view, start, end, MicroBatchLimits(offsets_max), log.head_at)
    by_bytes = cut_log(log.view, start, end, MicroBatchLimits(None, bytes_max), log.head_at)
    both = cut_log(log.view, start, end, MicroBatchLimits(offsets_max, bytes_max), log.head_at)
    assert both == min(by_offsets, by_bytes, key=log.view.place)
    assert cut_log(log.view, start, end, MicroBatchLimits(), log.head_at) == end


def test_a_target_inside_a_ledger_is_not_passed() -> None:
    log = FakeLog({3: [1] * 10, 4: [1] * 10})
    target = LogOffset(3, 6, 7)
    assert cut_log(log.view, log.view.begin, target, MicroBatchLimits(bytes_max=10_000), log.head_at) == target
    assert cut_log(log.view, log.view.begin, target, MicroBatchLimits(bytes_max=250), log.head_at) == LogOffset(3, 3, 4)
    assert cut_log(log.view, log.view.begin, log.view.end, MicroBatchLimits(bytes_max=1000), log.head_at) == LogOffset(
        3, 10, 11
    )


def test_cutting_reads_few_heads() -> None:
    log = FakeLog({3: [1, 9] * 50_000})
    cut_log(log.view, LogOffset(3, 1000, 5001), log.view.end, MicroBatchLimits(offsets_max=77_777), log.head_at)
    assert log.reads <= 10, "entries that are alike are found by the guess"
    crooked = FakeLog({3: [1] * 65_000 + [10_000] * 35})
    crooked.reads = 0
    cut_log(crooked.view, crooked.view.begin, crooked.view.end, MicroBatchLimits(offsets_max=70_000), crooked.head_at)
    assert crooked.reads <= 36


@given(low=st.integers(0, 40), count=st.integers(1, 40), guess=st.integers(-5, 90), data=st.data())
def test_the_first_entry_is_found_whatever_the_guess(low: int, count: int, guess: int, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(low, low + count - 1))
    assert first_entry(low, low + count - 1, guess, lambda entry_id: entry_id >= wanted) == wanted


WAITING = st.dictionaries(st.integers(0, 50), st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1)


@given(waiting=WAITING, offsets_max=st.none() | st.integers(1, 150), bytes_max=st.none() | st.integers(1, 15_000))
def test_limits_over_ledgers_are_shared_and_none_starves(
    waiting: dict[int, tuple[int, int]], offsets_max: int | None, bytes_max: int | None
) -> None:
    start = {ledger_id: first for ledger_id, (first, _) in waiting.items()}
    end = {ledger_id: first + count for ledger_id, (first, count) in waiting.items()}
    cut = cut_ledgers(start, end, MicroBatchLimits(offsets_max, bytes_max), lambda _, entry_id: 100 * (entry_id + 1))
    assert list(cut) == sorted(end)
    assert all(start[i] <= cut[i] <= end[i] for i in end)
    assert all(cut[i] > start[i] for i in end if end[i] > start[i])
    taken, total = sum(cut[i] - start[i] for i in end), sum(end[i] - start[i] for i in end)
    entries_max = min(offsets_max or total, -(-bytes_max // 100) if bytes_max else total)
    assert taken <= entries_max + len(end)
    assert total > entries_max or taken == total


def test_shares_follow_what_waits() -> None:
    assert share({"a": 900, "b": 100, "c": 0, "d": 1}, 100) == {"a": 90, "b": 9, "c": 0, "d": 1}
    assert share({"a": 900, "b": 100, "c": 1}, 2) == {"a": 1, "b": 1, "c": 1}
    assert share({"a": 5, "b": 6}, 11) == {"a": 5, "b": 6}

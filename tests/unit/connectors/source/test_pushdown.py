from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from connectors.source.entry_bounds import EntryBounds, Interval
from connectors.source.narrow import narrow_log, narrow_ranges
from connectors.source.offsets import LogOffset
from connectors.source.options import parse_options
from connectors.source.plan import EntryHead, LogSpan, LogView
from connectors.source.pushdown import push_filters
from connectors.source.split import EntryRange, split_log


def push(*filters: Filter, **options: str) -> tuple[EntryBounds, list[Filter]]:
    given = options if "ledgers" in options else {"log": "orders"} | options
    return push_filters(filters, parse_options(given, is_stream=False))


def at(microseconds: int) -> datetime:
    return datetime.fromtimestamp(0, UTC).replace(microsecond=microseconds)


@pytest.mark.parametrize(
    ("one", "interval"),
    [
        (EqualTo(("revision",), 7), Interval(7, 7)),
        (EqualNullSafe(("revision",), 7), Interval(7, 7)),
        (GreaterThan(("revision",), 7), Interval(low=8)),
        (GreaterThanOrEqual(("revision",), 7), Interval(low=7)),
        (LessThan(("revision",), 7), Interval(high=6)),
        (LessThanOrEqual(("revision",), 7), Interval(high=7)),
    ],
)
def test_a_comparison_is_taken_as_an_interval(one: Filter, interval: Interval) -> None:
    assert push(one) == (EntryBounds(revision=interval), [])


@pytest.mark.parametrize(
    ("one", "interval"),
    [
        (GreaterThan(("logged_at",), at(2000)), Interval(low=3)),
        (GreaterThan(("logged_at",), at(2001)), Interval(low=3)),
        (GreaterThanOrEqual(("logged_at",), at(2000)), Interval(low=2)),
        (GreaterThanOrEqual(("logged_at",), at(2001)), Interval(low=3)),
        (LessThan(("logged_at",), at(2000)), Interval(high=1)),
        (LessThan(("logged_at",), at(2001)), Interval(high=2)),
        (LessThanOrEqual(("logged_at",), at(2001)), Interval(high=2)),
        (EqualTo(("logged_at",), at(2000)), Interval(2, 2)),
    ],
)
def test_times_are_rounded_to_the_milliseconds_of_the_log(one: Filter, interval: Interval) -> None:
    assert push(one) == (EntryBounds(logged_ms=interval), [])


def test_a_time_between_two_milliseconds_is_nobodys() -> None:
    assert push(EqualTo(("logged_at",), at(2001)))[0].is_empty


def test_several_filters_are_one_interval() -> None:
    bounds, left = push(GreaterThan(("entry_id",), 3), LessThan(("entry_id",), 9), EqualTo(("ledger_id",), 1))
    assert (bounds, left) == (EntryBounds(entry_id=Interval(4, 8), ledger_id=Interval(1, 1)), [])


def test_a_list_of_values_helps_and_stays_with_spark() -> None:
    one = In(("revision",), (9, 4, 6))
    assert push(one) == (EntryBounds(revision=Interval(4, 9)), [one])


@pytest.mark.parametrize(
    "one",
    [
        Not(EqualTo(("revision",), 7)),
        IsNotNull(("revision",)),
        EqualTo(("name",), "put"),
        EqualTo(("revision", "part"), 7),
        EqualTo(("revision",), None),
        EqualTo(("logged_at",), datetime(2026, 1, 1)),  # noqa: DTZ001 - a time of no zone is no time
        In(("revision",), (1, None)),
        In(("revision",), ()),
    ],
)
def test_what_says_nothing_of_entries_stays_with_spark(one: Filter) -> None:
    assert push(one) == (EntryBounds(), [one])


def test_columns_of_other_kinds_of_rows_mean_the_same() -> None:
    assert push(GreaterThan(("offset",), 7), rows="kafka")[0] == EntryBounds(revision=Interval(low=8))
    assert push(GreaterThan(("_revision",), 7), rows="table")[0] == EntryBounds(revision=Interval(low=8))
    kafka = {"ledgers": "1,2", "rows": "kafka"}
    assert push(GreaterThan(("offset",), 7), **kafka)[0] == EntryBounds(entry_id=Interval(low=8))
    assert push(EqualTo(("partition",), 2), **kafka)[0] == EntryBounds(ledger_id=Interval(2, 2))


def test_plain_ledgers_know_no_revisions() -> None:
    one = GreaterThan(("revision",), 7)
    assert push(one, ledgers="1") == (EntryBounds(), [one])


def test_rows_that_tell_of_errors_are_judged_by_spark_too() -> None:
    one = GreaterThan(("revision",), 7)
    assert push(one, badRecords="column") == (EntryBounds(revision=Interval(low=8)), [one])


# Ledgers 1, 2, 3 of 10 entries each; an entry holds 0, 1, 2, 0, 1, 2, … records and is logged at its number.
COUNTS = [place % 3 for place in range(30)]
ENDS = [sum(COUNTS[: place + 1]) for place in range(30)]


def view_of() -> LogView:
    spans = []
    for number in range(3):
        first = ENDS[number * 10 - 1] + 1 if number else 1
        spans.append(LogSpan(number + 1, first, 9, ENDS[number * 10 + 9], 1000, number * 10 + 9))
    return LogView("orders", tuple(spans))


class Heads:
    """Heads of entries, and which ledgers they were asked of."""

    def __init__(self) -> None:
        self.asked: set[int] = set()

    def __call__(self, ledger_id: int, entry_id: int) -> EntryHead:
        self.asked.add(ledger_id)
        place = (ledger_id - 1) * 10 + entry_id
        return EntryHead(ENDS[place], 100, place)


def planned(bounds: EntryBounds, heads: Heads, *, counts_records: bool = True) -> list[EntryRange]:
    view = view_of()
    start, end = narrow_log(view, view.begin, view.end, bounds, heads, counts_records=counts_records)
    epochs = {1: (0, 1), 2: (1, 4), 3: (4, 4)}
    return narrow_ranges(split_log(view, start, end, None), bounds, epochs)


INTERVALS = st.one_of(
    st.just(Interval()),
    st.builds(Interval, low=st.integers(-2, 35)),
    st.builds(Interval, high=st.integers(-2, 35)),
    st.builds(Interval, low=st.integers(-2, 35), high=st.integers(-2, 35)),
)


@given(revision=INTERVALS, logged_ms=INTERVALS, ledger_id=INTERVALS, entry_id=INTERVALS)
def test_nothing_that_is_asked_for_is_left_out(
    revision: Interval, logged_ms: Interval, ledger_id: Interval, entry_id: Interval
) -> None:
    bounds = EntryBounds(ledger_id, entry_id, revision, logged_ms)
    entries = {
        (one.ledger_id - 1) * 10 + entry_id
        for one in planned(bounds, Heads(), counts_records=False)
        for entry_id in range(one.first_entry_id, one.last_entry_id + 1)
    }
    records: set[int] = set()
    for one in planned(bounds, Heads()):
        first, last = [(one.ledger_id - 1) * 10 + entry_id for entry_id in (one.first_entry_id, one.last_entry_id)]
        found = range(ENDS[first] - COUNTS[first] + 1, ENDS[last] + 1)
        records.update(r for r in found if one.first_revision <= r and (not one.end_revision or r < one.end_revision))
    for place in range(30):
        is_place = has(ledger_id, place // 10 + 1) and has(entry_id, place % 10) and has(logged_ms, place)
        first = ENDS[place] - COUNTS[place] + 1
        assert place in entries or not (is_place and has(revision, first))
        wanted = {r for r in range(first, ENDS[place] + 1) if is_place and has(revision, r)}
        assert wanted <= records
    assert all(has(revision, found) for found in records), "records are left out exactly"
    assert all(has(ledger_id, place // 10 + 1) and has(entry_id, place % 10) for place in entries)


def has(interval: Interval, value: int) -> bool:
    return interval.low <= value <= interval.high


@pytest.mark.parametrize(
    ("bounds", "ledgers"),
    [
        (EntryBounds(revision=Interval(ENDS[10], ENDS[18])), {2}),
        (EntryBounds(logged_ms=Interval(12, 17)), {2}),
        (EntryBounds(ledger_id=Interval(2, 2)), {2}),
        (EntryBounds(leader_epoch=Interval(low=2, high=3)), {2}),
        (EntryBounds(leader_epoch=Interval(low=5)), set()),
        (EntryBounds(revision=Interval(low=1000)), set()),
        (EntryBounds(logged_ms=Interval(low=1000)), set()),
        (EntryBounds(revision=Interval(5, 4)), set()),
    ],
)
def test_ledgers_outside_of_the_bounds_are_never_opened(bounds: EntryBounds, ledgers: set[int]) -> None:
    heads = Heads()
    assert {one.ledger_id for one in planned(bounds, heads)} == ledgers
    assert heads.asked <= ledgers


def test_nothing_is_read_where_there_is_nothing() -> None:
    empty = LogView("orders", ())
    start = LogOffset(-1, 0, 1)
    bounds: Any = EntryBounds(revision=Interval(1, 5), logged_ms=Interval(low=3))
    assert narrow_log(empty, start, start, bounds, Heads(), counts_records=True) == (start, start)

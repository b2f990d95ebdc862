from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from connectors.source import stream
from connectors.source.admission import BatchAdmission, limits_of, tighten
from connectors.source.options import parse_options
from connectors.source.plan import MicroBatchLimits
from connectors.source.progress import SourceLag
from connectors.source.stream import LedgerStreamReader

LIMITS = MicroBatchLimits(offsets_min=10, trigger_delay_max_s=60.0)


def test_the_first_micro_batch_after_a_start_waits_for_nothing() -> None:
    assert BatchAdmission().admits(1, LIMITS, now_s=5.0)


def test_later_ones_wait_until_enough_is_there() -> None:
    admission = BatchAdmission()
    admission.admits(1, LIMITS, now_s=0.0)
    assert not admission.admits(9, LIMITS, now_s=1.0)
    assert admission.admits(10, LIMITS, now_s=2.0)
    assert not admission.admits(1, LIMITS, now_s=3.0)


def test_nothing_waits_longer_than_the_delay_after_the_micro_batch_before() -> None:
    admission = BatchAdmission()
    admission.admits(1, LIMITS, now_s=0.0)
    assert not admission.admits(1, LIMITS, now_s=59.9)
    assert admission.admits(1, LIMITS, now_s=60.0)
    assert not admission.admits(1, LIMITS, now_s=119.9)


def test_no_minimum_lets_everything_go() -> None:
    admission = BatchAdmission()
    assert [admission.admits(1, MicroBatchLimits(), now_s=float(now)) for now in range(3)] == [True] * 3


def test_the_tighter_of_two_limits_wins() -> None:
    assert tighten(MicroBatchLimits(5, None), offsets_max=7, bytes_max=9) == MicroBatchLimits(5, 9)
    assert tighten(MicroBatchLimits(5, 8), offsets_max=3, bytes_max=9) == MicroBatchLimits(3, 8)
    assert tighten(MicroBatchLimits(), offsets_max=None) == MicroBatchLimits()


class OneLog:
    """What a stream asks of its source: a log of so many records, one byte each."""

    def __init__(self) -> None:
        self.end_at = 0
        self.asked: list[tuple[MicroBatchLimits, Any]] = []

    def end(self) -> dict[str, Any]:
        return {"at": self.end_at}

    def following(
        self, start: dict[str, Any], limits: MicroBatchLimits, target: dict[str, Any] | None
    ) -> dict[str, Any]:
        self.asked.append((limits, target))
        end: int = self.end_at if target is None else target["at"]
        return {"at": min(end, start["at"] + (limits.offsets_max or end), start["at"] + (limits.bytes_max or end))}

    def backlog(self, offset: dict[str, Any]) -> SourceLag:
        waiting = self.end_at - offset["at"]
        return SourceLag(waiting, waiting, 2 * waiting)

    def losses(self) -> list[dict[str, Any]]:
        return []


class Clock:
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stream, "time", clock)
    return clock


def reader_of(log: OneLog, **options: str) -> LedgerStreamReader:
    reader = LedgerStreamReader(parse_options({"log": "orders", **options}, is_stream=True))
    reader._source = log  # type: ignore[assignment]
    return reader


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "2"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "1k", "minOffsetsPerTrigger": "2"}, ReadMaxBytes(1024)),
        ({"minOffsetsPerTrigger": "2"}, ReadMinRows(2)),
    ],
)
def test_a_query_with_limits_does_not_ask_for_everything(options: dict[str, str], limit: ReadLimit) -> None:
    assert reader_of(OneLog(), **options).getDefaultReadLimit() == limit


def test_the_smallest_limit_wins_whichever_spark_names() -> None:
    log = OneLog()
    log.end_at = 1000
    reader = reader_of(log, maxOffsetsPerTrigger="100", maxBytesPerTrigger="30")
    start = {"at": 0}
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == {"at": 30}
    assert reader.latestOffset(start, ReadMaxRows(7)) == {"at": 7}
    assert reader.latestOffset(start, ReadMaxBytes(8)) == {"at": 8}
    assert reader.latestOffset(start, ReadMaxBytes(99)) == {"at": 30}


def test_trigger_once_reads_everything_in_spite_of_limits() -> None:
    log = OneLog()
    log.end_at = 1000
    reader = reader_of(log, maxOffsetsPerTrigger="100", minOffsetsPerTrigger="100")
    assert reader.latestOffset({"at": 0}, ReadAllAvailable()) == {"at": 1000}


def test_a_stream_stands_still_until_enough_waits_or_it_has_waited_long_enough(clock: Clock) -> None:
    log = OneLog()
    log.end_at = 3
    reader = reader_of(log, minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset({"at": 0}, limit) == {"at": 3}
    log.end_at = 12
    assert reader.latestOffset({"at": 3}, limit) == {"at": 3}
    log.end_at = 13
    assert reader.latestOffset({"at": 3}, limit) == {"at": 13}
    log.end_at = 14
    clock.now_s = 29.0
    assert reader.latestOffset({"at": 13}, limit) == {"at": 13}
    clock.now_s = 30.0
    assert reader.latestOffset({"at": 13}, limit) == {"at": 14}


def test_a_minimum_and_a_maximum_work_together(clock: Clock) -> None:
    log = OneLog()
    log.end_at = 95
    reader = reader_of(log, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="30")
    limit, at, ends = reader.getDefaultReadLimit(), {"at": 0}, []
    for _ in range(5):
        at = reader.latestOffset(at, limit)
        ends.append(at["at"])
    assert ends == [30, 60, 90, 90, 90], "five records are too few"


def test_an_idle_stream_does_not_use_up_its_delay(clock: Clock) -> None:
    log = OneLog()
    log.end_at = 3
    reader = reader_of(log, minOffsetsPerTrigger="10", maxTriggerDelay="30s")
    limit = reader.getDefaultReadLimit()
    reader.latestOffset({"at": 0}, limit)
    for clock.now_s in (10.0, 31.0, 62.0):
        assert reader.latestOffset({"at": 3}, limit) == {"at": 3}
    log.end_at = 4
    clock.now_s = 63.0
    assert reader.latestOffset({"at": 3}, limit) == {"at": 4}, "the micro-batch before was 63 s ago"


def test_available_now_ends_where_it_began_to_read_and_knows_no_minimum(clock: Clock) -> None:
    log = OneLog()
    log.end_at = 45
    reader = reader_of(log, minOffsetsPerTrigger="20", maxOffsetsPerTrigger="20")
    reader.prepareForTriggerAvailableNow()
    log.end_at = 500
    at, ends = {"at": 0}, []
    for _ in range(4):
        at = reader.latestOffset(at, reader.getDefaultReadLimit())
        ends.append(at["at"])
    assert ends == [20, 40, 45, 45]


def test_progress_tells_what_waits_behind_the_micro_batch() -> None:
    log = OneLog()
    log.end_at = 100
    reader = reader_of(log, maxOffsetsPerTrigger="30")
    assert reader.reportLatestOffset() == {"at": 100}, "nothing was planned yet"
    reader.latestOffset({"at": 0}, ReadMaxRows(30))
    assert reader.reportLatestOffset() == {"at": 100, "behindRecords": 70, "behindBytes": 70, "behindMs": 140}


def test_a_reader_is_pickled_without_what_the_driver_holds() -> None:
    log = OneLog()
    reader = reader_of(log, maxOffsetsPerTrigger="30")
    reader.latestOffset({"at": 0}, ReadMaxRows(30))
    copy = pickle.loads(pickle.dumps(reader))  # noqa: S301 - of our own
    assert copy._source is None
    assert copy._planned is None
    assert limits_of(copy._options) == limits_of(reader._options)

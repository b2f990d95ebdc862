"""What users of Spark's Kafka source rely on, as a list: start x end or trigger x loss x one log or a pattern.

Each case is run against real logs and compared with a model of a few lines. Where the source differs from Kafka's on
purpose the model says so.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.spark.streams import Batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATE_MS = 10**12
"""After everything that was logged."""


class Start(NamedTuple):
    """A start: its options for the logs of a case, and where it means in a log of a model."""

    name: str
    options: Callable[[dict[str, LogModel]], dict[str, Any]]
    revision: Callable[[LogModel], int | None]


class LogModel:
    """A log as a list of entries: first revision, count and time each."""

    def __init__(self, log: Any, first_revision: int = 1) -> None:
        self.log = log
        self.first = first_revision

    @property
    def end(self) -> int:
        return int(self.log.revision) + 1

    def at_time(self, timestamp_ms: int) -> int | None:
        """The first record that is left of the first entry that was logged at or after a time."""
        heads = (struct.unpack_from(">QQQ", payload, 32) for _, _, payload in self.log.entries)
        return next((first for first, _, logged_ms in heads if logged_ms >= timestamp_ms and first >= self.first), None)


def by_log(value: Callable[[LogModel], Any]) -> Callable[[dict[str, LogModel]], dict[str, Any]]:
    return lambda models: {"startingOffsets": json.dumps({name: value(model) for name, model in models.items()})}


def word(text: str) -> Callable[[dict[str, LogModel]], dict[str, Any]]:
    return lambda _: {"startingOffsets": text}


STARTS = (
    Start("by_default", lambda _: {}, lambda model: None),
    Start("earliest", word("earliest"), lambda model: model.first),
    Start("latest", word("latest"), lambda model: model.end),
    Start("minus_two_is_earliest", by_log(lambda _: -2), lambda model: model.first),
    Start("minus_one_is_latest", by_log(lambda _: -1), lambda model: model.end),
    Start("a_number", by_log(lambda _: 5), lambda _: 5),
    Start("before_the_latest", word("latest-8"), lambda model: max(model.first, model.end - 8)),
    Start("a_time", lambda _: {"startingTimestamp": 1_009}, lambda model: model.at_time(1_009)),
    Start(
        "a_time_to_come",
        lambda _: {"startingTimestamp": LATE_MS, "startingOffsetsByTimestampStrategy": "latest"},
        lambda model: model.end,
    ),
)


class End(NamedTuple):
    """An end of a batch."""

    name: str
    options: Callable[[dict[str, LogModel]], dict[str, Any]]
    revision: Callable[[LogModel], int]


ENDS = (
    End("by_default", lambda _: {}, lambda model: model.end),
    End("latest", lambda _: {"endingOffsets": "latest"}, lambda model: model.end),
    End(
        "a_number",
        lambda models: {"endingOffsets": json.dumps(dict.fromkeys(models, 9))},
        lambda model: max(9, model.first),
    ),
    End("a_time", lambda _: {"endingTimestamp": 1_003}, lambda model: model.at_time(1_003) or model.end),
    End("a_time_to_come", lambda _: {"endingTimestamp": LATE_MS}, lambda model: model.end),
)


class Trigger(NamedTuple):
    """A trigger of a stream and its limits."""

    name: str
    trigger: dict[str, Any]
    options: dict[str, str] = {}


TRIGGERS = (
    Trigger("once", {"once": True}, {"maxOffsetsPerTrigger": "5"}),
    Trigger("available_now", {"availableNow": True}),
    Trigger("available_now_by_records", {"availableNow": True}, {"maxOffsetsPerTrigger": "15"}),
    Trigger("available_now_by_bytes", {"availableNow": True}, {"maxBytesPerTrigger": "1k"}),
    Trigger("available_now_and_a_minimum", {"availableNow": True}, {"minOffsetsPerTrigger": "1000"}),
    Trigger("processing_time", {"processingTime": "0 seconds"}),
    Trigger("processing_time_by_records", {"processingTime": "0 seconds"}, {"maxOffsetsPerTrigger": "15"}),
    Trigger(
        "processing_time_and_a_delay",
        {"processingTime": "0 seconds"},
        {"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "1s"},
    ),
)

WHOLE, SKIPPED, REFUSED = "whole", "loss_is_skipped", "loss_is_refused"
LOSSES = (WHOLE, SKIPPED, REFUSED)
ONE, PATTERN = "one_log", "a_pattern"
SUBJECTS = (ONE, PATTERN)


class Logs:
    """The logs of a case: two that a pattern matches and one that it does not; of the first, some may be gone."""

    def __init__(self, make_log: Callable[[], Any], subject: str, loss: str) -> None:
        self._make_log, self._subject = make_log, subject
        long, short, other = make_log(), make_log(), make_log()
        self._stem = long.name.rpartition("-")[0]
        for log, fills in ((long, (3, 2, 1)), (short, (1, 1)), (other, (2,))):
            for number, entry_count in enumerate(fills):
                if number:
                    log.roll()
                log.fill(entry_count, records_per_entry=10 if number < 2 else 7)
        first = 1
        if loss != WHOLE:
            long.trim(1)
            first = 32
        self.models = {long.name: LogModel(long, first)}
        if subject == PATTERN:
            self.models[short.name] = LogModel(short)

    def options(self, **more: Any) -> dict[str, str]:
        log = next(iter(self.models.values())).log
        options = log.options(**more)
        if self._subject == PATTERN:
            del options["log"]
            options["logPattern"] = f"{self._stem}-[0134]"
        return dict(options)

    def grow(self) -> None:
        """More is written; where a pattern reads there is also a new log."""
        for number, model in enumerate(list(self.models.values())):
            model.log.fill(1, records_per_entry=9 - number)
            model.log.roll()
            model.log.fill(1, records_per_entry=3)
        if self._subject == PATTERN:
            log = self._make_log()
            log.fill(1, records_per_entry=5)
            self.models[log.name] = LogModel(log)

    def rows(self, starts: dict[str, int], ends: dict[str, int]) -> list[tuple[str, int]]:
        """The rows of [start, end) of each log, sorted."""
        return sorted((name, r) for name, first in starts.items() for r in range(first, ends[name]))

    @property
    def ends(self) -> dict[str, int]:
        return {name: model.end for name, model in self.models.items()}


def is_lost(bound: Start | End, logs: Logs) -> bool:
    """Whether a start or an end names a record that is gone: words and times never do."""
    return bound.name == "a_number" and any(model.first > 9 for model in logs.models.values())


def starts_of(start: Start, logs: Logs, default: Callable[[LogModel], int]) -> dict[str, int]:
    found = {}
    for name, model in logs.models.items():
        revision = default(model) if start.name == "by_default" else start.revision(model)
        assert revision is not None
        found[name] = max(revision, model.first)
    return found


def named(*parts: Any) -> str:
    return "-".join(part if isinstance(part, str) else part.name for part in parts)


_QUICK = {
    "by_default-by_default-whole-one_log",
    "a_number-a_time-whole-one_log",
    "a_time-a_number-loss_is_skipped-a_pattern",
    "a_number-latest-loss_is_refused-one_log",
    "by_default-processing_time-whole-one_log",
    "latest-once-whole-a_pattern",
    "earliest-available_now_by_bytes-whole-a_pattern",
    "a_number-available_now_by_records-loss_is_skipped-one_log",
    "a_number-available_now-loss_is_refused-a_pattern",
    "a_time_to_come-available_now_and_a_minimum-whole-one_log",
    "before_the_latest-processing_time_by_records-whole-one_log",
    "minus_two_is_earliest-processing_time_and_a_delay-whole-one_log",
}


def cases(*axes: Any) -> list[Any]:
    found = [(named(*parts), parts) for parts in itertools.product(*axes)]
    return [pytest.param(*parts, id=name, marks=[] if name in _QUICK else pytest.mark.slow) for name, parts in found]


@pytest.mark.parametrize(("start", "end", "loss", "subject"), cases(STARTS, ENDS, LOSSES, SUBJECTS))
def test_a_batch_reads_from_its_start_to_its_end(
    start: Start, end: End, loss: str, subject: str, spark: SparkSession, make_log: Callable[[], Any]
) -> None:
    logs = Logs(make_log, subject, loss)
    options = logs.options(**start.options(logs.models), **end.options(logs.models))
    frame = spark.read.format("ledger").options(**options)
    if loss == SKIPPED:
        frame = frame.option("failOnDataLoss", "false")
    if loss == REFUSED and (is_lost(start, logs) or is_lost(end, logs)):
        first = 5 if is_lost(start, logs) else 9
        with pytest.raises(Exception, match=f"records {first} to 31 have been trimmed"):
            frame.load().collect()
        return
    starts = starts_of(start, logs, lambda model: model.first)
    ends = {name: end.revision(model) for name, model in logs.models.items()}
    found = sorted((row.log, row.revision) for row in frame.load().select("log", "revision").collect())
    assert found == logs.rows(starts, ends)


@pytest.mark.parametrize(("start", "trigger", "loss", "subject"), cases(STARTS, TRIGGERS, LOSSES, SUBJECTS))
def test_a_stream_reads_on_from_its_start_and_over_restarts(
    start: Start,
    trigger: Trigger,
    loss: str,
    subject: str,
    spark: SparkSession,
    make_log: Callable[[], Any],
    tmp_path: Path,
) -> None:
    logs = Logs(make_log, subject, loss)
    options = logs.options(**start.options(logs.models), **trigger.options)
    if loss == SKIPPED:
        options["failOnDataLoss"] = "false"
    batches = Batches(spark, options, trigger.trigger, tmp_path)
    if loss == REFUSED and is_lost(start, logs):
        with pytest.raises(Exception, match="records 5 to 31 have been trimmed"):
            batches.run_until(lambda: False)
        return
    starts = starts_of(start, logs, lambda model: model.end)
    expected = logs.rows(starts, logs.ends)
    batches.run_until(lambda: batches.rows == expected)
    assert batches.rows == expected
    _check_sizes(trigger, batches, len(logs.models))
    if loss == SKIPPED and is_lost(start, logs):
        (lost,) = batches.losses()
        assert (lost["from"], lost["to"], lost["count"]) == (5, 31, 27)

    logs.grow()
    starts |= {name: model.first for name, model in logs.models.items() if name not in starts}
    expected = logs.rows(starts, logs.ends)
    batches.run_until(lambda: batches.rows == expected)
    if trigger.name == "once" and subject == PATTERN:
        # Unlike in Kafka's source a new log is written into the offsets by one micro-batch and read by the next.
        batches.run_until(lambda: batches.rows == expected)
    assert batches.rows == expected, "everything once, with what came meanwhile"


def _check_sizes(trigger: Trigger, batches: Batches, log_count: int) -> None:
    sizes = [len(batch) for batch in batches.batches if batch]
    if trigger.name == "once":
        assert len(sizes) <= 1, "all in one, whatever the limit"
    if "maxOffsetsPerTrigger" in trigger.options and trigger.name != "once":
        # Rounded up to whole entries of ten records at most, in each log.
        assert all(size < 15 + 10 * log_count for size in sizes)
        assert all(size >= 15 for size in sizes[:-1]) or log_count > 1
    if "maxBytesPerTrigger" in trigger.options and sum(sizes) > 30:
        assert len(sizes) > 1


@pytest.mark.parametrize("subject", [ONE, pytest.param(PATTERN, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", [pytest.param(REFUSED, marks=pytest.mark.slow), SKIPPED])
def test_what_is_gone_when_a_stream_comes_back_ends_it_or_is_told(
    subject: str, loss: str, spark: SparkSession, make_log: Callable[[], Any], tmp_path: Path
) -> None:
    logs = Logs(make_log, subject, WHOLE)
    options = logs.options(startingOffsets="earliest", failOnDataLoss=str(loss == REFUSED).lower())
    batches = Batches(spark, options, {"availableNow": True}, tmp_path)
    batches.run_until(lambda: False)
    model = next(iter(logs.models.values()))
    first_lost = model.end
    model.log.fill(2)
    model.log.roll()
    model.log.fill(1, records_per_entry=4)
    model.log.trim(len(model.log.ledger_ids) - 1)
    kept = model.end - 4
    if loss == REFUSED:
        with pytest.raises(Exception, match=f"records {first_lost} to {kept - 1} have been trimmed"):
            batches.run_until(lambda: False)
        return
    batches.run_until(lambda: False)
    seen = [revision for name, revision in batches.rows if name == model.log.name]
    assert seen == [*range(1, first_lost), *range(kept, model.end)]
    (lost,) = batches.losses()
    assert lost == {"log": model.log.name, "from": first_lost, "to": kept - 1, "count": kept - first_lost}

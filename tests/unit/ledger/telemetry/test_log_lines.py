"""Log lines for a collector: fields of the JSON log, the trace that they were written in, and never lines of lines."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Callable, Iterator

import pytest

from ledger.errors import UsageError
from ledger.logs import JsonLines
from ledger.telemetry import TelemetrySettings, TraceContext, begin_span, start_telemetry, stop_telemetry, use_context
from ledger.telemetry.start import start_from_environment, telemetry_counts
from tests.integration.otlp_receiver import OtlpReceiver, ReceivedLine, otlp_receiver

LOGGER = logging.getLogger("tests.told_lines")
_WAIT_S = 60.0


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    level = LOGGER.level
    LOGGER.setLevel(logging.DEBUG)
    with otlp_receiver() as running:
        yield running
        stop_telemetry()
    LOGGER.setLevel(level)


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Lines of the same logger as JSON."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    LOGGER.addHandler(handler)
    yield stream
    LOGGER.removeHandler(handler)


def _start(url: str) -> None:
    start_telemetry(TelemetrySettings(otlp_url=url, trace_rate=1.0, otlp_logs=True), "shop", "one")


def _until(is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + _WAIT_S
    while not is_so():
        assert time.monotonic() < ends, telemetry_counts()
        time.sleep(0.02)


def _mine(receiver: OtlpReceiver) -> list[ReceivedLine]:
    return [line for line in receiver.lines if line.logger == LOGGER.name]


def test_a_collector_gets_what_the_json_log_says(receiver: OtlpReceiver, written: io.StringIO) -> None:
    _start(receiver.url)
    LOGGER.warning(
        "bookie %s\x1b is given up", "b1",
        extra={"bookie": "b1", "ledger": 7, "failed": {"0": "x"}, "token": "abc", "reason": None},
    )  # fmt: skip
    try:
        raise ValueError("broke")
    except ValueError:
        LOGGER.exception("it failed: password=hunter22")
    LOGGER.debug("small")
    stop_telemetry()
    lines = _mine(receiver)
    told = [json.loads(line) for line in written.getvalue().splitlines()]
    for line, said in zip(lines, told, strict=True):
        assert (line.service, line.instance) == ("shop", "one")
        assert (line.message, line.level, line.logger) == (said["message"], said["level"], said["logger"])
        beside = {f"rsm.{name}": value for name, value in said.items() if value is not None}
        plain = {name: json.dumps(value, separators=(",", ":")) if isinstance(value, dict) else value
                 for name, value in beside.items()}  # fmt: skip
        of_line = {"rsm.time", "rsm.level", "rsm.logger", "rsm.message"}
        assert line.attributes == {name: value for name, value in plain.items() if name not in of_line}
    assert [line.severity for line in lines] == [13, 17, 5]
    assert lines[0].attributes == {"rsm.bookie": "b1", "rsm.ledger": 7, "rsm.failed": '{"0":"x"}', "rsm.token": "***"}
    assert lines[1].message == "it failed: password=***"
    assert "ValueError: broke" in lines[1].attributes["rsm.trace"]
    assert not any(line.trace_id for line in lines)


def test_a_line_names_the_span_in_which_it_was_written(receiver: OtlpReceiver, written: io.StringIO) -> None:
    _start(receiver.url)
    span = begin_span("order")
    assert span is not None
    with use_context(span.context):
        LOGGER.info("inside", extra={"log": "orders"})
    with use_context(TraceContext(7, 8, is_sampled=False)):
        LOGGER.info("in a trace that is not told")
    LOGGER.info("outside")
    span.end()
    stop_telemetry()
    with use_context(span.context):
        LOGGER.info("nothing is traced any more")
    ids = (f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}")
    told = [json.loads(line) for line in written.getvalue().splitlines()]
    assert (told[0]["trace_id"], told[0]["span_id"], told[0]["log"]) == (*ids, "orders")
    assert not any("trace_id" in line or "span_id" in line for line in told[1:])
    assert [(line.message, line.trace_id, line.span_id) for line in _mine(receiver)] == [
        ("inside", *ids), ("in a trace that is not told", "", ""), ("outside", "", ""),
    ]  # fmt: skip
    assert _mine(receiver)[0].attributes == {"rsm.log": "orders"}


def test_what_the_exporter_says_itself_is_not_sent(receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.status = 503
    _start(receiver.url)
    LOGGER.info("lost")
    _until(lambda: telemetry_counts()["lines"]["failed"] == 1)
    receiver.status = 200
    LOGGER.info("found")
    _until(lambda: bool(_mine(receiver)))
    stop_telemetry()
    said = [record.getMessage() for record in caplog.records if record.name == "ledger.telemetry.exporter"]
    assert ["log lines" in line for line in said] == [True, True]
    assert [line.message for line in receiver.lines if line.logger.startswith("ledger.telemetry")] == []


def test_lines_that_nobody_takes_are_bounded_by_their_size(receiver: OtlpReceiver) -> None:
    receiver.hangs.set()
    _start(receiver.url)
    began = time.thread_time()
    for number in range(2_000):
        LOGGER.info("%d %s", number, "x " * 4_000)
    assert time.thread_time() - began < 30
    counts = telemetry_counts()["lines"]
    assert counts["dropped"] > 0
    assert counts["dropped"] < 2_000
    began = time.monotonic()
    stop_telemetry()
    assert time.monotonic() - began < _WAIT_S


def test_spans_arrive_where_lines_do_not(receiver: OtlpReceiver) -> None:
    """A collector that takes no log lines, as most that are for traces alone, gets all spans."""
    with otlp_receiver() as other:
        other.status = 404
        _start(other.url)
        LOGGER.info("nobody wants it")
        _until(lambda: telemetry_counts()["lines"]["failed"] == 1)
        other.status = 200
        for _ in range(3):
            span = begin_span("x")
            assert span is not None
            span.end()
        _until(lambda: telemetry_counts()["spans"]["sent"] == 3)
        assert len(other.spans) == 3


def test_without_the_switch_no_line_is_sent(receiver: OtlpReceiver) -> None:
    start_telemetry(TelemetrySettings(otlp_url=receiver.url, trace_rate=1.0), "shop")
    LOGGER.warning("mine alone")
    stop_telemetry()
    assert not receiver.lines
    assert not receiver.points


def test_what_is_told_needs_an_address_and_variables_that_mean_something() -> None:
    for settings in (TelemetrySettings(otlp_logs=True), TelemetrySettings(otlp_metrics_s=5.0)):
        with pytest.raises(UsageError, match="--otlp-url"):
            start_telemetry(settings, "shop")
    for name, value in (("RSM_OTLP_LOGS", "maybe"), ("RSM_OTLP_METRICS_S", "-1"), ("RSM_OTLP_METRICS_S", "often")):
        with pytest.raises(UsageError, match=f"{name}={value}"):
            start_from_environment("rsm", {"RSM_OTLP_URL": "http://h", name: value})


def test_variables_say_the_same_as_options(receiver: OtlpReceiver) -> None:
    start_from_environment("rsm", {"RSM_OTLP_URL": receiver.url, "RSM_OTLP_LOGS": "true", "RSM_OTLP_METRICS_S": "0.5"})
    assert set(telemetry_counts()) == {"spans", "lines", "pages"}
    LOGGER.error("by a command")
    stop_telemetry()
    assert [(line.service, line.message) for line in _mine(receiver)] == [("rsm", "by a command")]

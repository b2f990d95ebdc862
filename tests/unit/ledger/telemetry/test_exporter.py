"""What a good collector gets, and what a bad one costs: spans that are counted, and nobody's time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.errors import UsageError
from ledger.telemetry import SpanKind, TelemetrySettings, begin_span, start_telemetry, stop_telemetry
from ledger.telemetry.otlp_collector import OtlpCollector
from ledger.telemetry.start import start_from_environment, telemetry_counts
from tests.integration.otlp_receiver import OtlpReceiver, otlp_receiver

_WAIT_S = 60.0


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        yield running
        stop_telemetry()


def _spans(count: int) -> None:
    for number in range(count):
        span = begin_span("x", SpanKind.INTERNAL, entry=number)
        assert span is not None
        span.end()


def _counts(kind: str = "spans") -> dict[str, int]:
    return telemetry_counts()[kind]


def _until(is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + _WAIT_S
    while not is_so():
        assert time.monotonic() < ends, _counts()
        time.sleep(0.02)


def test_a_collector_gets_each_span_once_with_what_it_says(receiver: OtlpReceiver) -> None:
    start_telemetry(
        TelemetrySettings(otlp_url=f"{receiver.url}/", trace_rate=1.0), "shop", "one",
        {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=Bearer%20abc, x-scope = a"},
    )  # fmt: skip
    order = begin_span("order", SpanKind.SERVER, log="ü\udcff", count=1 << 70, free_bytes=0.5, is_it=True)
    assert order is not None
    order.event("stored", bookie="b1")
    order.link(order.context)
    order.end("it failed")
    _spans(2_000)
    stop_telemetry()
    assert len(receiver.spans) == 2_001
    assert len({span.span_id for span in receiver.spans}) == 2_001
    (found,) = [span for span in receiver.spans if span.name == "order"]
    assert (found.service, found.instance, found.kind, found.error) == ("shop", "one", 2, "it failed")
    assert found.attributes == {
        "rsm.log": "ü\\udcff",
        "rsm.count": str(1 << 70),
        "rsm.free_bytes": 0.5,
        "rsm.is_it": True,
    }
    assert found.events == [("stored", {"rsm.bookie": "b1"})]
    assert found.links == [found.trace_id]
    assert (receiver.headers["Authorization"], receiver.headers["x-scope"]) == ("Bearer abc", "a")


def test_the_program_of_the_document_sends_spans(receiver: OtlpReceiver) -> None:
    text = (Path(__file__).parents[4] / "docs" / "telemetry.md").read_text(encoding="utf-8")
    program = text.split("```python\n")[1].split("```")[0]
    exec(program.replace("http://127.0.0.1:4318", receiver.url).replace("trace_rate=0.1", "trace_rate=1.0"), {})  # noqa: S102
    _spans(1)
    stop_telemetry()
    assert [span.service for span in receiver.spans] == ["shop"]


def test_spans_that_a_collector_does_not_take_are_counted(receiver: OtlpReceiver) -> None:
    receiver.rejects = 2
    start_telemetry(TelemetrySettings(otlp_url=receiver.url, trace_rate=1.0), "shop")
    _spans(5)
    _until(lambda: _counts()["sent"] == 3)
    assert _counts() == {"sent": 3, "dropped": 0, "failed": 2}


@pytest.mark.parametrize("status", [400, 429, 503])
def test_a_collector_that_fails_loses_a_batch_and_is_left_alone_for_a_while(
    receiver: OtlpReceiver, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.status = status
    start_telemetry(TelemetrySettings(otlp_url=receiver.url, trace_rate=1.0, queue_max=100), "shop")
    _spans(5)
    _until(lambda: _counts()["failed"] == 5)
    _spans(300)
    assert _counts()["dropped"] == 200
    assert receiver.request_count == 1
    receiver.status = 200
    _until(lambda: _counts()["sent"] == 100)
    lines = [record.getMessage() for record in caplog.records if record.name == "ledger.telemetry.exporter"]
    assert [f"it answers {status}" in line for line in lines] == [True, False]
    assert lines[1] == "the collector takes spans again; 200 were dropped so far"


def test_a_collector_that_is_not_there_or_hangs_costs_nobody_time(receiver: OtlpReceiver) -> None:
    with otlp_receiver() as gone:
        pass
    receiver.hangs.set()
    for url in (gone.url, receiver.url):
        start_telemetry(TelemetrySettings(otlp_url=url, trace_rate=1.0, queue_max=1_000), "shop")
        began = time.thread_time()
        _spans(20_000)
        assert time.thread_time() - began < 5
        _until(lambda: _counts()["dropped"] >= 15_000)
        began = time.monotonic()
        stop_telemetry()
        assert time.monotonic() - began < _WAIT_S
    assert not receiver.spans


def test_a_second_start_takes_the_place_of_the_first(receiver: OtlpReceiver) -> None:
    start_from_environment("rsm", {"RSM_OTLP_URL": receiver.url, "RSM_TRACE_RATE": "1"})
    _spans(1)
    start_telemetry(TelemetrySettings(otlp_url=receiver.url, trace_rate=1.0), "shop")
    _spans(1)
    stop_telemetry()
    assert sorted(span.service for span in receiver.spans) == ["rsm", "shop"]
    assert begin_span("x") is None
    assert telemetry_counts() == {}


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:4318", "ftp://127.0.0.1", "http://", "http://a:b", "http://ann:pw@127.0.0.1:4318", "http://h/?a=b",
        "http://[::1",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="--otlp-url"):
        OtlpCollector(url, {}, 1.0)


def test_variables_that_mean_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="OTEL_EXPORTER_OTLP_HEADERS"):
        OtlpCollector("http://h", {"OTEL_EXPORTER_OTLP_HEADERS": "a"}, 1.0)
    with pytest.raises(UsageError, match="OTEL_EXPORTER_OTLP_HEADERS"):
        OtlpCollector("http://h", {"OTEL_EXPORTER_OTLP_HEADERS": "a=b%0d%0ac: d"}, 1.0)
    with pytest.raises(UsageError, match="OTEL_EXPORTER_OTLP_CERTIFICATE"):
        OtlpCollector("https://h", {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/nothing"}, 1.0)
    with pytest.raises(UsageError, match="RSM_TRACE_RATE=2"):
        start_from_environment("rsm", {"RSM_OTLP_URL": "http://h", "RSM_TRACE_RATE": "2"})
    start_from_environment("rsm", {})

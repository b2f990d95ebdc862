"""Metrics that a process hands over each so many seconds, whatever becomes of one page or of the collector."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledger.http.metrics import MetricsPage
from ledger.http.metrics_push import push_metrics
from ledger.http.routes import ProbePage
from ledger.telemetry import TelemetrySettings, start_telemetry, stop_telemetry
from ledger.telemetry.start import telemetry_counts
from tests.integration.otlp_receiver import OtlpReceiver, otlp_receiver

pytestmark = pytest.mark.asyncio


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with otlp_receiver() as running:
        start_telemetry(TelemetrySettings(otlp_url=running.url, trace_rate=0.0, otlp_metrics_s=0.05), "shop", "one")
        yield running
        stop_telemetry()


class Looks:
    """A page that counts how often it was looked at, and fails each third time."""

    def __init__(self) -> None:
        self.count = 0

    def page(self) -> ProbePage:
        self.count += 1
        if self.count % 3 == 0:
            raise OSError("the disk does not answer")
        page = MetricsPage()
        page.counter("looks_total", "Looks.", self.count)
        return page.page()

    async def soon(self) -> ProbePage:
        await asyncio.sleep(0)
        return self.page()


async def test_pages_arrive_again_and_again_until_nobody_pushes_them(
    receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    looks, others = Looks(), Looks()
    tasks = [push_metrics(looks.page), push_metrics(others.soon)]
    await asyncio.to_thread(receiver.until_points, lambda points: {1.0, 2.0, 4.0, 5.0} <= {p.value for p in points})
    for task in tasks:
        assert task is not None
        task.cancel()
    await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
    seen = (looks.count, others.count)
    assert {(one.service, one.instance, one.name, one.kind) for one in receiver.points} == {
        ("shop", "one", "looks_total", "sum")
    }
    starts = {one.start_ns for one in receiver.points}
    assert len(starts) == 1
    assert all(one.time_ns > one.start_ns > 0 for one in receiver.points)
    assert sum("cannot be told" in record.getMessage() for record in caplog.records) >= 2
    assert (looks.count, others.count) == seen


async def test_a_collector_that_is_away_costs_points(receiver: OtlpReceiver) -> None:
    receiver.status = 503
    looks = Looks()
    task = push_metrics(looks.page)
    assert task is not None
    async with asyncio.timeout(60):
        while not telemetry_counts()["pages"]["failed"]:
            await asyncio.sleep(0.02)
    receiver.status = 200
    await asyncio.to_thread(receiver.until_points, lambda points: points)
    task.cancel()


async def test_nothing_is_pushed_where_nobody_asked_for_it(receiver: OtlpReceiver) -> None:
    start_telemetry(TelemetrySettings(otlp_url=receiver.url), "shop")
    assert push_metrics(Looks().page) is None
    stop_telemetry()
    assert push_metrics(Looks().page) is None

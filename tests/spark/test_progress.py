from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import SessionSetupError
from connectors.source.listener import ProgressServer, serve_progress
from connectors.source.traced_batches import BatchTrace
from ledger.telemetry import stop_telemetry
from tests.integration.otlp_receiver import ReceivedPoint, otlp_receiver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def scrape(server: ProgressServer) -> dict[str, float]:
    with urllib.request.urlopen(server.url, timeout=60) as answer:  # noqa: S310 - our own http:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[:1] != "#")}


def test_a_stream_tells_how_far_it_is_behind_in_its_progress_and_to_prometheus(
    spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    log.fill(30)
    log.roll()
    log.fill(10)
    options = log.options(startingOffsets="earliest", maxOffsetsPerTrigger="100")
    with serve_progress(spark) as server:
        query = (
            spark.readStream.format("ledger")
            .options(**options)
            .load()
            .writeStream.format("noop")
            .queryName(log.name)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        query_labels = f'query="{log.name}"'
        labels = f'{{{query_labels},source="0"}}'
        deadline = time.monotonic() + 60
        while (told := scrape(server)).get(f"rsm_stream_active{{{query_labels}}}") != 0:
            assert time.monotonic() < deadline, told
            time.sleep(0.1)
    batches = [p for p in query.recentProgress if p["numInputRows"]]
    latest = [json.loads(p["sources"][0]["latestOffset"]) for p in batches]
    assert [one["behindRecords"] for one in latest] == [log.revision - 101 - 100 * done for done in range(3)] + [0]
    assert [one["behindBytes"] > 0 for one in latest] == [True, True, True, False]
    assert latest[0]["behindMs"] > latest[1]["behindMs"] >= latest[2]["behindMs"] > latest[3]["behindMs"] == 0
    assert told[f"rsm_stream_rows_total{labels}"] == log.revision
    assert told[f"rsm_stream_behind_records{labels}"] == 0
    assert told[f"rsm_stream_lost_records{labels}"] == 0
    assert told[f"rsm_stream_batches_total{{{query_labels}}}"] == 4
    assert told[f"rsm_stream_batch_seconds_sum{{{query_labels}}}"] > 0


def test_a_port_that_is_taken_is_a_clear_error(spark: SparkSession) -> None:
    with serve_progress(spark) as server:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(SessionSetupError, match=f"127.0.0.1:{port}"):
            serve_progress(spark, port=port)


def _drained(spark: SparkSession, log: Any, folder: Path) -> None:
    query = (
        spark.readStream.format("ledger").options(**log.options(startingOffsets="earliest")).load()
        .writeStream.format("noop").queryName(log.name).option("checkpointLocation", str(folder))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)


def test_a_collector_is_told_of_streams_what_prometheus_is_told_when_it_asks(
    spark: SparkSession, log: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.fill(30)
    with otlp_receiver() as receiver:
        monkeypatch.setenv("RSM_OTLP_METRICS_S", "0.2")
        with pytest.raises(SessionSetupError, match="RSM_OTLP_URL"):
            serve_progress(spark, port=None)
        # A driver that tells spans alone so far, as a query with the option `otlpUrl` has it.
        assert BatchTrace(receiver.url, 0.0).tracer() is not None
        monkeypatch.setenv("RSM_OTLP_URL", receiver.url)
        try:
            with serve_progress(spark, port=None) as pushed, serve_progress(spark) as server:
                assert pushed.url == ""
                _drained(spark, log, tmp_path)
                # What another query wants to have told does not end it.
                assert BatchTrace(receiver.url, 0.5).tracer() is not None

                def latest(points: list[ReceivedPoint]) -> dict[str, Any]:
                    ours = [one for one in points if one.labels.get("query") == log.name]
                    return {one.name: (one.service, one.kind, one.labels.get("source"), one.value) for one in ours}

                def has_ended(points: list[ReceivedPoint]) -> dict[str, Any]:
                    found = latest(points)
                    return found if found.get("rsm_stream_active", ("", "", "", 1.0))[3] == 0.0 else {}

                told = receiver.until_points(has_ended)
                asked = scrape(server)
        finally:
            stop_telemetry()
        assert told["rsm_stream_rows_total"] == ("rsm-spark", "sum", "0", log.revision)
        assert told["rsm_stream_behind_records"] == ("rsm-spark", "gauge", "0", 0.0)
        assert told["rsm_stream_batch_seconds"][1] == "histogram"
        of_query = {name.split("{")[0] for name in asked if f'query="{log.name}"' in name}
        parts = {"rsm_stream_batch_seconds_bucket", "rsm_stream_batch_seconds_sum", "rsm_stream_batch_seconds_count"}
        assert set(told) == of_query - parts | {"rsm_stream_batch_seconds"}
        assert asked['rsm_otlp_metric_pages_total{outcome="sent"}'] > 0

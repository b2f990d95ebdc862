from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.errors import SessionSetupError
from connectors.source.listener import ProgressServer, serve_progress

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

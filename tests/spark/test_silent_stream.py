"""The alert of a stream that runs and tells nothing: one whose sink hangs, watched by a real Prometheus."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.prometheus_process import PROMETHEUS, PrometheusProcess, until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.skipif(PROMETHEUS is None, reason="no Prometheus on the path: apt-get install prometheus")
CAUSED_BY_A_SINK = frozenset({"RsmStreamSilent"})
"""The alert that fires here because of what it is for."""


def test_a_stream_whose_sink_hangs_is_silent_and_one_that_goes_on_is_not(spark: SparkSession, tmp_path: Path) -> None:
    from connectors.source.listener import serve_progress

    is_open = threading.Event()
    is_open.set()

    def write(_frame: DataFrame, _batch_id: int) -> None:
        is_open.wait()

    with serve_progress(spark) as server:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        prometheus = PrometheusProcess(tmp_path, {"spark": port})
        stream = spark.readStream.format("rate").load().writeStream.foreachBatch(write)
        query = stream.queryName("hangs").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            until(lambda: prometheus.rows('rsm_stream_batches_total{query="hangs"} > 2'), "no batch is told of")
            assert not prometheus.alerts() & CAUSED_BY_A_SINK
            is_open.clear()
            prometheus.until_fire(*CAUSED_BY_A_SINK, why="a sink that hangs")
            assert prometheus.rows('rsm_stream_active{query="hangs"} == 1')
            is_open.set()
            prometheus.until_quiet(*CAUSED_BY_A_SINK)
        finally:
            is_open.set()
            query.stop()
            prometheus.close()
    assert query.exception() is None

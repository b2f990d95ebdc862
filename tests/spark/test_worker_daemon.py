"""Spark's Python workers are forked from a process that has loaded what they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from connectors.worker_daemon import PRELOADED
from tests.spark.conftest import WrittenLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PRELOAD = """
import json, pathlib, sys
from connectors.worker_daemon import preload
preload()
threads = sorted(one.joinpath("comm").read_text().strip() for one in pathlib.Path("/proc/self/task").iterdir())
print(json.dumps({"threads": threads, "modules": sorted(sys.modules)}))
"""


def _look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import gc
    import sys

    for _ in batches:
        spec = sys.modules["__main__"].__spec__
        told = [spec.name if spec else "", str(gc.get_freeze_count() > 0)]
        yield pa.record_batch([pa.array(told), pa.array(["main", "frozen"])], ["value", "name"])


def test_workers_of_our_session_come_from_it_and_read_a_log(spark: SparkSession, log: WrittenLog) -> None:
    log.fill(3)
    frame = spark.range(1).coalesce(1).mapInArrow(_look, "value string, name string")
    assert {row.name: row.value for row in frame.collect()} == {"main": "connectors.worker_daemon", "frozen": "True"}
    rows = spark.read.format("ledger").options(**log.options(rows="records")).load()
    assert rows.count() == log.revision


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_it_loads_what_it_names_without_a_thread_and_without_what_no_first_row_needs() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # As Spark sets it.
    done = subprocess.run([sys.executable, "-c", _PRELOAD], env=environment, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert set(PRELOADED) <= set(told["modules"])
    threads = [name for name in told["threads"] if name != "jemalloc_bg_thd"]  # Arrow's, which knows of forks.
    assert len(threads) == 1, "a fork takes no thread along"
    assert {"pandas", "grpc", "kazoo.client", "deltalake"}.isdisjoint(told["modules"])

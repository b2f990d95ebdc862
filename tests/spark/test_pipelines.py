"""Spark's declarative pipelines: a streaming table of a log, and a flow of its rows into a map."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from tests.spark import test_sink
from tests.spark.children import CHILD_S, child_environment

target = test_sink.target
_ROOT = Path(__file__).resolve().parents[2]
_RUN = Path(sysconfig.get_path("purelib")) / "pyspark" / "bin" / "spark-pipelines"
_SPEC = """
name: orders
storage: {folder}/storage
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.session.timeZone: UTC
  spark.sql.shuffle.partitions: "2"
"""
_PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def orders():
    rows = spark.readStream.format("ledger").options(**{source!r}, startingOffsets="earliest").load()
    return rows.where("_fold = 'upsert'").selectExpr("cast(key AS string) key", "value", "_revision")


dp.create_sink("totals", "ledger", {sink!r})


@dp.append_flow(target="totals")
def newest():
    return spark.readStream.table("orders").selectExpr("key", "cast(_revision AS string) value")
"""


@pytest.mark.slow
@pytest.mark.timeout(2 * CHILD_S)
def test_a_pipeline_has_a_table_of_a_log_and_writes_into_a_map(log: Any, target: Any, tmp_path: Path) -> None:
    (tmp_path / "transformations").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(_SPEC.format(folder=tmp_path.as_uri()))
    source, sink = log.options(rows="table"), target.options(writer="pipeline")
    (tmp_path / "transformations" / "orders.py").write_text(_PIPELINE.format(source=source, sink=sink))
    log.fill(4)
    done = subprocess.run(
        [_RUN, "run", "--spec", str(tmp_path / "spark-pipeline.yml")],
        cwd=tmp_path,
        env=child_environment(
            PYSPARK_PYTHON=sys.executable, PYTHONPATH=str(_ROOT), PATH=os.environ["PATH"], SPARK_MASTER="local[2]"
        ),
        capture_output=True,
        text=True,
        timeout=CHILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    table = ds.dataset(tmp_path / "spark-warehouse" / "orders", format="parquet", exclude_invalid_files=True)
    found = table.to_table().to_pylist()
    assert sorted(row["_revision"] for row in found) == list(range(2, log.revision + 1)), "each record once"
    newest = {key: str(revision).encode() for key, (_, revision) in log.state.items()}
    assert {key: target.value(key) for key in newest} == newest

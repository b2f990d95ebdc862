"""A stream in many micro-batches, written to Delta by Spark, holds what one batch read of the log holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from chispa import assert_df_equality

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ["log", "ledger_id", "entry_id", "revision", "leader_epoch", "logged_at", "type", "name", "table_name"]
COLUMNS += ["fold", "key", "row", "entry_hash"]


def test_a_stream_in_small_micro_batches_equals_one_batch(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    log.fill(30)
    log.roll()
    log.fill(30)
    place = str(tmp_path / "table")
    stream = spark.readStream.format("ledger").options(**log.options(), maxOffsetsPerTrigger="120")
    frame = stream.option("startingOffsets", "earliest").load().select(*COLUMNS)
    query = (
        frame.writeStream.format("delta")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(place)
    )
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    assert len(batches) >= 3
    batch = spark.read.format("ledger").options(**log.options()).load().select(*COLUMNS)
    assert batch.count() == log.revision
    assert_df_equality(spark.read.format("delta").load(place), batch, ignore_row_order=True, ignore_nullable=True)

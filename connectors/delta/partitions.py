"""Tables of a partitioned log's partitions, as one frame: each partition is followed by a table of its own."""

from __future__ import annotations

from functools import reduce

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from connectors.errors import ForeignTableError

PARTITION_COLUMN = "_partition"
"""Number of the partition that a row is of."""


def partitioned_table(spark: SparkSession, place: str, *, table: str = "") -> DataFrame:
    """Return the rows of all partitions, each with its `_partition`.

    Args:
        spark: A classic session that reads Delta.
        place: Folder of the follower, its `--table` or `--tables`.
        table: With `--tables`, which.

    Raises:
        ForeignTableError: There is no such table.

    """
    frames: list[DataFrame] = []
    while DeltaTable.isDeltaTable(spark, path := f"{place.rstrip('/')}/p{len(frames)}{'/' if table else ''}{table}"):
        rows = spark.read.format("delta").load(path)
        frames.append(rows.withColumn(PARTITION_COLUMN, F.lit(len(frames))))
    if not frames:
        raise ForeignTableError(f"{path} is no Delta table: name the folder of a follower of a partitioned log")
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)

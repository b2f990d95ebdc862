"""Typed tables of a state as Spark reads them: any version by its revision, and what a commit says of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from chispa import assert_df_equality

from rsm_spark.snapshots.tables.naming import tables_place
from tests.unit.rsm_spark.snapshots.tables.test_lake_tables import note, order, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_reads_the_version_of_a_revision_and_its_history(spark: SparkSession, tmp_path: Path) -> None:
    place = tables_place(str(tmp_path / "lake" / "shop"))
    states = {
        9: [order(1, "tea", "1.50", 4), note("a", b"x", 6)],
        20: [order(1, "tea", "1.50", 4), order(2, "jam", "2.00", 15), note("a", b"x", 6)],
        30: [order(2, "rum", "9.00", 25), note("a", b"x", 6)],
    }
    for revision, rows in states.items():
        write(place, revision, rows)
    expected = {
        9: [(1, "tea", "1.50", 4)],
        20: [(1, "tea", "1.50", 4), (2, "jam", "2.00", 15)],
        30: [(2, "rum", "9.00", 25)],
    }
    revisions = spark.read.format("delta").load(f"{place}/_revisions")
    for asked, revision in ((19, 9), (20, 20), (99, 30)):
        at = revisions.where(f"table = 'orders' AND revision <= {asked}").orderBy("revision", ascending=False).first()
        assert at is not None
        assert (at.revision, at.prefix_hash) == (revision, f"{revision:064x}")
        found = spark.read.format("delta").option("versionAsOf", at.version).load(f"{place}/{at.path}")
        wanted = spark.createDataFrame(expected[revision], "id long, item string, price string, _revision long")
        wanted = wanted.selectExpr("id", "item", "CAST(price AS DECIMAL(8,2)) AS price", "_revision")
        assert_df_equality(found, wanted, ignore_row_order=True, ignore_nullable=True)
    history = spark.sql(f"DESCRIBE HISTORY delta.`{place}/orders`").select("version", "userMetadata").collect()
    told = {row.version: json.loads(row.userMetadata) for row in history}
    assert {version: (one["log"], one["revision"], one["prefix_hash"]) for version, one in told.items()} == {
        number: ("shop", revision, f"{revision:064x}") for number, revision in enumerate(states)
    }
    assert [row.version for row in spark.sql(f"DESCRIBE HISTORY delta.`{place}/notes`").collect()] == [0]

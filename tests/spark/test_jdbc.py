"""Spark's own `format("jdbc")`, with pgjdbc, on SQL tables: rows read in partitions, rows appended."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from ledger.dev import DevCluster
from tests.integration.store_processes import stores
from tests.integration.test_pg_port import place, serve, until_led

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POM = Path(__file__).parent.parent / "compat" / "java" / "pgjdbc" / "pom.xml"
_CLASS = "org.postgresql.Driver"
_ROWS = 3_000
_TABLE = (
    "CREATE TABLE sale (id BIGINT PRIMARY KEY, name VARCHAR(40) NOT NULL, price NUMERIC(10, 2), rate REAL, "
    "sold BOOLEAN, day DATE, at TIMESTAMP)"
)


@pytest.fixture(scope="module")
def driver(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give the session's JVM pgjdbc, as `spark.jars` would have at its start."""
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("there is no Maven")
    found = tmp_path_factory.mktemp("pgjdbc") / "class-path"
    got = subprocess.run(
        [maven, "-q", "-B", "-f", _POM, "dependency:build-classpath", f"-Dmdep.outputFile={found}"],
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    if got.returncode != 0:
        pytest.skip(f"Maven cannot get pgjdbc: {got.stdout[-300:]}")
    for jar in found.read_text().strip().split(":"):
        if "/org/postgresql/" in jar:
            spark.sql(f"ADD JAR '{jar}'")


@pytest.fixture
def at(cluster: DevCluster, unique_name: str, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Where a follower of two replicas is found, with a table that has rows."""
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        found = [place(serve(replicas, name)) for name in "ab"][1]

        def fill() -> None:
            with psycopg.connect(**found, user="ann") as connection:
                connection.execute("DROP TABLE IF EXISTS sale")
                connection.execute(_TABLE)
                connection.execute(
                    "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT 3000) INSERT INTO sale "
                    "SELECT i, 'n' || i, i / 4.0, i / 2.0, i % 2, '2026-01-02', '2026-01-02 03:04:05.678' FROM n"
                )

        until_led(fill)
        yield found


@pytest.mark.usefixtures("driver")
def test_rows_are_read_in_partitions_and_appended(spark: SparkSession, at: dict[str, Any]) -> None:
    options = {
        "url": f"jdbc:postgresql://{at['host']}:{at['port']}/{at['dbname']}", "user": "ann", "driver": _CLASS,
    }  # fmt: skip
    partitions = {"partitionColumn": "id", "lowerBound": "0", "upperBound": str(_ROWS), "numPartitions": "3"}
    reader = spark.read.format("jdbc").options(**options, **partitions, dbtable="sale", fetchsize="100")
    read = reader.option("customSchema", "price DECIMAL(10, 2)").load()
    assert read.dtypes == [
        ("id", "bigint"), ("name", "string"), ("price", "decimal(10,2)"), ("rate", "double"), ("sold", "boolean"),
        ("day", "date"), ("at", "timestamp"),
    ]  # fmt: skip
    assert read.rdd.getNumPartitions() == 3
    rows = read.orderBy("id").collect()
    assert [row.id for row in rows] == list(range(_ROWS))
    assert rows[3].asDict() == {
        "id": 3, "name": "n3", "price": Decimal("0.75"), "rate": 1.5, "sold": True, "day": dt.date(2026, 1, 2),
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678_000),
    }  # fmt: skip
    assert read.where("sold AND name = 'n7'").select("id").collect() == [(7,)]
    more = read.where("id < 1000").selectExpr("id + 5000 AS id", "name", "price", "rate", "sold", "day", "at")
    more.write.format("jdbc").options(**options, dbtable="sale").mode("append").save()
    with psycopg.connect(**at, user="ann") as connection:
        assert connection.execute("SELECT count(*), min(id), max(id) FROM sale WHERE id >= 5000").fetchone() == (
            1_000, 5_000, 5_999,
        )  # fmt: skip
        same = (
            "SELECT count(*) FROM sale AS a JOIN sale AS b ON b.id = a.id + 5000 AND b.name = a.name AND "
            "b.price = a.price AND b.rate = a.rate AND b.sold = a.sold AND b.day = a.day AND b.at = a.at"
        )
        assert connection.execute(same).fetchone() == (1_000,), "values are kept as they were"
    read.limit(10).write.format("jdbc").options(**options, dbtable="made").mode("overwrite").save()
    assert spark.read.format("jdbc").options(**options, dbtable="made").load().count() == 10

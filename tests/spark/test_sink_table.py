"""Spark writes rows of an SQL table: inserted, written over, deleted, each batch once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.error_text import spoken_error
from ledger.dev import DevCluster
from rsm_spark.sql import SqlClient
from tests.integration.store_processes import StoreProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "sink-shop"
_SQL = ("rsm_spark", "sql", "serve")


class Shop:
    """SQL tables of two replicas."""

    def __init__(self, metadata_uri: str, folder: Path) -> None:
        self._uri = metadata_uri
        self.options = {"log": LOG, "metadataUri": metadata_uri, "as": "table"}
        self.replicas: list[StoreProcess] = []
        for number in range(2):
            self.replicas.append(StoreProcess(metadata_uri, LOG, folder, f"shop-{number}", command=_SQL))

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        async def ask() -> list[tuple[Any, ...]]:
            async with await SqlClient.connect(LOG, self._uri, timeout_s=60) as client:
                if sql.startswith("SELECT"):
                    return list((await client.query(sql)).rows)
                await client.execute(sql)
                return []

        return asyncio.run(ask())

    def write(self, frame: DataFrame, table: str, **more: str) -> None:
        frame.write.format("ledger").options(**self.options, table=table, **more).mode("append").save()


@pytest.fixture(scope="module")
def shop(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    made = Shop(cluster.metadata_uri, tmp_path_factory.mktemp("shop"))
    yield made
    for replica in made.replicas:
        replica.kill()


def test_rows_are_inserted_written_over_and_deleted(spark: SparkSession, shop: Shop) -> None:
    shop.ask("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price NUMERIC, at TIMESTAMP, stock INT)")
    rows = spark.range(9_000).selectExpr(
        "id", "concat('item ', id) name", "cast(id as decimal(10,2)) price", "timestamp'2026-01-02 03:04:05Z' at"
    )
    shop.write(rows, "item")
    shop.write(rows.where("id < 10").selectExpr("id", "'changed' name", "if(id < 5, 'delete', null) _op"), "item")
    assert shop.ask("SELECT count(*), sum(name = 'changed'), min(id), max(at) FROM item") == [
        (8_995, 5, 5, "2026-01-02 03:04:05")
    ]
    assert shop.ask("SELECT name, price FROM item WHERE id = 7") == [("changed", 7)]


def test_a_numbered_batch_is_added_once_to_a_table_without_a_key(spark: SparkSession, shop: Shop) -> None:
    shop.ask("CREATE TABLE visit (who TEXT)")
    for count in (100, 9_000):
        for _ in range(2):
            shop.write(spark.range(count).selectExpr("cast(id as string) who"), "visit", writer=f"w{count}", batch="0")
    assert shop.ask("SELECT count(*) FROM visit") == [(9_100,)]


def test_what_is_wrong_is_said_and_nothing_is_written(spark: SparkSession, shop: Shop) -> None:
    shop.ask("CREATE TABLE never (id INTEGER PRIMARY KEY, amount INT CHECK (amount > 0))")

    def error(sql: str, table: str = "never") -> str:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has one for each place
            shop.write(spark.sql(sql).coalesce(1), table)
        return spoken_error(raised.value)

    assert "column id: it is null" in error("select * from values (1, 1), (null, 1) as t(id, amount)")
    assert "CHECK constraint failed" in error("select * from values (1, 1), (2, -1) as t(id, amount)")
    assert "column amount is string, it must be an integer, since" in error("select 1 id, 'x' amount")
    assert "there is no column colour" in error("select 1 id, 1 colour")
    assert "has no table 'nowhere'" in error("select 1 id", "nowhere")
    assert shop.ask("SELECT count(*) FROM never") == [(0,)]


def test_a_stream_goes_on_though_the_leader_is_killed(spark: SparkSession, shop: Shop, tmp_path: Path) -> None:
    shop.ask("CREATE TABLE seen (id INTEGER)")
    frame = spark.range(12_000).toDF("id")
    frame.repartition(4).write.parquet(str(tmp_path / "in"))

    def start() -> Any:
        source = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        return (
            source.writeStream.format("ledger")
            .options(**shop.options, table="seen", writer="stream")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    query = start()
    shop.replicas[0].kill()
    assert query.awaitTermination(300)
    start().awaitTermination(300)
    assert shop.ask("SELECT count(*), count(DISTINCT id) FROM seen") == [(12_000, 12_000)]

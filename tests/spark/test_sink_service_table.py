"""Spark writes rows of a table of a service with typed commands, each batch once, beside the service's commands."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rsm_spark as rsm
from connectors.error_text import spoken_error
from ledger.dev import DevCluster
from tests.integration.store_processes import StoreProcess
from tests.unit.rsm_spark.core.typed_stock import Stock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "sink-stock"
_STOCK = ("rsm_spark", "serve", "tests.unit.rsm_spark.core.typed_stock:Stock")


@pytest.fixture(scope="module")
def replicas(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[StoreProcess]]:
    folder, started = tmp_path_factory.mktemp("stock"), []
    try:
        for number in range(2):
            started.append(StoreProcess(cluster.metadata_uri, LOG, folder, f"stock-{number}", command=_STOCK))
        yield started
    finally:
        for replica in started:
            replica.kill()


@pytest.fixture
def options(cluster: DevCluster, replicas: list[StoreProcess]) -> dict[str, str]:
    return {"log": LOG, "metadataUri": cluster.metadata_uri, "as": "table", "table": "goods"}


def _goods(spark: SparkSession, shop: str, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        f"'{shop}' shop", "id number", "concat('good ', id) title", "cast(id as decimal(12,2)) price",
        "cast(id % 100 as int) amount", "timestamp'2026-01-02 03:04:05Z' at", "array('x') tags", "date'2026-01-02' day",
    )  # fmt: skip


def _write(frame: DataFrame, options: dict[str, str], **more: str) -> None:
    frame.write.format("ledger").options(**options, **more).mode("append").save()


def _state(spark: SparkSession, options: dict[str, str], shop: str) -> DataFrame:
    source = {"log": LOG, "metadataUri": options["metadataUri"], "table": "goods"}
    return spark.read.format("ledger_state").options(**source).load().where(f"shop = '{shop}'")


def test_rows_are_written_over_and_deleted_beside_commands(
    spark: SparkSession, options: dict[str, str], cluster: DevCluster
) -> None:
    for _ in range(2):
        _write(_goods(spark, "a", 9_000), options, writer="goods", batch="1")
    _write(
        _goods(spark, "a", 10).selectExpr("shop", "number", "7 amount", "if(number < 5, 'delete', null) _op"), options
    )
    found = _state(spark, options, "a")
    assert found.count() == 8_995
    row = found.where("number = 7").collect()[0]
    assert (row.title, str(row.price), row.amount, row.tags, str(row.day)) == ("good 7", "7.00", 7, ["x"], "2026-01-02")

    async def take() -> int:
        async with await rsm.ServiceClient.connect(LOG, cluster.metadata_uri, timeout_s=60) as stock:
            return await stock.call(Stock.take, "a", 7)

    assert asyncio.run(take()) == 6


def test_what_is_wrong_is_said_and_nothing_is_written(spark: SparkSession, options: dict[str, str]) -> None:
    def error(frame: DataFrame, **more: str) -> str:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has one for each place
            _write(frame.coalesce(1), {**options, **more})
        return spoken_error(raised.value)

    good = _goods(spark, "never", 100)
    null = good.selectExpr("* except (title)", "if(number = 99, null, title) title")
    assert "row 99 of partition 0, column title (key ('never', 99)): it is null" in error(null)
    negative = good.selectExpr("* except (amount)", "if(number = 50, -1, 1) amount")
    assert "row of key ('never', 50): Expected `int` >= 0 - at `$.amount`" in error(negative)
    assert "column amount is string, it must be an integer, since the table has int" in error(
        good.selectExpr("* except (amount)", "'x' amount")
    )
    assert "table 'orders' of log sink-stock takes no rows as they are" in error(
        spark.range(1).toDF("number"), table="orders"
    )
    assert "has no table 'nowhere'; its service has goods, orders" in error(good, table="nowhere")
    assert _state(spark, options, "never").count() == 0


def test_a_stream_goes_on_though_the_leader_is_killed(
    spark: SparkSession, options: dict[str, str], replicas: list[StoreProcess], tmp_path: Path
) -> None:
    frame = _goods(spark, "stream", 12_000)
    frame.repartition(4).write.parquet(str(tmp_path / "in"))

    def start() -> Any:
        source = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        return (
            source.writeStream.format("ledger")
            .options(**options, writer="stream")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    query = start()
    replicas[0].kill()
    assert query.awaitTermination(300)
    start().awaitTermination(300)
    assert _state(spark, options, "stream").count() == 12_000

"""Spark writes rows of an SQL table: inserted, written over, deleted, each batch once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from connectors.delta.materialize import Materializer
from connectors.delta.settings import MaterializeSettings
from connectors.error_text import spoken_error
from connectors.sink.foreach_batch import batch_writer
from connectors.state.sql_table import sql_table
from connectors.state.verify import VerifySettings, verify_log
from ledger.dev import DevCluster
from rsm_spark.core.envelope import body_of
from rsm_spark.core.records import decode_records
from rsm_spark.sql import SqlClient
from tests.integration.store_processes import StoreProcess
from tests.spark.conftest import WrittenLog
from tests.spark.streams import drain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "sink-shop"
_PUT, _DELETED = 16, 17
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


def _folded(log: WrittenLog) -> list[tuple[str, str, int]]:
    """Return key, value and revision of what a log of the map holds, by a fold in plain Python."""
    held: dict[bytes, tuple[str, str, int]] = {}
    records = (record for _, _, payload in log.entries for record in decode_records(body_of(payload)))
    for revision, record in enumerate(records, start=1):
        if record.type == _PUT:
            key, value = record.fields
            held[key] = (key.decode(), value.decode(), revision)
        elif record.type == _DELETED:
            del held[record.fields[0]]
    return sorted(held.values())


@pytest.mark.timeout(900)
def test_a_log_goes_by_spark_into_a_table_and_on_into_delta_as_a_fold_in_plain_python(
    spark: SparkSession, shop: Shop, log: WrittenLog, tmp_path: Path
) -> None:
    shop.ask("CREATE TABLE held (k TEXT PRIMARY KEY, v TEXT NOT NULL, n INTEGER)")
    source = {"metadataUri": log.metadata_uri}
    write = batch_writer(**shop.options, table="held", writer="round-trip")

    def each(frame: DataFrame, batch_id: int) -> None:
        newest = frame.groupBy("key").agg(F.max_by(F.struct("value", "_fold", "_revision"), "_revision").alias("last"))
        rows = newest.selectExpr(
            "CAST(key AS STRING) k",
            "coalesce(CAST(last.value AS STRING), '') v",
            "last._revision n",
            "if(last._fold = 'delete', 'delete', null) _op",
        )
        write(rows.coalesce(1).sortWithinPartitions("k"), batch_id)

    def copy() -> None:
        options = {**source, "log": log.name, "rows": "table", "startingOffsets": "earliest"}
        frame = spark.readStream.format("ledger").options(**options, maxOffsetsPerTrigger="150").load()
        drain(frame, each, tmp_path / "checkpoint")

    log.fill(20, keys=40)
    log.delete(b"key-3", b"key-7")
    copy()
    log.fill(20, keys=30)
    log.delete(b"key-3", b"key-35")
    copy()
    expected = _folded(log)
    assert len(expected) == 38
    assert sorted(shop.ask("SELECT k, v, n FROM held")) == expected

    lake = tmp_path / "lake"
    settings = MaterializeSettings(
        log=LOG,
        source=source,
        place=str(lake),
        checkpoint=str(tmp_path / "follower"),
        is_every_table=True,
        available_now=True,
    )
    Materializer(spark, settings, report=lambda _progress: None).run()
    catalog, rows = (spark.read.format("delta").load(str(lake / name)) for name in ("catalog", "rows"))
    found = sql_table(catalog, rows, "held").select("k", "v", "n")
    plain = spark.createDataFrame(expected, "k string, v string, n bigint")
    assert_df_equality(found, plain, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)
    proved = verify_log(spark, VerifySettings(LOG, tables=(str(lake / "catalog"), str(lake / "rows")), source=source))
    assert proved.ok, proved.differences


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

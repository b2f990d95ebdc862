"""Frames and streams beside rows of SQL tables, and beside what queries of a typed service answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import rsm_spark as rsm
from connectors.error_text import spoken_error
from connectors.state.row_lookup import query_lookup, table_lookup
from ledger.dev import DevCluster
from rsm_spark.core.typed_rows import WRITE
from rsm_spark.sql import BlockingSqlClient
from tests.integration.store_processes import StoreProcess
from tests.integration.test_sql_commands import SQL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP, GOODS = "lookup-shop", "lookup-goods"
_STOCK = ("rsm_spark", "serve", "tests.unit.rsm_spark.core.typed_stock:Stock")


@pytest.fixture(scope="module")
def replicas(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, StoreProcess]]:
    folder = tmp_path_factory.mktemp("lookups")
    running: dict[str, StoreProcess] = {}
    try:
        for log, command in ((SHOP, SQL), (GOODS, _STOCK)):
            running[log] = StoreProcess(cluster.metadata_uri, log, folder, log, command=command)
        yield running
    finally:
        for one in running.values():
            one.kill()


@pytest.fixture(scope="module")
def shop(cluster: DevCluster, replicas: dict[str, StoreProcess]) -> Iterator[BlockingSqlClient]:
    with BlockingSqlClient.connect(SHOP, cluster.metadata_uri, timeout_s=120) as client:
        client.execute('CREATE TABLE "my item" (id INTEGER PRIMARY KEY, name TEXT, price REAL, picture BLOB, any)')
        client.execute("CREATE TABLE part (maker TEXT, number INTEGER, title TEXT, PRIMARY KEY (maker, number))")
        client.executemany(
            'INSERT INTO "my item" VALUES (?, ?, ?, ?, ?)',
            [(n, f"item {n}", n / 4, bytes([n % 256]), n) for n in range(700)],
        )
        client.executemany("INSERT INTO part VALUES (?, ?, ?)", [(f"m{n % 3}", n, f"part {n}") for n in range(300)])
        yield client


def test_a_batch_has_the_rows_of_an_sql_table(
    spark: SparkSession, cluster: DevCluster, shop: BlockingSqlClient
) -> None:
    uri = cluster.metadata_uri
    frame = spark.range(3_000).selectExpr("case when id % 7 = 0 then null else id % 1000 end item", "id")
    columns = {"name": "string", "price": "double", "picture": "binary"}
    look = table_lookup(SHOP, "my item", key={"id": "item"}, columns=columns, metadata_uri=uri, read_from="followers")
    found = frame.transform(look).collect()
    assert len(found) == 3_000
    for row in found:
        number = row.id % 1_000
        is_there = row.id % 7 != 0 and number < 700
        told = (row["name"], row.price, row.picture)
        assert told == ((f"item {number}", number / 4, bytes([number % 256])) if is_there else (None, None, None))
    # A key of several columns, and text where the table has numbers: compared as SQLite does.
    keyed = spark.range(300).selectExpr("concat('m', id % 3) maker", "cast(id as string) n")
    look = table_lookup(
        SHOP, "part", key={"maker": "maker", "number": "n"}, columns={"title": "string"}, metadata_uri=uri
    )
    assert {row.n: row.title for row in keyed.transform(look).collect()} == {str(n): f"part {n}" for n in range(300)}


@pytest.mark.parametrize(
    ("table", "key", "columns", "said"),
    [
        ("part", {"maker": "who"}, {"title": "string"}, "several rows have the key ('m1',): name all of its columns"),
        (
            "part",
            {"maker": "who", "number": "n"},
            {"title": "bigint"},
            "column title is to be bigint, and holds 'part 1'",
        ),
        ("part", {"maker": "who"}, {"colour": "string"}, "no such column"),
        ("none", {"maker": "who"}, {"title": "string"}, "no such table"),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(
    spark: SparkSession,
    cluster: DevCluster,
    shop: BlockingSqlClient,
    table: str,
    key: dict[str, str],
    columns: dict[str, str],
    said: str,
) -> None:
    frame = spark.sql("select 'm1' who, 1L n")
    look = table_lookup(SHOP, table, key=key, columns=columns, metadata_uri=cluster.metadata_uri)
    with pytest.raises(Exception) as told:  # noqa: PT011 - Spark's own, whose text is looked at
        frame.transform(look).collect()
    assert said in spoken_error(told.value)


def test_rows_of_many_bytes_come_in_several_calls(
    spark: SparkSession, cluster: DevCluster, shop: BlockingSqlClient
) -> None:
    shop.execute("CREATE TABLE wide (id INTEGER PRIMARY KEY, text TEXT)")
    for number in range(5):
        shop.execute("INSERT INTO wide VALUES (?, ?)", (number, f"{number}" * 900_000))
    look = table_lookup(SHOP, "wide", key={"id": "n"}, columns={"text": "string"}, metadata_uri=cluster.metadata_uri)
    frame = spark.range(6).selectExpr("id n").transform(look).selectExpr("n", "length(text) l", "left(text, 1) first")
    rows = [(row.n, row.l, row["first"]) for row in frame.orderBy("n").collect()]
    assert rows == [*((n, 900_000, str(n)) for n in range(5)), (5, None, None)]


def test_a_stream_sees_what_a_service_answers_now(
    spark: SparkSession, cluster: DevCluster, replicas: dict[str, StoreProcess], tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    seen: dict[int, list[Any]] = {}
    (tmp_path / "in").mkdir()
    schema = "shop string, number long"
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    by = {"shop": "shop", "number": "number"}
    columns = {"title": "string", "amount": "bigint", "is_new": "boolean", "price": "string"}
    row = query_lookup(GOODS, "find", arguments=by, columns=columns, metadata_uri=uri)
    left = query_lookup(GOODS, "amount", arguments=by, columns={"left": "bigint"}, metadata_uri=uri)

    def keep(frame: Any, batch_id: int) -> None:
        seen[batch_id] = [tuple(one) for one in frame.orderBy("number").collect()]

    query = (
        source.transform(row).transform(left).writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    try:
        for amount in (5, 6):
            _write(uri, ("a", 1, "tea", amount))
            sql = "select 'a' shop, n number from values (1L), (2L), (cast(null as bigint)) as t(n)"
            spark.sql(sql).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
            query.processAllAvailable()
    finally:
        query.stop()
    for amount, rows in zip((5, 6), (rows for _, rows in sorted(seen.items()) if rows), strict=True):
        assert rows == [
            ("a", None, None, None, None, None, None),
            ("a", 1, "tea", amount, False, "0.00", amount),
            ("a", 2, None, None, None, None, -1),
        ]


def test_a_query_that_refuses_its_key_ends_the_task_in_its_words(
    spark: SparkSession, cluster: DevCluster, replicas: dict[str, StoreProcess]
) -> None:
    frame = spark.sql("select 'a' shop, 'one' number")
    for query, said in (("find", "Expected `int`"), ("nothing", "has no query 'nothing'"), ("take", "is no query")):
        look = query_lookup(
            GOODS, query, arguments={"shop": "shop", "number": "number"}, columns={"title": "string"},
            metadata_uri=cluster.metadata_uri,
        )  # fmt: skip
        with pytest.raises(Exception) as told:  # noqa: PT011 - Spark's own, whose text is looked at
            frame.transform(look).collect()
        assert said in spoken_error(told.value)


def _write(uri: str, *rows: tuple[Any, ...]) -> None:
    sent = {"table": "goods", "columns": ("shop", "number", "title", "amount"), "rows": rows}

    async def write() -> None:
        async with await rsm.ServiceClient.connect(GOODS, uri, timeout_s=120) as client:
            reply = await client.execute(msgspec.msgpack.encode((WRITE, sent)))
            assert msgspec.msgpack.decode(reply.payload) == [len(rows)]

    asyncio.run(write())

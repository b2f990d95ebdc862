"""Tables of Spark's catalog that are logs: made, described, read in batches and streams, written to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from connectors.error_text import spoken_error
from tests.spark import test_sink, test_sink_table
from tests.spark.streams import drain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

target, shop = test_sink.target, test_sink_table.shop
_NEEDS_TEN_MINUTES = pytest.mark.timeout(600)
pytestmark = _NEEDS_TEN_MINUTES


@pytest.fixture(scope="module")
def own(spark: SparkSession) -> Iterator[SparkSession]:
    """Return a session of Spark's own catalog: Delta's hands queries of tables to sources that are written in Java."""
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.spark_catalog", "builtin")
    session.sql("CREATE DATABASE logs")
    session.sql("USE logs")
    yield session
    session.sql("USE default")
    session.sql("DROP DATABASE logs CASCADE")


def _options(given: dict[str, str]) -> str:
    return ", ".join(f"`{key}` '{value}'" for key, value in given.items())


def _make(session: SparkSession, name: str, source: str = "ledger", **options: Any) -> None:
    session.sql(f"CREATE TABLE {name} USING {source} OPTIONS ({_options(options)})")


def _same(one: DataFrame, other: DataFrame) -> None:
    assert_df_equality(one, other, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)


def _error(session: SparkSession, sql: str) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has one for each place
        session.sql(sql).collect()
    return spoken_error(raised.value)


def _one(session: SparkSession, sql: str) -> Any:
    row = session.sql(sql).first()
    assert row is not None
    return row[0]


def test_a_log_is_a_table_by_its_name(own: SparkSession, log: Any, tmp_path: Path) -> None:
    log.fill(5)
    columns = "key,value,_fold,_revision"
    _make(own, "orders", **log.options(rows="table", columns=columns, maxOffsetsPerTrigger=20))
    direct = own.read.format("ledger").options(**log.options(rows="table", columns=columns)).load()
    _same(own.sql("SELECT * FROM orders"), direct)
    _same(own.read.table("logs.orders"), direct)
    told = own.sql("DESCRIBE TABLE orders").select("col_name", "data_type").collect()
    assert [tuple(row) for row in told[:4]] == [
        ("key", "binary"), ("value", "binary"), ("_fold", "string"), ("_revision", "bigint"),
    ]  # fmt: skip
    # What comes later is in it, and a query may say more than its table.
    log.fill(1)
    assert _one(own, "SELECT count(*) FROM orders") == log.revision - 1
    assert _one(own, "SELECT count(*) FROM orders WITH (startingOffsets = 'latest-5')") in range(5, 15)
    first = f'{{"{log.name}": {{"revision": 52}}}}'
    assert own.read.option("startingOffsets", first).table("orders").count() == log.revision - 51
    # The same table is a stream, with its limit.
    sizes: list[int] = []
    stream = own.readStream.option("startingOffsets", "earliest").table("orders")
    drain(stream, lambda frame, _: sizes.append(frame.count()), tmp_path / "checkpoint")
    assert (sum(sizes), max(sizes)) == (log.revision - 1, 20)
    own.sql("CREATE VIEW wide AS SELECT key, length(value) size FROM orders")
    assert _one(own, "SELECT count(*) FROM wide") == log.revision - 1
    own.catalog.createTable("state_now", source="ledger_state", **log.options(table="map"))
    assert _one(own, "SELECT count(*) FROM state_now") == len(log.state)
    own.sql("DROP TABLE orders")
    assert "TABLE_OR_VIEW_NOT_FOUND" in _error(own, "SELECT * FROM orders")


def test_rows_are_inserted_into_a_map(own: SparkSession, target: Any) -> None:
    _make(own, "totals", **target.options())
    assert [row.col_name for row in own.sql("DESCRIBE TABLE totals").collect()][:2] == ["key", "value"]
    own.sql("INSERT INTO totals VALUES ('i/a', '1')")
    own.sql("INSERT INTO totals VALUES (X'FFFE', X'FF00')")
    assert (target.value(b"i/a"), target.value(b"\xff\xfe")) == (b"1", b"\xff\x00"), "bytes are kept as they are"
    own.sql("INSERT INTO totals (value, key) SELECT 'v', concat('i/c', id) FROM range(3)")
    # Rows that have the names and types of the table already.
    same = own.range(3).selectExpr("concat('i/d', id) key", "'x' value")
    same.createOrReplaceTempView("same")
    own.sql("INSERT INTO totals SELECT key, value FROM same WHERE key = 'i/d0'")
    same.where("key = 'i/d1'").writeTo("totals").append()
    same.where("key = 'i/d2'").write.insertInto("totals")
    assert [target.value(key) for key in (b"i/c2", b"i/d0", b"i/d1", b"i/d2")] == [b"v", b"x", b"x", b"x"]
    # A statement says more than the table: its number makes it one that is written once.
    for _ in range(2):
        own.sql("INSERT INTO totals WITH (writer = 'of-sql', batch = '3') VALUES ('i/once', '1')")
    assert target.versions()[b"i/once"] == 1


def test_rows_are_inserted_into_an_sql_table(own: SparkSession, shop: Any) -> None:
    shop.ask("CREATE TABLE part (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price NUMERIC(8,2), at TIMESTAMP)")
    shop.ask("CREATE TABLE pair (id INTEGER PRIMARY KEY, amount INTEGER)")
    _make(own, "part", **shop.options, table="part")
    told = own.sql("DESCRIBE TABLE part").select("col_name", "data_type").collect()
    assert [tuple(row) for row in told] == [
        ("id", "bigint"), ("name", "string"), ("price", "decimal(8,2)"), ("at", "timestamp"),
    ]  # fmt: skip
    own.sql("INSERT INTO part VALUES (1, 'nut', 1.5, timestamp'2026-01-02 03:04:05Z'), (2, 'nail', NULL, NULL)")
    assert shop.ask("SELECT id, name, price, at FROM part ORDER BY id") == [
        (1, "nut", 1.5, "2026-01-02 03:04:05"), (2, "nail", None, None),
    ]  # fmt: skip
    _make(own, "pair", **shop.options, table="pair")
    own.sql("INSERT INTO pair VALUES (1, 2)")
    same = "SELECT id, id AS amount FROM range(5, 7)"
    assert "written with its options again: INSERT INTO … WITH" in _error(own, f"INSERT INTO pair {same}")
    again = ", ".join(f"'{key}' = '{value}'" for key, value in {**shop.options, "table": "pair"}.items())
    own.sql(f"INSERT INTO pair WITH ({again}) {same}")
    assert shop.ask("SELECT id, amount FROM pair ORDER BY id") == [(1, 2), (5, 5), (6, 6)]


def test_what_spark_refuses_of_such_tables_is_as_the_documents_say(
    spark: SparkSession, own: SparkSession, target: Any, log: Any
) -> None:
    _make(own, "refused", **target.options())
    told = {
        "SELECT * FROM refused": "this table is one to write to (as=map)",
        "INSERT OVERWRITE refused VALUES ('a', 'b')": "mode overwrite is refused",
        "DELETE FROM refused WHERE key = 'a'": "does not support deletes",
        "UPDATE refused SET value = 'x'": "does not support UPDATE TABLE",
        "TRUNCATE TABLE refused": "does not support truncates",
        "SELECT * FROM ledger.refused": "Unsupported data source type for direct query on files: ledger",
        f"CREATE TABLE no USING ledger OPTIONS ({_options(target.options())}) AS SELECT 'k' key, 'v' value": (
            "is told neither option log nor as"
        ),
        f"CREATE TABLE no USING ledger OPTIONS ({_options(log.options(startingOfsets='1'))})": (
            "unknown option startingofsets: did you mean startingOffsets"
        ),
    }
    for sql, said in told.items():
        assert said in _error(own, sql), sql
    own.sql(f"CREATE TABLE named (key STRING, value STRING) USING ledger OPTIONS ({_options(target.options())})")
    assert "CREATE TABLE named no columns" in _error(own, "INSERT INTO named VALUES ('k', 'v')").replace("\n", " ")
    with pytest.raises(Exception, match="doesn't match the specified format"):
        own.range(1).selectExpr("'k' key", "'v' value").write.mode("append").saveAsTable("refused")
    # With Delta's catalog, which `spark_session` sets, queries of tables reach no source in Python.
    _make(own, "of_own", **log.options())
    assert "ledger is not a valid Spark SQL Data Source" in _error(spark, "SELECT * FROM logs.of_own")
    spark.sql(f"CREATE TEMPORARY VIEW of_delta USING ledger OPTIONS ({_options(log.options())})")
    assert _one(spark, "SELECT count(*) FROM of_delta") == log.revision

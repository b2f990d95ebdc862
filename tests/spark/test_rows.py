from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rsm_spark.core.records import Record, pack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
    "headers:array<struct<key:string,value:binary>>>"
)


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("ledger").options(**options).load()


def test_code_for_kafka_finds_the_columns_of_sparks_kafka_source(spark: SparkSession, log: Any) -> None:
    log.put({b"a": b"1"})
    log.delete(b"a")
    frame = read(spark, log.options(rows="kafka", includeHeaders="true"))
    assert frame.schema.simpleString() == KAFKA_SCHEMA
    first, second = frame.orderBy("offset").collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition) == (b"a", b"1", log.name, 0)
    assert (first.offset, first.timestamp.timestamp(), first.timestampType) == (2, 1.001, 1)
    assert [header.key for header in first.headers] == ["name", "table", "fold"]
    assert (bytes(second.key), second.value, second.offset) == (b"a", None, 3)
    plain = read(spark, {"metadataUri": log.metadata_uri, "ledgers": str(log.ledger_ids[0]), "rows": "kafka"})
    rows = plain.orderBy("offset").collect()
    assert [(row.topic, row.partition, row.offset) for row in rows] == [
        ("ledgers", log.ledger_ids[0], entry) for entry in range(3)
    ]
    assert [bytes(row.value) for row in rows] == [payload for _, _, payload in log.entries]


def test_a_table_is_typed_by_what_the_log_says_of_it(spark: SparkSession, log: Any, tmp_path: Any) -> None:
    log.put({b"a": b"1", b"b": b"2"})
    log.delete(b"a")
    frame = read(spark, log.options(rows="table"))
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,_fold:string,_revision:bigint,_logged_at:timestamp,_extra:map<string,binary>>"
    )
    rows = [(bytes(r.key), r.value and bytes(r.value), r._fold, r._revision) for r in frame.collect()]
    assert sorted(rows, key=lambda row: row[3]) == [
        (b"a", b"1", "upsert", 2),
        (b"b", b"2", "upsert", 3),
        (b"a", None, "delete", 4),
    ]
    stream = spark.readStream.format("ledger").options(
        **log.options(rows="table", columns="_revision,value", startingOffsets="earliest")
    )
    found: list[Any] = []
    query = stream.load().writeStream.foreachBatch(lambda batch, _: found.extend(batch.collect()))
    query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start().awaitTermination()
    assert [(row._revision, row.value and bytes(row.value)) for row in found] == [(2, b"1"), (3, b"2"), (4, None)]


def test_only_the_columns_that_are_named_are_there(spark: SparkSession, log: Any) -> None:
    log.put({b"a": b"1"})
    frame = read(spark, log.options(columns="key, revision"))
    assert [(bytes(row.key), row.revision) for row in frame.where("key is not null").collect()] == [(pack([b"a"]), 2)]
    assert frame.columns == ["key", "revision"]
    with pytest.raises(Exception, match=r"option columns names revison: did you mean revision\?"):
        read(spark, log.options(columns="revison"))


def test_a_record_that_cannot_be_decoded_ends_the_query_or_becomes_a_row(spark: SparkSession, log: Any) -> None:
    log._fold = lambda *_: None  # the writer's own state has no place for such a record
    log.append([Record(16, None, (b"a", b"1")), Record(16, None, (b"a",))])
    with pytest.raises(Exception, match="record 3 of type put has 1 fields, fewer than its description"):
        read(spark, log.options(columns="row")).collect()
    rows = read(spark, log.options(columns="revision,row", badRecords="column")).orderBy("revision").collect()
    assert [(row.revision, row._error is None) for row in rows] == [(1, True), (2, True), (3, False)]

"""Spark sends commands to a service: each row one command, made once; the log holds what became of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from connectors.error_text import spoken_error
from connectors.sink.replies import command_replies
from ledger.dev import DevCluster
from tests.integration.store_processes import StoreProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "sink-bank"
_BANK = ("rsm_spark", "serve", "examples.bank:Bank")


@pytest.fixture(scope="module")
def replicas(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[StoreProcess]]:
    folder, started = tmp_path_factory.mktemp("bank"), []
    try:
        for number in range(2):
            started.append(StoreProcess(cluster.metadata_uri, LOG, folder, f"bank-{number}", command=_BANK))
        yield started
    finally:
        for replica in started:
            replica.kill()


@pytest.fixture
def options(cluster: DevCluster, replicas: list[StoreProcess]) -> dict[str, str]:
    return {"log": LOG, "metadataUri": cluster.metadata_uri, "as": "commands"}


def _deposits(spark: SparkSession, owner: str, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        "'deposit' method", f"to_json(named_struct('name', concat('{owner}', id % 10), 'amount', 1)) arguments"
    )


def _accounts(spark: SparkSession, options: dict[str, str], owner: str) -> DataFrame:
    source = {"log": LOG, "metadataUri": options["metadataUri"], "table": "accounts"}
    return spark.read.format("ledger_state").options(**source).load().where(f"startswith(name, '{owner}')")


def _replies(spark: SparkSession, options: dict[str, str], writer: str) -> DataFrame:
    source = {"log": LOG, "metadataUri": options["metadataUri"], "rows": "records"}
    return command_replies(spark.read.format("ledger").options(**source).load(), writer)


def _write(frame: DataFrame, options: dict[str, str], **more: str) -> None:
    frame.write.format("ledger").options(**options, **more).mode("append").save()


def test_each_row_is_a_command_that_is_made_once(spark: SparkSession, options: dict[str, str]) -> None:
    frame = _deposits(spark, "once", 5_000)
    for _ in range(2):
        _write(frame, options, writer="once", batch="1")
    wanted = spark.range(10).selectExpr("concat('once', id) name", "cast(500 as bigint) balance")
    found = _accounts(spark, options, "once").select("name", "balance")
    assert_df_equality(found, wanted, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)
    replies = _replies(spark, options, "once")
    assert replies.where("status = 'done'").select("part", "number").distinct().count() == replies.count() == 5_000


def test_a_refusal_is_an_outcome_and_the_log_has_it(spark: SparkSession, options: dict[str, str]) -> None:
    frame = spark.sql(
        """select * from values ('deposit', '{"name": "poor", "amount": 5}'),
        ('transfer', '{"source": "poor", "target": "rich", "amount": 50}'),
        ('nothing', '{}'), ('deposit', '{"name": "poor", "amount": 1}') as t(method, arguments)"""
    ).coalesce(1)
    for _ in range(2):
        _write(frame, options, writer="refused", batch="0")
    rows = _replies(spark, options, "refused").orderBy("number").collect()
    assert [row.status for row in rows] == ["done", "refused", "refused", "done"]
    assert json.loads(rows[0].reply) == [5]
    assert "nothing" in rows[2].reply.decode()
    assert _accounts(spark, options, "poor").collect()[0].balance == 6


def test_what_is_wrong_is_said(spark: SparkSession, options: dict[str, str]) -> None:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has one for each place
        _write(spark.sql("select 'deposit' method, '{' arguments"), options)
    assert "column arguments (key 'deposit'): '{' is no JSON" in spoken_error(raised.value)


def test_a_stream_goes_on_though_the_leader_is_killed(
    spark: SparkSession, options: dict[str, str], replicas: list[StoreProcess], tmp_path: Path
) -> None:
    frame = _deposits(spark, "stream", 12_000)
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
    assert {row.balance for row in _accounts(spark, options, "stream").collect()} == {1_200}

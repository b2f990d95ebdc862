"""Spark submits tasks to the broker: each row one task, whatever is run again and whoever is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from connectors.error_text import spoken_error
from ledger.dev import DevCluster
from tests.integration.broker_processes import BrokerProcess, brokers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "sink-tasks"


@pytest.fixture(scope="module")
def running(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    options = ("--metadata-uri", cluster.metadata_uri, "--log", LOG)
    with brokers(tmp_path_factory.mktemp("brokers"), "broker-a", "broker-b", options=options) as processes:
        yield processes


@pytest.fixture
def options(cluster: DevCluster, running: list[BrokerProcess]) -> dict[str, str]:
    return {"log": LOG, "metadataUri": cluster.metadata_uri, "as": "tasks"}


def _tasks(spark: SparkSession, kind: str, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        "concat('tenant-', id % 3) tenant",
        f"'{kind}' type",
        "concat('pay ', id) payload",
        "cast(id % 5 as int) priority",
    )


def _submitted(spark: SparkSession, options: dict[str, str], kind: str) -> DataFrame:
    """Return the tasks as Spark folds them from the broker's log."""
    source = {"log": options["log"], "metadataUri": options["metadataUri"], "table": "tasks"}
    frame = spark.read.format("ledger_state").options(**source).load().where(f"type = '{kind}'")
    return frame.selectExpr("tenant", "type", "cast(payload as string) payload", "cast(priority as int) priority")


def _check(spark: SparkSession, options: dict[str, str], kind: str, frame: DataFrame) -> None:
    found = _submitted(spark, options, kind)
    assert_df_equality(found, frame, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)


def test_rows_are_tasks_and_a_numbered_batch_is_submitted_once(spark: SparkSession, options: dict[str, str]) -> None:
    for kind, count in (("few", 100), ("many", 30_000)):
        frame = _tasks(spark, kind, count)
        for _ in range(2):
            numbered = {**options, "writer": f"job/{kind}", "batch": "3"}
            frame.write.format("ledger").options(**numbered).mode("append").save()
        _check(spark, options, kind, frame)


def test_a_task_whose_slot_is_taken_is_left_out(spark: SparkSession, options: dict[str, str]) -> None:
    frame = spark.range(1000).selectExpr("'acme' tenant", "'slots' type", "concat('s', id % 10) slot")
    frame.write.format("ledger").options(**options).mode("append").save()
    assert _submitted(spark, options, "slots").count() == 10


def test_what_is_wrong_is_said_and_nothing_is_submitted(spark: SparkSession, options: dict[str, str]) -> None:
    def error(frame: DataFrame) -> str:
        with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has one for each place
            frame.write.format("ledger").options(**options).mode("append").save()
        return spoken_error(raised.value)

    good = spark.range(100).selectExpr("'acme' tenant", "'never' type", "'' payload", "'' code")
    bad = good.unionByName(spark.sql("select cast(null as string) tenant, 'never' type, '' payload, '' code"))
    assert "row 100 of partition 0, column tenant: it is null" in error(bad.coalesce(1))
    large = good.unionByName(spark.sql("select 'acme' tenant, 'never' type, repeat('x', 10000000) payload, '' code"))
    assert "column payload: a payload of 10,000,000 bytes" in error(large.coalesce(1))
    unknown = good.unionByName(spark.sql("select 'acme' tenant, 'never' type, '' payload, 'nobody' code"))
    assert "there is no code pool 'nobody'" in error(unknown.coalesce(1))
    assert "column type is missing" in error(good.drop("type"))
    assert _submitted(spark, options, "never").count() == 0


def test_a_stream_goes_on_though_the_leading_broker_is_killed(
    spark: SparkSession, options: dict[str, str], running: list[BrokerProcess], tmp_path: Path
) -> None:
    frame = _tasks(spark, "stream", 20_000)
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
    running[0].kill()
    assert query.awaitTermination(300)
    start().awaitTermination(300)
    _check(spark, options, "stream", frame)

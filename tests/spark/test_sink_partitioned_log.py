"""Spark appends to a partitioned log: by key, each row once, while gateways are killed and the log grows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.error_text import spoken_error
from ledger.dev import DevCluster
from rsm_spark.core.partition_layout import partition_of
from rsm_spark.gateway_client.blocking import BlockingLogGatewayClient
from tests.spark.log_gateways import LogGatewayProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "sink-sales"


@pytest.fixture(scope="module")
def gateways(cluster: DevCluster) -> Iterator[list[LogGatewayProcess]]:
    started: list[LogGatewayProcess] = []
    try:
        started += [LogGatewayProcess(cluster.metadata_uri), LogGatewayProcess(cluster.metadata_uri)]
        with BlockingLogGatewayClient.connect([started[1].url]) as client:
            client.create(LOG, partitions=2)
        yield started
    finally:
        for one in started:
            one.kill()


@pytest.fixture
def options(gateways: list[LogGatewayProcess]) -> dict[str, str]:
    return {"log": LOG, "gateway": ",".join(one.url for one in gateways), "as": "log"}


def _rows(spark: SparkSession, prefix: str, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        f"encode(concat('{prefix}/', id), 'UTF-8') payload",
        "if(id % 7 = 0, null, encode(string(id % 50), 'UTF-8')) key",
    )


def _log(spark: SparkSession, cluster: DevCluster, prefix: str, **more: str) -> DataFrame:
    source = {"log": LOG, "metadataUri": cluster.metadata_uri, "rows": "table", **more}
    found = spark.read.format("ledger").options(**source).load()
    return found.select("payload", "key", "_partition").where(f"startswith(string(payload), '{prefix}/')")


def _write(frame: DataFrame, options: dict[str, str], **more: str) -> None:
    frame.write.format("ledger").options(**options, **more).mode("append").save()


def test_a_batch_is_there_once_though_it_is_written_again_behind_a_growth(
    spark: SparkSession, cluster: DevCluster, options: dict[str, str], gateways: list[LogGatewayProcess]
) -> None:
    small, large = _rows(spark, "small", 500), _rows(spark, "large", 30_000)
    half = spark.range(30_000).selectExpr(
        "if(id = 29999, cast(null as binary), encode(concat('half/', id), 'UTF-8')) payload",
        "encode(string(id % 50), 'UTF-8') key",
    )
    _write(small, options, writer="small", batch="4")
    _write(large, options, writer="large", batch="4")
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has one for each place
        _write(half.coalesce(1), options, writer="half", batch="0")
    assert "row 29999 of partition 0, column payload" in spoken_error(raised.value)
    begun = _log(spark, cluster, "half").count()
    assert 0 < begun < 30_000
    with BlockingLogGatewayClient.connect([gateways[1].url]) as client:
        client.grow(LOG, 3)
    _write(small, options, writer="small", batch="4")
    _write(large, options, writer="large", batch="4")
    mended = spark.range(30_000).selectExpr(
        "encode(concat('half/', id), 'UTF-8') payload", "encode(string(id % 50), 'UTF-8') key"
    )
    _write(mended.coalesce(1), options, writer="half", batch="0")
    for prefix, count in (("small", 500), ("large", 30_000), ("half", 30_000)):
        found = _log(spark, cluster, prefix)
        assert found.distinct().count() == found.count() == count
    placed = _log(spark, cluster, "half").select("key", "_partition").distinct().collect()
    assert {row["_partition"] for row in placed} == {0, 1, 2}
    for row in placed:
        assert row["_partition"] in {partition_of(bytes(row["key"]), 2), partition_of(bytes(row["key"]), 3)}


def test_readers_of_finished_batches_see_one_when_another_job_has_ended_what_the_first_began(
    spark: SparkSession, cluster: DevCluster, options: dict[str, str]
) -> None:
    bad = spark.range(25_000).selectExpr(
        "if(id = 24999, cast(null as binary), encode(concat('begun/', id), 'UTF-8')) payload",
        "encode(string(id % 50), 'UTF-8') key",
    )
    good = spark.range(25_000).selectExpr(
        "encode(concat('begun/', id), 'UTF-8') payload", "encode(string(id % 50), 'UTF-8') key"
    )
    _write(_rows(spark, "before", 100), options, writer="before", batch="0")
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has one for each place
        _write(bad.coalesce(1), options, writer="begun", batch="0")
    assert "it is null" in spoken_error(raised.value)
    assert 0 < _log(spark, cluster, "begun").count() < 25_000
    assert _log(spark, cluster, "begun", finishedBatches="true").isEmpty()
    _write(good.coalesce(1), options, writer="begun", batch="0")
    shown = _log(spark, cluster, "begun", finishedBatches="true").selectExpr("count(*)", "count(distinct payload)")
    assert tuple(shown.collect()[0]) == (25_000, 25_000)


def test_a_stream_goes_on_while_the_log_grows_and_its_gateway_is_killed(
    spark: SparkSession, cluster: DevCluster, options: dict[str, str], gateways: list[LogGatewayProcess], tmp_path: Path
) -> None:
    frame = _rows(spark, "stream", 24_000)
    frame.repartition(6).write.parquet(str(tmp_path / "in"))

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
    with BlockingLogGatewayClient.connect([gateways[1].url]) as client:
        client.grow(LOG, 5)
    gateways[0].kill()
    with BlockingLogGatewayClient.connect([gateways[1].url]) as client:
        client.grow(LOG, 6)
    assert query.awaitTermination(300)
    # The last batch is run again: the checkpoint does not know that it has ended.
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (last, last.with_name(f".{last.name}.crc")):
        file.unlink(missing_ok=True)
    start().awaitTermination(300)
    seen = Counter(bytes(row.payload) for row in _log(spark, cluster, "stream").select("payload").collect())
    assert seen == Counter(bytes(row.payload) for row in frame.select("payload").collect())

"""Spark appends to a plain log through gateways: each row once, whoever is killed and whatever is run again."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from connectors.error_text import spoken_error
from ledger.dev import DevCluster
from rsm_spark.gateway_client.blocking import BlockingLogGatewayClient
from tests.spark.log_gateways import LogGatewayProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "sink-log"


@pytest.fixture(scope="module")
def gateways(cluster: DevCluster) -> Iterator[list[LogGatewayProcess]]:
    started: list[LogGatewayProcess] = []
    try:
        started += [LogGatewayProcess(cluster.metadata_uri), LogGatewayProcess(cluster.metadata_uri)]
        with BlockingLogGatewayClient.connect([started[0].url]) as client:
            client.create(LOG)
        yield started
    finally:
        for one in started:
            one.kill()


@pytest.fixture
def options(gateways: list[LogGatewayProcess]) -> dict[str, str]:
    return {"log": LOG, "gateway": ",".join(one.url for one in gateways), "as": "log"}


def _rows(spark: SparkSession, prefix: str, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        f"encode(concat('{prefix}/', id), 'UTF-8') payload", "if(id % 2 = 0, encode(string(id), 'UTF-8'), null) key"
    )


def _log(spark: SparkSession, cluster: DevCluster, prefix: str) -> DataFrame:
    source = {"log": LOG, "metadataUri": cluster.metadata_uri, "rows": "table"}
    found = spark.read.format("ledger").options(**source).load()
    return found.select("payload", "key").where(f"startswith(string(payload), '{prefix}/')")


def _write(frame: DataFrame, options: dict[str, str], **more: str) -> None:
    frame.write.format("ledger").options(**options, **more).mode("append").save()


def _error(frame: DataFrame, options: dict[str, str], **more: str) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has one for each place
        _write(frame, options, **more)
    return spoken_error(raised.value)


def test_a_batch_is_in_the_log_once_though_it_is_written_again(
    spark: SparkSession, cluster: DevCluster, options: dict[str, str]
) -> None:
    for prefix, count in (("small", 500), ("large", 30_000)):
        frame = _rows(spark, prefix, count)
        for _ in range(2):
            _write(frame, options, writer=prefix, batch="4")
        _write(_rows(spark, "older", 10), options, writer=prefix, batch="3")
        assert_df_equality(
            _log(spark, cluster, prefix), frame, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True
        )
    assert _log(spark, cluster, "older").count() == 0


def test_what_is_wrong_is_said_and_nothing_is_appended(
    spark: SparkSession, cluster: DevCluster, options: dict[str, str]
) -> None:
    good = _rows(spark, "never", 100).select("payload")
    null = good.unionByName(spark.sql("select cast(null as binary) payload")).coalesce(1)
    assert "row 100 of partition 0, column payload: it is null" in _error(null, options, writer="never")
    large = good.unionByName(spark.sql("select encode(repeat('x', 5000000), 'UTF-8') payload")).coalesce(1)
    assert "5,000,000 bytes" in _error(large, options, writer="never")
    assert "column payload is int" in _error(spark.sql("select 1 payload"), options, writer="never")
    assert "log no-such-log: there is no node" in _error(good, {**options, "log": "no-such-log"}, writer="never")
    assert _log(spark, cluster, "never").count() == 0


def test_rows_have_transaction_ids_and_none_goes_back(
    spark: SparkSession, cluster: DevCluster, options: dict[str, str], gateways: list[LogGatewayProcess]
) -> None:
    log = "sink-log-txids"
    with BlockingLogGatewayClient.connect([gateways[0].url]) as client:
        client.create(log)
    options = {**options, "log": log}

    def rows(first: int, count: int) -> DataFrame:
        return spark.range(first, first + count, 1, 2).selectExpr("encode(string(id), 'UTF-8') payload", "id txid")

    def txids() -> list[int]:
        source = {"log": log, "metadataUri": cluster.metadata_uri, "rows": "table"}
        found = spark.read.format("ledger").options(**source).load()
        assert found.where("string(payload) <> string(txid)").count() == 0
        return [row.txid for row in found.orderBy("_revision").select("txid").collect()]

    for _ in range(2):
        _write(rows(0, 1_000), options, writer="w", batch="0")  # Two partitions, one entry.
        _write(rows(1_000, 25_000).coalesce(1), options, writer="w", batch="1")
    assert txids() == list(range(26_000))
    said = _error(rows(500, 10), options, writer="w", batch="2")
    assert "row 0 of partition 0, column txid: 500 is below what the log has already" in said
    assert "it must be 25999" in said
    said = _error(rows(20_000, 25_000).coalesce(1), options, writer="w", batch="2")
    assert "row 0 of partition 0, column txid: 20000 is below what the log has already" in said
    falls = rows(30_000, 10).coalesce(1).sort("txid", ascending=False)
    assert "row 1 of partition 0, column txid: 30008 is below 30009" in _error(falls, options, writer="w", batch="2")
    assert "coalesce(1)" in _error(rows(30_000, 40_000), options, writer="spread")
    assert txids()[:26_000] == list(range(26_000))


def test_a_batch_without_a_writer_is_appended_and_leaves_nothing_behind(
    spark: SparkSession, cluster: DevCluster, options: dict[str, str]
) -> None:
    for count in (100, 30_000):
        _write(_rows(spark, f"passing-{count}", count), options)
        assert _log(spark, cluster, f"passing-{count}").count() == count
    bad = spark.range(30_000).selectExpr(
        "if(id = 29999, cast(null as binary), encode('passing-bad/', 'UTF-8')) payload"
    )
    assert "it is null" in _error(bad.coalesce(1), options)
    _write(_rows(spark, "passing-0", 0), options)
    command = [sys.executable, "-m", "rsm_spark", "log", "writer", "list", LOG, "--metadata-uri", cluster.metadata_uri]
    assert "spark/" not in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_other_rows_in_a_batch_that_had_begun_are_refused(
    spark: SparkSession, cluster: DevCluster, options: dict[str, str]
) -> None:
    bad = spark.range(40_000).selectExpr(
        "if(id = 39999, cast(null as binary), encode(concat('half/', id), 'UTF-8')) payload"
    )
    assert "column payload: it is null" in _error(bad.coalesce(1), options, writer="half", batch="0")
    begun = _log(spark, cluster, "half").count()
    assert 0 < begun < 40_000
    other = spark.range(40_000).selectExpr("encode(concat('half/other', id), 'UTF-8') payload").coalesce(1)
    assert "with other rows" in _error(other, options, writer="half", batch="0")
    assert "has begun and has not ended" in _error(other, options, writer="half", batch="1")
    mended = spark.range(40_000).selectExpr("encode(concat('half/', id), 'UTF-8') payload").coalesce(1)
    _write(mended, options, writer="half", batch="0")
    assert _log(spark, cluster, "half").distinct().count() == _log(spark, cluster, "half").count() == 40_000


def test_a_stream_goes_on_though_its_gateway_is_killed_and_another_checkpoint_is_refused(
    spark: SparkSession, cluster: DevCluster, options: dict[str, str], gateways: list[LogGatewayProcess], tmp_path: Path
) -> None:
    frame = _rows(spark, "stream", 20_000)
    frame.repartition(4).write.parquet(str(tmp_path / "in"))

    def start(checkpoint: str, **more: str) -> Any:
        source = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        return (
            source.writeStream.format("ledger")
            .options(**options, writer="stream", **more)
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    query = start("one")
    gateways[0].kill()
    assert query.awaitTermination(300)
    # The last batch is run again: the checkpoint does not know that it has ended.
    last = max((tmp_path / "one" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (last, last.with_name(f".{last.name}.crc")):
        file.unlink(missing_ok=True)
    start("one").awaitTermination(300)
    seen = Counter(bytes(row.payload) for row in _log(spark, cluster, "stream").collect())
    assert seen == Counter(bytes(row.payload) for row in frame.collect())
    other = start("two")
    with pytest.raises(Exception) as refused:  # noqa: PT011 - Spark's
        other.awaitTermination(300)
    assert f"takeOver={query.id}" in spoken_error(refused.value)


def test_readers_of_finished_batches_see_each_whole_over_restarts_and_never_one_without_an_end(
    spark: SparkSession, cluster: DevCluster, options: dict[str, str], tmp_path: Path
) -> None:
    source = {"log": LOG, "metadataUri": cluster.metadata_uri, "rows": "table", "finishedBatches": "true"}
    mine = "split(string(payload), '/')[0] prefix"

    def counts() -> dict[str, int]:
        """Read on from the checkpoint, in small micro-batches; return how many rows of each batch came so far."""
        stream = spark.readStream.format("ledger").options(
            **source, startingOffsets="earliest", maxBytesPerTrigger="1m"
        )
        query = (
            stream.load().selectExpr(mine, "payload").where("startswith(prefix, 'whole')")
            .writeStream.format("parquet").option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "read")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(300)
        rows = spark.read.parquet(str(tmp_path / "out")).groupBy("prefix").count().collect()
        return {row.prefix: row["count"] for row in rows}

    bad = spark.range(25_000).selectExpr(
        "if(id = 24999, cast(null as binary), encode(concat('whole-0/', id), 'UTF-8')) payload"
    )
    assert "it is null" in _error(bad.coalesce(1), options, writer="whole", batch="0")
    _write(_rows(spark, "whole-small", 100), options)
    begun = _log(spark, cluster, "whole-0").count()
    assert 0 < begun < 25_000
    assert counts() == {"whole-small": 100}
    good = spark.range(25_000).selectExpr("encode(concat('whole-0/', id), 'UTF-8') payload").coalesce(1)
    _write(good, options, writer="whole", batch="0")
    _write(_rows(spark, "whole-passing", 12_000), options)
    assert "it is null" in _error(bad.coalesce(1), options)  # Given up, and its rows stay in the log.
    assert _log(spark, cluster, "whole-0").count() > 25_000
    wanted = {"whole-small": 100, "whole-0": 25_000, "whole-passing": 12_000}
    assert counts() == wanted
    batch = spark.read.format("ledger").options(**source).load().selectExpr(mine, "payload", "_revision")
    found = batch.where("prefix = 'whole-0'")
    assert found.count() == found.select("payload").distinct().count() == 25_000

"""Spark writes into a replicated map: in batches and streams, once, whoever is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from connectors.error_text import spoken_error
from connectors.errors import OptionError
from connectors.sink.foreach_batch import batch_writer
from ledger.dev import DevCluster
from ledger.loop_thread import LoopThread
from rsm_spark.map import MapClient
from tests.integration.store_processes import StoreProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Target:
    """A map of two replicas that is written to."""

    def __init__(self, cluster: DevCluster, log: str, folder: Path) -> None:
        self.log, self._uri, self._folder = log, cluster.metadata_uri, folder
        self.replicas = [StoreProcess(self._uri, log, folder, f"target-{number}") for number in range(2)]
        self._loop = LoopThread("target")
        self.client = self._loop.run(MapClient.connect(log, self._uri))

    def options(self, **more: str) -> dict[str, str]:
        return {"log": self.log, "metadataUri": self._uri, "as": "map", **more}

    def versions(self) -> dict[bytes, int]:
        """Return how often each key was written."""

        async def read() -> dict[bytes, int]:
            keys = [row.key async for row in self.client.scan(keys_only=True)]
            found = await asyncio.gather(*map(self.client.get, keys))
            return {key: value.version for key, value in zip(keys, found, strict=True) if value is not None}

        return self._loop.run(read())

    def put(self, key: bytes, value: bytes) -> None:
        self._loop.run(self.client.put(key, value))

    def value(self, key: bytes) -> bytes | None:
        found = self._loop.run(self.client.get(key))
        return None if found is None else found.value

    def kill_leader(self) -> None:
        """Kill the replica that leads, and start it again."""
        self._loop.run(self.client.get(b"-"))
        leader = next(one for one in self.replicas if one.address == self.client.address)
        leader.kill()
        self.replicas.remove(leader)
        self.replicas.append(StoreProcess(self._uri, self.log, self._folder, leader.replica_id))

    def state(self, spark: SparkSession, prefix: str = "") -> DataFrame:
        """Return the map as Spark folds it from the log."""
        options = {"log": self.log, "metadataUri": self._uri, "table": "map"}
        frame = spark.read.format("ledger_state").options(**options).load()
        return frame.selectExpr("cast(key as string) key", "cast(value as string) value").where(
            f"startswith(key, '{prefix}')"
        )

    def close(self) -> None:
        self._loop.run(self.client.close())
        for replica in self.replicas:
            replica.kill()


@pytest.fixture(scope="module")
def target(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    made = Target(cluster, "sink-target", tmp_path_factory.mktemp("target"))
    yield made
    made.close()


def _rows(spark: SparkSession, prefix: str, count: int) -> DataFrame:
    return spark.range(count).selectExpr(f"concat('{prefix}/', id) key", "concat('value ', id) value")


def _error(frame: DataFrame, **options: str) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark has one for each place
        frame.write.format("ledger").options(**options).mode("append").save()
    return spoken_error(raised.value)


def test_a_batch_is_what_spark_reads_back(spark: SparkSession, target: Target) -> None:
    small, large = _rows(spark, "small", 500), _rows(spark, "large", 30_000)
    for frame in (small, large):
        frame.write.format("ledger").options(**target.options()).mode("append").save()
    for frame, prefix in ((small, "small/"), (large, "large/")):
        assert_df_equality(
            target.state(spark, prefix), frame, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True
        )


def test_a_numbered_batch_is_written_once(spark: SparkSession, target: Target) -> None:
    frame = _rows(spark, "once", 12_000)
    for batch in ("4", "4", "3"):
        frame.write.format("ledger").options(**target.options(writer="b", batch=batch)).mode("append").save()
    assert {version for key, version in target.versions().items() if key.startswith(b"once/")} == {1}
    frame.write.format("ledger").options(**target.options(writer="b", batch="5")).mode("append").save()
    assert {version for key, version in target.versions().items() if key.startswith(b"once/")} == {2}


def test_rows_delete_expire_and_compare(spark: SparkSession, target: Target) -> None:
    target.put(b"cas/a", b"1")
    target.put(b"cas/b", b"1")
    frame = spark.sql(
        """select * from values ('cas/a', '2', false, '1'), ('cas/b', '2', false, '0'), ('cas/new', '1', false, null),
        ('cas/gone', null, true, null) as t(key, value, `delete`, expected)"""
    )
    options = target.options(conflictPrefix="conflicts/", writer="cas", batch="0")
    for _ in range(2):
        frame.write.format("ledger").options(**options).mode("append").save()
    found = [target.value(key) for key in (b"cas/a", b"cas/b", b"cas/new", b"cas/gone", b"conflicts/cas/b")]
    assert found == [b"2", b"1", b"1", None, b"2"]
    assert target.versions()[b"conflicts/cas/b"] == 1


def test_what_is_wrong_is_said_in_one_sentence_and_nothing_is_written(spark: SparkSession, target: Target) -> None:
    options = target.options()
    good = _rows(spark, "never", 100)
    bad_key = good.unionByName(spark.sql("select cast(null as string) key, 'x' value"))
    assert "column key: it is null" in _error(bad_key.coalesce(1), **options)
    large = good.unionByName(spark.sql("select 'never/large' key, repeat('x', 10000000) value"))
    assert "column value (key b'never/large'): a value has at most" in _error(large.coalesce(1), **options)
    assert "column key is int, it must be binary or string" in _error(spark.sql("select 1 key, 'x' value"), **options)
    assert "unknown option wirter: did you mean writer?" in _error(good, **options, wirter="x")
    assert not [key for key in target.versions() if key.startswith(b"never/")]
    with pytest.raises(Exception, match="mode overwrite is refused|overwrite"):
        good.write.format("ledger").options(**options).mode("overwrite").save()


def test_a_stream_goes_on_though_its_leader_is_killed_and_another_checkpoint_is_refused(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    source = str(tmp_path / "in")
    frame = _rows(spark, "stream", 20_000)
    frame.repartition(4).write.parquet(source)

    def start(checkpoint: str, **more: str) -> Any:
        return (
            spark.readStream.schema(frame.schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(source)
            .writeStream.format("ledger")
            .options(**target.options(writer="stream", **more))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    query = start("one")
    target.kill_leader()
    assert query.awaitTermination(300)
    start("one").awaitTermination(300)
    assert_df_equality(
        target.state(spark, "stream/"), frame, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True
    )
    assert {version for key, version in target.versions().items() if key.startswith(b"stream/")} == {1}
    other = start("two")
    with pytest.raises(Exception) as refused:  # noqa: PT011 - Spark's
        other.awaitTermination(300)
    assert f"takeOver={query.id}" in spoken_error(refused.value)
    start("two", takeOver=str(query.id)).awaitTermination(300)
    assert {version for key, version in target.versions().items() if key.startswith(b"stream/")} == {2}


def test_a_micro_batch_of_foreach_batch_is_written_once_though_it_is_run_again(
    spark: SparkSession, target: Target, tmp_path: Path
) -> None:
    frame = _rows(spark, "each", 200)
    frame.repartition(2).write.parquet(str(tmp_path / "in"))
    write = batch_writer(**target.options(writer="each"))
    runs: list[int] = []

    def each(batch: DataFrame, batch_id: int) -> None:
        runs.append(batch_id)
        write(batch, batch_id)
        if len(runs) == 2:
            raise RuntimeError("written, and the checkpoint does not know")

    def start() -> Any:
        source = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        return (
            source.writeStream.foreachBatch(each)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    with pytest.raises(Exception, match="the checkpoint does not know"):
        start().awaitTermination(300)
    start().awaitTermination(300)
    assert runs == [0, 1, 1]
    assert {version for key, version in target.versions().items() if key.startswith(b"each/")} == {1}
    assert sum(key.startswith(b"each/") for key in target.versions()) == 200
    with pytest.raises(OptionError, match="the id of the stream is not told here"):
        write(frame, 0)

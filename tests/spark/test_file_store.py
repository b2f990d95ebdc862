"""Checkpoints of Spark in a file store: stateful queries restarted, the leader killed; tables, changed by several."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delta import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from tests.integration.file_stores import SERVE
from tests.integration.store_processes import Stores, stores
from tests.spark.stateful_sums import Told, folded, sums_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ledger.dev import DevCluster

_FILES, _LINES, _KEYS = 8, 200, 20
_APPENDS = 3
_TIMEOUT_S = 300
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_FAILOVER = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Files of which a micro-batch takes one."""
    folder = tmp_path / "source"
    folder.mkdir()
    for number in range(_FILES):
        lines = (json.dumps({"k": f"k{(number * 7 + line) % _KEYS}", "v": line}) for line in range(_LINES))
        (folder / f"{number:02d}.json").write_text("\n".join(lines))
    return folder


def _expected() -> dict[str, int]:
    keys = (f"k{(number * 7 + line) % _KEYS}" for number in range(_FILES) for line in range(_LINES))
    return dict(Counter(keys))


class _Counts:
    """A stateful query that counts keys; what it has told over all its runs."""

    def __init__(self, spark: SparkSession, source: Path, checkpoint: str) -> None:
        self.spark, self.source, self.checkpoint = spark, source, checkpoint
        self.counts: dict[str, int] = {}
        self.batches: list[int] = []
        self.stop_at = -1
        self.before_batch: dict[int, Any] = {}

    def _keep(self, frame: DataFrame, batch: int) -> None:
        if batch == self.stop_at:
            raise RuntimeError("stop here")
        self.before_batch.pop(batch, lambda: None)()
        self.counts.update({row.k: row.n for row in frame.collect()})
        self.batches.append(batch)

    def run(self) -> None:
        frame = self.spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1).json(str(self.source))
        counted = frame.groupBy("k").agg(F.count("*").alias("n"))
        writer = counted.writeStream.outputMode("update").foreachBatch(self._keep)
        query = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(_TIMEOUT_S)


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[SparkSession]:
    """Keep the state of queries in RocksDB, its changes in the checkpoint."""
    settings = {
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # As Spark has it wherever the checkpoint is not a folder of this machine.
        _MANAGER: "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager",
    }
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def test_a_stateful_query_stops_and_goes_on_from_its_checkpoint(
    rocksdb: SparkSession, cluster: DevCluster, source: Path, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, "files-of-spark", tmp_path) as running:
        address = running.start("a", "--http-port", "0", command=SERVE).ready["http_address"]
        query = _Counts(rocksdb, source, f"webhdfs://{address}/checkpoints/counts")
        query.stop_at = 3
        with pytest.raises(Exception, match="stop here"):
            query.run()
        query.stop_at = -1
        query.run()
        assert query.counts == _expected()
        assert query.batches == list(range(_FILES))


def test_a_query_goes_on_while_the_leader_of_its_checkpoints_is_killed(
    rocksdb: SparkSession, cluster: DevCluster, source: Path, tmp_path: Path
) -> None:
    options = ("--http-port", "0", "--session-timeout-ms", "2000")
    with stores(cluster.metadata_uri, "files-of-two", tmp_path) as running:
        addresses = {name: running.start(name, *options, command=SERVE).ready["http_address"] for name in ("a", "b")}
        leader = asyncio.run(running.leader()).replica_id
        # The one that will be killed is the first that Hadoop's client asks.
        order = sorted(addresses, key=lambda name: name != leader)
        name = _name_service(rocksdb, f"two-{tmp_path.name}".replace("_", "-"), [addresses[one] for one in order])
        query = _Counts(rocksdb, source, f"webhdfs://{name}/checkpoints/counts")
        query.before_batch[2] = lambda: _kill(running, leader)
        query.run()
        assert query.counts == _expected()
        assert query.batches == list(range(_FILES))
        assert not query.before_batch, "nobody was killed"


def _kill(running: Stores, replica_id: str) -> None:
    running.gone(replica_id).kill()


def _name_service(spark: SparkSession, name: str, addresses: list[str]) -> str:
    """Tell Hadoop's client of servers under one name; return the name."""
    spark.conf.set("dfs.nameservices", name)
    spark.conf.set(f"dfs.ha.namenodes.{name}", ",".join(f"n{place}" for place in range(len(addresses))))
    for place, address in enumerate(addresses):
        spark.conf.set(f"dfs.namenode.http-address.{name}.n{place}", address)
    spark.conf.set(f"dfs.client.failover.proxy.provider.{name}", _FAILOVER)
    return name


def test_transform_with_state_goes_on_from_its_checkpoint_at_another_server(
    rocksdb: SparkSession, cluster: DevCluster, source: Path, tmp_path: Path
) -> None:
    """Three states of each key, two stops: what is told in the end is a plain fold of all rows."""
    with stores(cluster.metadata_uri, "files-of-states", tmp_path) as running:
        addresses = [running.start(name, "--http-port", "0", command=SERVE).ready["http_address"] for name in "ab"]
        told: dict[str, Told] = {}
        batches: list[int] = []
        stop_at = -1

        def keep(frame: DataFrame, batch: int) -> None:
            if batch == stop_at:
                raise RuntimeError("stop here")
            told.update({row.k: (row.n, row.top, row.kinds) for row in frame.collect()})
            batches.append(batch)

        def run(address: str) -> None:
            frame = rocksdb.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1).json(str(source))
            writer = sums_of(frame).writeStream.outputMode("update").foreachBatch(keep)
            writer = writer.option("checkpointLocation", f"webhdfs://{address}/checkpoints/states")
            assert writer.trigger(availableNow=True).start().awaitTermination(_TIMEOUT_S)

        for place, stop_at in enumerate((2, 5)):  # noqa: B007 - `keep` reads it
            with pytest.raises(StreamingQueryException, match="stop here"):
                run(addresses[place % 2])
        stop_at = -1
        run(addresses[0])
        assert batches == list(range(_FILES))
        rows = [(f"k{(number * 7 + line) % _KEYS}", line) for number in range(_FILES) for line in range(_LINES)]
        assert told == folded(rows)


def test_a_table_is_written_and_read_in_a_file_store(spark: SparkSession, cluster: DevCluster, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, "files-of-tables", tmp_path) as running:
        address = running.start("a", "--http-port", "0", command=SERVE).ready["http_address"]
        for kind in ("parquet", "delta"):
            path = f"webhdfs://{address}/tables/{kind}"
            spark.range(100).withColumn("even", F.expr("id % 2 = 0")).write.format(kind).save(path)
            spark.range(100, 150).withColumn("even", F.lit(False)).write.format(kind).mode("append").save(path)
            read = spark.read.format(kind).load(path)
            assert (read.count(), read.where("even").count()) == (150, 50), kind


def test_a_delta_table_in_a_file_store_is_changed_by_several_at_once(
    spark: SparkSession, cluster: DevCluster, tmp_path: Path
) -> None:
    """Each version is one writer's: two threads append, at two servers; nothing is lost or there twice."""
    with stores(cluster.metadata_uri, "files-of-delta", tmp_path) as running:
        addresses = [running.start(name, "--http-port", "0", command=SERVE).ready["http_address"] for name in "ab"]
        paths = [f"webhdfs://{address}/tables/shared" for address in addresses]
        spark.range(10).withColumn("n", F.lit(0)).write.format("delta").save(paths[0])

        def append(number: int) -> None:
            for turn in range(_APPENDS):
                first = 1000 * (number + 1) + 10 * turn
                spark.range(first, first + 10).withColumn("n", F.lit(1)).write.format("delta").mode("append").save(
                    paths[number % 2]
                )

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(append, number) for number in range(2)]:
                done.result(_TIMEOUT_S)
        table = DeltaTable.forPath(spark, paths[1])
        changes = spark.range(5, 15).withColumn("n", F.lit(2))
        merge = table.alias("t").merge(changes.alias("c"), "t.id = c.id")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        table.delete("id = 0")
        rows = {row.id: row.n for row in spark.read.format("delta").load(paths[0]).collect()}
        appended = {1000 * (number + 1) + at: 1 for number in range(2) for at in range(10 * _APPENDS)}
        assert rows == dict.fromkeys(range(1, 5), 0) | dict.fromkeys(range(5, 15), 2) | appended
        versions = sorted(row.version for row in table.history().select("version").collect())
        assert versions == list(range(2 * _APPENDS + 3)), "one version for each that wrote"
        before = spark.read.format("delta").option("versionAsOf", 2 * _APPENDS).load(paths[1])
        assert before.count() == 10 + 20 * _APPENDS

"""A stateful query that counts keys, with its checkpoint in a file store; each batch is kept in a file of its own.

python counting_query.py FOLDER ADDRESS…: lines of JSON are in FOLDER/source, a file a batch; what batches tell goes to
FOLDER/batches. The addresses are the servers of the file store, in the order in which they are asked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from connectors.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
_FAILOVER = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.minBatchesToRetain": "2",
    # As Spark has it wherever the checkpoint is not a folder of this machine.
    "spark.sql.streaming.checkpointFileManagerClass": _MANAGER,
    "spark.sql.shuffle.partitions": "2",
}


def name_service(spark: SparkSession, name: str, addresses: Sequence[str]) -> str:
    """Tell Hadoop's client of servers under one name; return the name."""
    spark.conf.set("dfs.nameservices", name)
    spark.conf.set(f"dfs.ha.namenodes.{name}", ",".join(f"n{place}" for place in range(len(addresses))))
    for place, address in enumerate(addresses):
        spark.conf.set(f"dfs.namenode.http-address.{name}.n{place}", address)
    spark.conf.set(f"dfs.client.failover.proxy.provider.{name}", _FAILOVER)
    return name


def count(spark: SparkSession, folder: Path, checkpoint: str) -> None:
    """Run the query until there is nothing more."""
    batches = folder / "batches"

    def keep(frame: DataFrame, batch: int) -> None:
        text = json.dumps({row.k: row.n for row in frame.collect()}, sort_keys=True)
        place = batches / str(batch)
        if place.exists():
            assert place.read_text() == text, f"batch {batch} is another one when it is run again"
            return
        (batches / ".next").write_text(text)
        (batches / ".next").replace(place)

    rows = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1).json(str(folder / "source"))
    counted = rows.groupBy("k").agg(F.count("*").alias("n"))
    writer = counted.writeStream.outputMode("update").foreachBatch(keep).trigger(availableNow=True)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()


def main(arguments: Sequence[str]) -> None:
    folder = Path(arguments[0])
    small = {"spark.ui.enabled": "false", "spark.driver.extraJavaOptions": _JVM}
    spark = spark_session("count", local="local[2]", conf={**SETTINGS, **small})
    count(spark, folder, f"webhdfs://{name_service(spark, 'counted', arguments[1:])}/checkpoint")


if __name__ == "__main__":
    main(sys.argv[1:])

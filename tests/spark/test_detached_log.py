"""A fork that is detached and renamed while a stream follows it: that goes on from where it stands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.dev import DevCluster
from tests.integration.store_processes import StoreProcess
from tests.integration.test_log_fork import ForkCommand
from tests.spark.followed_log import check_state, put_some

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_stream_goes_on_from_its_checkpoint_in_the_copies_and_under_the_new_name(
    spark: SparkSession, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, old = cluster.metadata_uri, unique_name
    fork, new = f"{old}-fork", f"{old}-new"
    commands = ForkCommand(uri, tmp_path / "backups")
    key = str(tmp_path / "log.key")
    asyncio.run(commands.done("log", "key", "new", "--file", key, "--json"))
    options = ("--log-key", key, "--roll-records", "60", "--checkpoint-records", "20")
    (tmp_path / "live").mkdir()
    replica = StoreProcess(uri, old, tmp_path / "live", "a", *options)
    try:
        border = asyncio.run(put_some(old, uri, 0, 70))
        asyncio.run(put_some(old, uri, 70, 200))
        made = asyncio.run(commands.fork(old, fork, "--log-key", key, "--at-revision", str(border)))
    finally:
        replica.stop()
    assert (made["shared"] > 1, made["bytes"]) == (True, 0), "it ends within a ledger that is shared"
    source = {"metadataUri": uri, "logKeyFile": key}

    def _read(log: str) -> list[Any]:
        reader = spark.readStream.format("ledger").options(log=log, startingOffsets="earliest", **source)
        query = (
            reader.load().select("revision").writeStream.format("parquet")
            .option("path", str(tmp_path / "rows")).option("checkpointLocation", str(tmp_path / "stream"))
        )  # fmt: skip
        query.trigger(availableNow=True).start().awaitTermination()
        return sorted(row.revision for row in spark.read.parquet(str(tmp_path / "rows")).collect())

    assert _read(fork) == list(range(1, made["revision"] + 1))
    asyncio.run(commands.log("detach", fork, "--log-key", key))
    asyncio.run(commands.log("delete", old, "--yes"))
    asyncio.run(commands.log("rename", fork, new))
    (tmp_path / "fork").mkdir()
    replica = StoreProcess(uri, new, tmp_path / "fork", "a", *options)
    try:
        end = asyncio.run(put_some(new, uri, 70, 150))
    finally:
        replica.stop()
    read = _read(new)
    assert read == list(range(1, read[-1] + 1)), "each record once"
    assert read[-1] >= end
    check_state(spark, new, made["revision"], source, count=70)

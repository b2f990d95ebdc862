"""A log that was made of a backup, through Spark: its state before and behind the border, a follower, proofs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.dev import DevCluster
from tests.integration.backed_up_log import BackupCommand
from tests.integration.store_processes import StoreProcess
from tests.spark.followed_log import check_followed_and_proved, check_state, put_some

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_state_followers_and_proofs_reach_across_the_border(
    spark: SparkSession, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, old, new = cluster.metadata_uri, unique_name, f"{unique_name}-new"
    commands = BackupCommand(uri, tmp_path / "backups")
    key = str(tmp_path / "log.key")
    asyncio.run(commands.done("log", "key", "new", "--file", key, "--json"))
    options = ("--log-key", key, "--roll-records", "60", "--checkpoint-records", "20")
    for log, first, last in ((old, 0, 120), (new, 120, 200)):
        (tmp_path / log).mkdir()
        replica = StoreProcess(uri, log, tmp_path / log, "a", *options)
        try:
            end = asyncio.run(put_some(log, uri, first, last))
        finally:
            replica.stop()
        if log == old:
            border = end
            asyncio.run(commands.create(old, "--no-snapshot"))
            restored = asyncio.run(commands.restore(old, new, "--at-revision", str(border), "--log-key", key))
            assert restored["revision"] <= border
    source = {"metadataUri": uri, "logKeyFile": key}
    for revision, count in ((restored["revision"], 120), (end, 200)):
        check_state(spark, new, revision, source, count=count)
    check_followed_and_proved(spark, new, restored["log_id"], source, tmp_path, count=200, end=end)

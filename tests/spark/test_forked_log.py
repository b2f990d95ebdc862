"""A fork through Spark: its state before and behind the border, a follower, proofs, while its origin is trimmed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ledger.dev import DevCluster
from tests.integration.backed_up_log import BackupCommand
from tests.integration.store_processes import StoreProcess
from tests.spark.followed_log import check_followed_and_proved, check_state, put_some

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_state_followers_and_proofs_of_a_fork_need_nothing_of_its_origin(
    spark: SparkSession, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, old, new = cluster.metadata_uri, unique_name, f"{unique_name}-new"
    commands = BackupCommand(uri, tmp_path / "none")
    where = ("--metadata-uri", uri, "--json")
    key = str(tmp_path / "log.key")
    asyncio.run(commands.done("log", "key", "new", "--file", key, "--json"))
    options = ("--log-key", key, "--roll-records", "60", "--checkpoint-records", "20", "--retention-s", "0")
    for log in (old, new):
        (tmp_path / log).mkdir()
    origin = StoreProcess(uri, old, tmp_path / old, "a", *options)
    try:
        border = asyncio.run(put_some(old, uri, 0, 200))
        asyncio.run(put_some(old, uri, 900, 1000))
        cut = ("--at-revision", str(border))
        forked = asyncio.run(commands.done("log", "fork", old, "--as", new, *cut, "--log-key", key, *where))
        assert forked["revision"] == border
        assert forked["shared"] >= 3
        assert forked["bytes"] == 0, "it ends in the midst of a closed ledger"
        replica = StoreProcess(uri, new, tmp_path / new, "a", *options)
        try:
            end = asyncio.run(put_some(new, uri, 200, 260))
        finally:
            replica.stop()
    finally:
        origin.stop()
    asyncio.run(commands.done("log", "delete", old, "--yes", *where))
    source = {"metadataUri": uri, "logKeyFile": key}
    former, new = new, f"{new}er"
    asyncio.run(commands.done("log", "rename", former, new, *where))
    with pytest.raises(Exception, match=f"use the name {new}"):  # noqa: B017 - the driver's, or Spark's of it
        check_state(spark, former, border, source, count=200)
    for revision, count in ((border, 200), (end, 260)):
        check_state(spark, new, revision, source, count=count)
    check_followed_and_proved(spark, new, forked["log_id"], source, tmp_path, count=260, end=end)

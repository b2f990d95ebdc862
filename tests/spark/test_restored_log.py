"""A log that was made of a backup, through Spark: its state before and behind the border, a follower, proofs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from connectors.delta.materialize import Materializer
from connectors.delta.settings import MaterializeSettings
from connectors.state.frame import state_as_of
from connectors.state.verify import VerifySettings, verify_log
from ledger.dev import DevCluster
from rsm_spark.core.records import pack
from rsm_spark.map.client.client import MapClient
from tests.integration.backed_up_log import BackupCommand
from tests.integration.store_processes import StoreProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


async def put_some(log: str, uri: str, first: int, last: int) -> int:
    revision = 0
    async with await MapClient.connect(log, uri) as client:
        for number in range(first, last):
            revision = await client.put(b"k%d" % (number % 30), b"v%d" % number)
    return revision


def expected_rows(last: int) -> dict[bytes, bytes]:
    return {pack([b"k%d" % (number % 30)]): pack([b"v%d" % number]) for number in range(last)}


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
        rows = state_as_of(spark, new, revision, source=source).where("table_name = 'map'").collect()
        assert {bytes(row.key): bytes(row.row) for row in rows} == expected_rows(count)
    place = str(tmp_path / "table")
    settings = MaterializeSettings(
        log=new, place=place, source=source, checkpoint=str(tmp_path / "checkpoint"), available_now=True
    )
    summary = Materializer(spark, settings, report=lambda _: None).run()
    assert summary.position.log_id == restored["log_id"]
    table = DeltaTable(place).to_pyarrow_table().to_pylist()
    assert {row["key"]: row["value"] for row in table} == {b"k%d" % (n % 30): b"v%d" % n for n in range(200)}
    proved = verify_log(spark, VerifySettings(new, tables=(place,), source=source))
    assert proved.ok, proved.differences
    assert proved.covered.last_revision >= end

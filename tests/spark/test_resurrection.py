"""A log whose beginning and whose every replica's disk are gone comes back from what Spark wrote to the lake."""

from __future__ import annotations

import asyncio
import importlib
import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from rsm_spark.log.chain_store import ChainStore
from rsm_spark.map.client.client import MapClient
from tests.bench.store_load import start_replica

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
_WAIT_S = 120.0
_OPTIONS = ("--checkpoint-records", "50", "--roll-records", "200", "--snapshot-s", "0", "--snapshot-bytes", "0")
_TRIM = ("--retention-s", "0", "--trim-s", "0.5", "--trim-single-copy")


def job(capsys: pytest.CaptureFixture[str], name: str, *arguments: str) -> dict[str, Any]:
    """Run a job in this process and return its last line."""
    code = importlib.import_module(f"jobs.{name}").main(list(arguments))
    last: dict[str, Any] = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert code == 0, last
    return last


async def contents(log: str, uri: str) -> dict[bytes, bytes]:
    async with await MapClient.connect(log, uri, timeout_s=60) as client:
        return {row.key: row.value async for row in client.scan()}


async def first_revision(client: LedgerClient, log: str) -> int:
    chain, _ = await ChainStore(client.store, log).read()
    return chain.ledgers[0].first_revision


@pytest.mark.timeout(600)
def test_a_service_comes_back_from_the_lake_that_spark_wrote(
    spark: SparkSession, cluster: DevCluster, unique_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark  # the jobs use the session that there is
    asyncio.run(_come_back(cluster, unique_name, tmp_path, capsys))


async def _come_back(cluster: DevCluster, log: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri, lake = cluster.metadata_uri, str(folder / "lake")
    where = ("--log", log, "--metadata-uri", uri, "--lake", lake)
    first = await start_replica("first", cluster, folder, *_OPTIONS, *_TRIM, "--lake", lake, log=log)
    client = await LedgerClient.connect(uri)
    try:
        async with await MapClient.connect(log, uri, timeout_s=60) as store:
            for begin in range(0, 1_000, 100):
                await store.put_many((b"key-%d" % (n % 300), b"value-%d" % n) for n in range(begin, begin + 100))
        before = await contents(log, uri)
        made = await asyncio.to_thread(job, capsys, "snapshot", *where, "--at-checkpoint")
        verdict = await asyncio.to_thread(job, capsys, "verify", *where)
        assert verdict["reported"] == {"revision": made["manifest"]["revision"], "refusal": ""}
        deadline = time.monotonic() + _WAIT_S
        while await first_revision(client, log) == 1:
            assert time.monotonic() < deadline, "nothing was trimmed although a snapshot is verified"
            await asyncio.sleep(0.2)
        first.kill()
        await first.wait()
        shutil.rmtree(folder / "first")
        second = await start_replica("second", cluster, folder, *_OPTIONS, "--lake", lake, log=log)
        try:
            assert await contents(log, uri) == before
            again = await asyncio.to_thread(job, capsys, "verify", *where, "--no-report")
        finally:
            await second.stop()
        assert again["ok"]
        assert "the lake's snapshot of revision" in again["covered"]["begins"]
        assert again["covered"]["first_revision"] == made["manifest"]["revision"] + 1
    finally:
        await first.stop()
        await client.close()

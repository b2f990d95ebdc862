"""Queues that are full while Spark writes: the micro-batch takes as long as it must, and every row is there once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.client.client import AsyncBrokerClient
from broker.client.errors import QueueFullError
from broker.client.task import NewTask
from ledger.dev import DevCluster
from rsm_spark.errors import OverloadedError
from rsm_spark.map import MapClient
from tests.integration.broker_processes import brokers
from tests.integration.store_processes import StoreProcess, stores
from tests.integration.worker_processes import TASKS, started
from tests.spark.short_queue_store import REQUESTS_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TIMEOUT_S = 300
_ROWS, _KEYS, _VALUE_BYTES = 16_000, 100, 4_000
_RIVAL, _RIVALS = b"rival-", 200
_LOOKS = 20
"""While bookies stand still: for less than a leader waits for their answers."""
_TASKS, _WAITING_MAX, _CHUNK = 14_000, 5_000, 4_000


def _started(frame: DataFrame, folder: Path, spark: SparkSession, **options: str) -> Any:
    """Start a query that writes the rows of a frame in one micro-batch."""
    frame.repartition(2).write.parquet(str(folder / "in"))
    rows = spark.readStream.schema(frame.schema).parquet(str(folder / "in"))
    return (
        rows.writeStream.format("ledger")
        .options(**options, writer="job", timeout="5m")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def _check_ended(query: Any) -> None:
    assert query.awaitTermination(_TIMEOUT_S)
    assert query.exception() is None
    assert [progress.batchId for progress in query.recentProgress if progress.numInputRows] == [0]


def test_a_leader_whose_bookies_stand_still_fills_its_queue_and_slows_spark_down(
    spark: SparkSession, whole_cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    put = f"concat('9301C4', lpad(hex(length(k)), 2, '0'), hex(k), 'C5', lpad(hex({_VALUE_BYTES}), 4, '0'))"
    frame = spark.range(_ROWS).selectExpr(f"concat('key-', id % {_KEYS}) k")
    frame = frame.selectExpr(f"unhex(concat({put}, repeat('61', {_VALUE_BYTES}))) command")
    told = tmp_path / "told"
    with stores(whole_cluster.metadata_uri, unique_name, tmp_path) as running:
        leader = running.start("a", command=("tests.spark.short_queue_store", str(told), "run"))
        query = _started(
            frame, tmp_path, spark, log=unique_name, metadataUri=whole_cluster.metadata_uri, **{"as": "commands"}
        )
        asyncio.run(_stand_still(whole_cluster, leader, told, query))
        _check_ended(query)
        versions = asyncio.run(_used(unique_name, whole_cluster.metadata_uri))
    written = {key: count for key, count in versions.items() if not key.startswith(_RIVAL)}
    assert written == dict.fromkeys((b"key-%d" % number for number in range(_KEYS)), _ROWS // _KEYS)


async def _used(log: str, metadata_uri: str) -> dict[bytes, int]:
    """Return how often each key was written."""
    async with await MapClient.connect(log, metadata_uri) as client:
        keys = [row.key async for row in client.scan(keys_only=True)]
        found = await asyncio.gather(*map(client.get, keys))
        return {key: value.version for key, value in zip(keys, found, strict=True) if value is not None}


async def _stand_still(cluster: DevCluster, leader: StoreProcess, told: Path, query: Any) -> None:
    """Have all bookies stand still, again and again, until the leader has refused rows: its queue was full.

    Others write too: Spark's tasks alone, each with one chunk under way, are no more than there is room for.
    """
    deadline_s = time.monotonic() + _TIMEOUT_S
    bookies = range(len(cluster.bookies))
    async with await MapClient.connect(leader.log, cluster.metadata_uri) as client:
        rivals = [asyncio.create_task(_write_until(told, client, number)) for number in range(_RIVALS)]
        while not told.exists():
            for number in bookies:
                cluster.pause_bookie(number)
            for _ in range(_LOOKS):
                status = await leader.status()
                assert status["queued"] <= REQUESTS_MAX
                await asyncio.sleep(0.05)
            for number in bookies:
                cluster.resume_bookie(number)
            assert told.exists() or query.isActive, query.exception()
            assert time.monotonic() < deadline_s, status
            await asyncio.sleep(0.05)
        await asyncio.gather(*rivals)


async def _write_until(told: Path, client: MapClient, number: int) -> None:
    while not told.exists():
        with contextlib.suppress(OverloadedError):
            await client.put(_RIVAL + b"%d" % number, b"")


def test_a_tenant_whose_queue_is_full_slows_spark_down_until_workers_have_made_room(
    spark: SparkSession, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    frame = spark.range(_TASKS).selectExpr("'acme' tenant", "'noop' type", "cast(id as string) payload")
    where = ("--metadata-uri", cluster.metadata_uri, "--log", unique_name)
    options = {"log": unique_name, "metadataUri": cluster.metadata_uri, "as": "tasks"}
    with brokers(tmp_path, "a", options=(*where, "--tenant-waiting-max", str(_WAITING_MAX))) as (broker,):
        query = _started(frame, tmp_path, spark, **options)
        asyncio.run(_wait_until_no_more_fits(broker.url, query))
        with started(tmp_path, "w1", *where, "--tasks", TASKS):
            _check_ended(query)
            asyncio.run(_wait_until_done(broker.url))
        tasks = spark.read.format("ledger_state").options(
            log=unique_name, metadataUri=cluster.metadata_uri, table="tasks"
        ).load()  # fmt: skip
        found = Counter(row.payload for row in tasks.selectExpr("cast(payload as string) payload").collect())
    assert found == {str(number): 1 for number in range(_TASKS)}


async def _wait_until_no_more_fits(url: str, query: Any) -> None:
    """Wait until a chunk of the sink's is more than the tenant may still have."""
    deadline_s = time.monotonic() + _TIMEOUT_S
    async with await AsyncBrokerClient.connect([url], tenant="acme") as client:
        while (count := sum((await client.overview()).by_status.values())) + _CHUNK <= _WAITING_MAX:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline_s, count
            await asyncio.sleep(0.05)
        with pytest.raises(QueueFullError):
            await client.submit_many([NewTask("noop")] * (_WAITING_MAX - count + 1), batch=_WAITING_MAX)


async def _wait_until_done(url: str) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    async with await AsyncBrokerClient.connect([url], tenant="acme") as client:
        while (counts := (await client.overview()).by_status) != {"finished": _TASKS}:
            assert time.monotonic() < deadline_s, counts
            await asyncio.sleep(0.1)

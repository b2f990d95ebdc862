"""Frames and streams beside what a map holds under their keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from connectors.state.lookup import map_lookup
from ledger.dev import DevCluster
from rsm_spark.map import MapClient
from tests.integration.store_processes import StoreProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = "lookup-people"


@pytest.fixture(scope="module")
def replicas(cluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[StoreProcess]]:
    folder = tmp_path_factory.mktemp("people")
    running: list[StoreProcess] = []
    try:
        for number in range(2):
            running.append(StoreProcess(cluster.metadata_uri, LOG, folder, f"people-{number}"))
        yield running
    finally:
        for one in running:
            one.kill()


def _put(uri: str, rows: dict[bytes, bytes]) -> None:
    async def put() -> None:
        async with await MapClient.connect(LOG, uri, timeout_s=120) as client:
            await client.put_many(rows.items())

    asyncio.run(put())


def test_a_batch_has_the_values_of_its_keys(
    spark: SparkSession, cluster: DevCluster, replicas: list[StoreProcess]
) -> None:
    uri = cluster.metadata_uri
    _put(uri, {b"p%d" % number: b"name %d" % number for number in range(3_000)})
    frame = spark.range(9_000).selectExpr(
        "case when id % 3 = 0 then null when id = 1 then repeat('x', 100000) else concat('p', id % 4000) end who", "id"
    )
    look = map_lookup(LOG, key="who", value="name", revision="at", metadata_uri=uri, read_from="followers")
    found = frame.transform(look).collect()
    assert len(found) == 9_000
    for row in found:
        number = row.id % 4_000
        if row.id % 3 == 0 or row.id == 1 or number >= 3_000:
            assert (row.name, row["at"]) == (None, None)
        else:
            assert row.name == b"name %d" % number
            assert row["at"] > 0


def test_a_stream_sees_what_was_written_since_and_a_leader_that_is_killed_stops_nothing(
    spark: SparkSession, cluster: DevCluster, replicas: list[StoreProcess], tmp_path: Path
) -> None:
    uri = cluster.metadata_uri
    seen: dict[int, list[Any]] = {}
    (tmp_path / "in").mkdir()
    source = spark.readStream.schema("who string").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    joined = source.transform(map_lookup(LOG, key="who", value="name", metadata_uri=uri))

    def keep(frame: Any, batch_id: int) -> None:
        seen[batch_id] = [row.name for row in frame.collect()]

    query = joined.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        for number in range(3):
            _put(uri, {b"ann": b"Ann the %d." % number})
            if number == 2:
                replicas[0].kill()
            spark.sql("select 'ann' who").write.mode("append").parquet(str(tmp_path / "in"))
            query.processAllAvailable()
    finally:
        query.stop()
    assert [name for _, names in sorted(seen.items()) for name in names] == [
        b"Ann the 0.",
        b"Ann the 1.",
        b"Ann the 2.",
    ]

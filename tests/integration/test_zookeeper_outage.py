"""A service whose adds are confirmed outlives its referee."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.map.client.client import MapClient
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio

OUTAGE_PUTS = 200


async def test_puts_and_reads_go_on_while_zookeeper_is_frozen(
    start_cluster: Callable[..., DevCluster], unique_name: str, tmp_path: Path
) -> None:
    cluster = start_cluster(bookie_count=2)
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        replicas.start("a")
        replicas.start("b")
        async with await MapClient.connect(unique_name, cluster.metadata_uri) as client:
            before = await client.put(b"n", b"before")
            leader = (await replicas.leader()).address
            cluster.pause_zookeeper()
            try:
                for number in range(OUTAGE_PUTS):
                    await client.put(b"n", b"%d" % number, timeout_s=60)
                found = await client.get(b"n", timeout_s=60)
            finally:
                cluster.resume_zookeeper()
            assert found is not None
            assert found.value == b"%d" % (OUTAGE_PUTS - 1)
            assert found.revision >= before + OUTAGE_PUTS
            async with asyncio.timeout(60):
                while await client.put(b"n", b"after") <= found.revision:
                    pass
            assert client.address == leader or (await replicas.leader()).address == client.address

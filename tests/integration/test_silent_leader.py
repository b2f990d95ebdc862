"""A leader that stands still is replaced while its session with ZooKeeper lives, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from ledger.zookeeper.session import connect
from ledger.zookeeper.uri import MetadataUri
from rsm_spark.client.service_client import ServiceClient
from rsm_spark.errors import ConnectionLostError, RsmError
from rsm_spark.log.discovery import Discovery
from rsm_spark.map import MapClient
from tests.integration.store_processes import StoreProcess, Stores, stores
from tests.integration.test_store_cluster import run_cli

pytestmark = pytest.mark.asyncio
_SESSION = ("--session-timeout-ms", "10000")
_HANGING = ("rsm_spark", "serve", "tests.integration.hanging_counters:HangingCounters")


async def _is_replaced(replicas: Stores, old: StoreProcess, ended: asyncio.Event) -> None:
    """Wait until another replica leads; its predecessor's session must still live then."""
    store = await connect(MetadataUri.of(replicas.metadata_uri).hosts)
    try:
        discovery = Discovery(store, replicas.log)
        async with asyncio.timeout(60):
            while True:
                found = await discovery.leader()
                if found is not None and found[0].replica_id != old.replica_id:
                    break
                await asyncio.sleep(0.02)
        assert await discovery.member(old.replica_id) is not None, "its session has ended: nothing was proven"
        ended.set()
    finally:
        await store.close()


async def _is_listened_to() -> None:
    """Let the followers hear the leader for a while: nobody suspects a process that was hardly heard."""
    await asyncio.sleep(3.0)


async def test_a_frozen_leader_is_replaced_under_load(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name, *_SESSION)
        leader = await replicas.leader()
        async with await MapClient.connect(unique_name, cluster.metadata_uri, timeout_s=60) as store:
            ended = asyncio.Event()
            acknowledged = 0

            async def write() -> None:
                nonlocal acknowledged
                while not ended.is_set():
                    await store.put(b"counted", b"%d" % (acknowledged + 1))
                    acknowledged += 1

            writing = asyncio.create_task(write())
            await _is_listened_to()
            before = acknowledged
            leader.pause()
            await _is_replaced(replicas, leader, ended)
            await writing
            leader.resume()
            value = await store.get(b"counted")
            assert value is not None
            assert int(value.value) == acknowledged > before > 0
            revision = await store.put(b"last", b"")
            assert {one["role"] for one in await replicas.agree(revision)} == {"leader", "follower"}
            second = await replicas.leader()
            assert second.stop() == 0
            replicas.gone(second.replica_id)
            await store.put(b"last", b"")
        code, led = run_cli(cluster.metadata_uri, "log", "leaders", unique_name)
        assert code == 0
        told = {one["replica_id"]: (one["before_ended"], one["before_said"]) for one in led}
        assert told[leader.replica_id] == (None, "")
        assert told[second.replica_id] == ("silent", "")
        assert (led[-1]["before_ended"], led[-1]["before_said"]) == ("stopped", "the replica stops")


async def test_a_leader_whose_event_loop_hangs_is_replaced_though_its_threads_answer(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name, *_SESSION, command=_HANGING)
        leader = await replicas.leader()
        trap = tmp_path / "trap"
        trap.touch()
        async with await ServiceClient.connect(unique_name, cluster.metadata_uri, timeout_s=60) as counters:
            assert (await counters.execute(b"visits")).payload == b"1"
            await _is_listened_to()
            hanging = asyncio.create_task(counters.execute(str(trap).encode()))
            await _is_replaced(replicas, leader, asyncio.Event())
            assert not trap.exists()
            assert (await counters.execute(b"visits")).payload == b"2"
            with contextlib.suppress(RsmError):
                await hanging
            revision = (await counters.execute(b"visits")).revision
        async with asyncio.timeout(60):
            while True:  # It hangs for a while yet.
                with contextlib.suppress(ConnectionLostError):
                    await leader.status()
                    break
        assert {one["role"] for one in await replicas.agree(revision)} == {"leader", "follower"}

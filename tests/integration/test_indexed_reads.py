"""Linearizable reads that followers answer, while leaders are killed and frozen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.core.freshness import LINEARIZABLE
from rsm_spark.map.client.client import MapClient
from tests.integration.recorded_callers import RecordedCallers, check_calls
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio

OPTIONS = ("--session-timeout-ms", "2000")


@pytest.mark.timeout(600)
async def test_sixteen_clients_see_one_history_while_leaders_are_killed_and_frozen(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name, *OPTIONS)
        callers = RecordedCallers(uri, log, tmp_path, seed=7, read_from="followers")
        try:
            for freeze in (False, True, False):
                await asyncio.to_thread(callers.wait_for_more, 300)
                before = callers.follower_count
                leader = await replicas.leader()
                if freeze:
                    leader.pause()
                    await asyncio.to_thread(callers.wait_for_more, 200)
                    leader.resume()
                else:
                    name = leader.replica_id
                    replicas.gone(name).kill()
                    await asyncio.to_thread(callers.wait_for_more, 200)
                    await asyncio.to_thread(replicas.start, name, *OPTIONS)
                await asyncio.to_thread(callers.wait_for_more, 300)
                assert callers.follower_count > before
            calls = await asyncio.to_thread(callers.end)
        finally:
            callers.kill()
        check_calls(calls, callers.path)


async def test_a_reader_of_followers_sees_what_was_just_written_and_scans_at_the_leader(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name, *OPTIONS)
        async with (
            await MapClient.connect(log, uri, timeout_s=60) as writer,
            await MapClient.connect(log, uri, timeout_s=60, read_from="followers") as reader,
        ):
            for number in range(50):
                await writer.put(b"k", b"%d" % number)
                found = await reader.get(b"k")
                assert found is not None
                assert found.value == b"%d" % number
            assert reader._link.follower_reads > 0
            by_followers = reader._link.follower_reads
            assert await reader.get(b"k", read=LINEARIZABLE) == found
            assert [row.key async for row in reader.scan(prefix=b"k")] == [b"k"]
            assert reader._link.follower_reads == by_followers
            statuses = [await replicas.alive[name].status() for name in "abc"]
            assert sum(status["reads_by_index"] for status in statuses) >= by_followers
            assert sum(status["entries_told"] for status in statuses) > 0, "followers read all of it from bookies"

"""Clients of the framed port before real replicas: killed leaders, and versions with it and without it side by side."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.map.client.client import MapClient
from tests.integration.recorded_callers import RecordedCallers, check_calls
from tests.integration.store_processes import Stores, stores

pytestmark = pytest.mark.asyncio

OPTIONS = ("--session-timeout-ms", "2000")
WITHOUT = ("--framed-port", "-1")
"""As replicas of before have none."""


async def test_a_client_goes_from_a_killed_leader_to_the_next_over_the_framed_port(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "ab":
            replicas.start(name, *OPTIONS)
        async with (
            await MapClient.connect(log, uri, timeout_s=60) as client,
            await MapClient.connect(log, uri, timeout_s=60, transport="grpc") as other,
            await MapClient.connect(log, uri, timeout_s=60, read_from="any") as reader,
        ):
            first = await client.put(b"a", b"1")
            assert await other.put(b"a", b"2") > first
            assert (client._link.is_framed, other._link.is_framed) == (True, False)
            assert (await reader.get(b"a")).value == b"2"
            leader = await replicas.leader()
            replicas.gone(leader.replica_id).kill()
            assert await client.put(b"b", b"1") > first
            assert client._link.is_framed
            assert client.address != leader.address
            assert (await other.get(b"b")).value == b"1"


async def _restart(replicas: Stores, callers: RecordedCallers, name: str, *options: str) -> None:
    assert await asyncio.to_thread(replicas.gone(name).stop) == 0
    await asyncio.to_thread(replicas.start, name, *OPTIONS, *options)
    await replicas.leader()
    await asyncio.to_thread(callers.wait_for_more, 50)


async def test_replicas_with_and_without_it_are_rolled_under_clients_of_both_kinds(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name, *OPTIONS, *WITHOUT)
        callers = RecordedCallers(uri, log, tmp_path, seed=1)
        try:
            async with (
                await MapClient.connect(log, uri, timeout_s=60) as new,
                await MapClient.connect(log, uri, timeout_s=60, transport="grpc") as old,
            ):
                await asyncio.to_thread(callers.wait_for_more, 50)
                seen = []
                for options in ((), WITHOUT):
                    for number, name in enumerate("abc"):
                        await _restart(replicas, callers, name, *options)
                        revision = await old.put(b"old", b"%d" % number)
                        assert await new.put(b"new", b"%d" % number) > revision
                        assert not old._link.is_framed
                    seen.append(new._link.is_framed)
                assert seen == [True, False]
            calls = await asyncio.to_thread(callers.end)
        finally:
            callers.kill()
        check_calls(calls, callers.path)

"""The replicated map on real processes: replicas, bookies, ZooKeeper; killed, paused, restarted."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ledger.dev import DevCluster
from rsm_spark.errors import NotLeaderError, OutcomeUnknownError
from rsm_spark.map.client.blocking import BlockingMapClient
from rsm_spark.map.client.client import MapClient
from tests.integration.store_processes import Stores, stores

pytestmark = pytest.mark.asyncio


def run_cli(metadata_uri: str, *arguments: str) -> tuple[int, list[Any]]:
    """Run `rsm`; return its exit code and the JSON that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "rsm_spark", *arguments, "--metadata-uri", metadata_uri, "--json"],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


async def test_three_replicas_serve_one_map_and_hand_it_over(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name)
        async with await MapClient.connect(log, uri) as client:
            first = await client.put(b"a", b"1")
            assert (await client.compare_and_set(b"a", expected=first, value=b"2")).succeeded
            await client.put_many((b"k/%03d" % n, b"v%d" % n) for n in range(300))
            assert [row.key async for row in client.scan(prefix=b"k/")] == [b"k/%03d" % n for n in range(300)]
            assert await client.delete(b"a") is not None
            leader = await replicas.leader()
            assert client.address == leader.address
            assert leader.stop() == 0
            replicas.gone(leader.replica_id)
            revision = await client.put(b"b", b"after")
            said = await replicas.agree(revision)
            assert len({one["digest"] for one in said}) == 1
            leader = await replicas.leader()
            (follower,) = [store for store in replicas.alive.values() if store is not leader]
            async with await MapClient.connect(log, uri, replica=follower.address) as reader:
                found = await reader.get(b"b")
                assert found is not None
                assert (found.value, found.revision) == (b"after", revision)
                with pytest.raises(NotLeaderError):
                    await reader.put(b"b", b"no")


async def test_nothing_acknowledged_is_lost_and_nothing_is_applied_twice_when_leaders_are_killed(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "abc":
            replicas.start(name)
        clients = [await MapClient.connect(log, uri) for _ in range(8)]
        stop = asyncio.Event()
        written: list[tuple[bytes, bytes, int]] = []
        written_at_once: list[tuple[bytes, bytes, int]] = []
        counted = [0] * 8
        failovers: list[float] = []

        async def write(index: int) -> None:
            """Put fresh keys and count one key up by compare-and-set; one client each."""
            client, key = clients[index], b"counter/%d" % index
            known = await client.compare_and_set(key, expected=None, value=b"0")
            assert known.succeeded
            number = 0
            while not stop.is_set():
                number += 1
                name = b"put/%d/%05d" % (index, number)
                revision = await client.put(name, b"%d" % number)
                written.append((name, b"%d" % number, revision))
                known = await client.compare_and_set(key, expected=known.revision, value=b"%d" % number)
                assert known.succeeded, "a compare-and-set of the only writer failed: it was applied twice"
                counted[index] = number
                found = await client.get(name)
                assert found is not None, "a read after the write finds nothing"
                assert (found.value, found.revision) == (b"%d" % number, revision), (
                    "a read after the write does not show it"
                )

        async def disturb() -> None:
            for _ in range(2):
                await asyncio.sleep(1.0)
                victim = await replicas.leader()
                mark = len(written)
                victim.kill()
                replicas.gone(victim.replica_id)
                began = time.monotonic()
                while len(written) <= mark + 8:
                    assert time.monotonic() - began < 60, "no put was acknowledged after the leader was killed"
                    await asyncio.sleep(0.01)
                failovers.append(time.monotonic() - began)
                await asyncio.to_thread(replicas.start, victim.replica_id)
            await asyncio.sleep(0.5)
            stop.set()

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(disturb())
                group.create_task(_write_many(uri, log, stop, written_at_once))
                for index in range(8):
                    group.create_task(write(index))
            await _check_all_is_there(replicas, written + written_at_once, counted)
        finally:
            for client in clients:
                await client.close()
        print(f"{len(written)} puts, {len(written_at_once)} at once, failovers {[round(s, 2) for s in failovers]} s")


async def _write_many(uri: str, log: str, stop: asyncio.Event, written: list[tuple[bytes, bytes, int]]) -> None:
    """Put many fresh keys at once: parts of them are on their way when a leader dies."""
    async with await MapClient.connect(log, uri) as client:
        number = 0
        while not stop.is_set():
            number += 1
            items = [(b"many/%d/%04d" % (number, n), b"%d" % n) for n in range(2_500)]
            revisions = await client.put_many(items)
            assert revisions == sorted(set(revisions)), "one of many commands was applied twice, or out of turn"
            put = [(*item, at) for item, at in zip(items, revisions, strict=True)]
            written += put
            found = await client.get_many([key for key, _ in items])
            assert [(one.value, one.revision) for one in found] == [(value, at) for _, value, at in put]
            await asyncio.sleep(0.1)


async def _check_all_is_there(replicas: Stores, written: list[tuple[bytes, bytes, int]], counted: list[int]) -> None:
    async with await MapClient.connect(replicas.log, replicas.metadata_uri) as client:
        rows = {row.key: row async for row in client.scan()}
        lost = [name for name, value, revision in written if rows.get(name, ())[1:3] != (value, revision)]
        assert lost == []
        assert [rows[b"counter/%d" % index].value for index in range(8)] == [b"%d" % n for n in counted]
        said = await replicas.agree(await client.put(b"end", b""))
        assert len({one["digest"] for one in said}) == 1


async def test_a_paused_leader_is_replaced_and_confirms_nothing_when_it_wakes(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        for name in "ab":
            replicas.start(name)
        async with await MapClient.connect(log, uri) as client:
            await client.put(b"k", b"old")
            paused = await replicas.leader()
            async with await MapClient.connect(log, uri, replica=paused.address, timeout_s=60) as stale:
                await stale.get(b"k")
                paused.pause()
                late = asyncio.create_task(stale.put(b"k", b"late"))
                revision = await client.put(b"k", b"new")
                paused.resume()
                with pytest.raises((NotLeaderError, OutcomeUnknownError)):
                    await late
            found = await client.get(b"k")
            assert found is not None
            assert (found.value, found.revision) == (b"new", revision)


async def test_a_replica_boots_from_its_snapshot_and_the_rest_of_the_log_across_rolls(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    options = ("--snapshot-s", "0.3", "--roll-bytes", "100000")
    with stores(uri, log, tmp_path) as replicas:
        replicas.start("a", *options)
        async with await MapClient.connect(log, uri) as client:
            for number in range(8):
                await client.put_many((b"%d/%d" % (number, n), b"v" * 400) for n in range(100))
                await asyncio.sleep(0.1)
            taken = await _snapshot_taken(replicas, "a")
            await client.put(b"last", b"1")
        replicas.gone("a").kill()
        store = replicas.start("a", *options)
        async with await MapClient.connect(log, uri) as client:
            assert (await client.get(b"last")) is not None
            assert len([row async for row in client.scan()]) == 801
        after = await store.status()
        assert after["snapshots"][0]["revision"] >= taken
        assert len(after["snapshots"]) <= 3
        code, (described,) = run_cli(uri, "log", "info", log)
        assert code == 0
        assert len(described["ledgers"]) >= 3
        code, records = run_cli(uri, "log", "cat", log)
        assert [record["revision"] for record in records] == list(range(1, len(records) + 1))
        puts = [record["fields"]["key"] for record in records if record["type"] == "put"]
        assert len(puts) == 801
        code, some = run_cli(uri, "log", "cat", log, "--from", "500", "--limit", "3")
        assert [record["revision"] for record in some] == [500, 501, 502]
        assert some == records[499:502]


async def _snapshot_taken(replicas: Stores, name: str) -> int:
    for _ in range(200):
        revision: int = (await replicas.alive[name].status())["snapshot_revision"]
        if revision:
            return revision
        await asyncio.sleep(0.05)
    raise AssertionError("no snapshot was taken")


def _command_line(uri: str, log: str) -> None:
    def map_cli(*arguments: str) -> tuple[int, list[Any]]:
        return run_cli(uri, "map", *arguments, "--log", log)

    code, (put,) = map_cli("put", "a", "1")
    assert code == 0
    written = put["revision"]
    numbers = {"revision": written, "create_revision": written, "version": 1}
    assert map_cli("get", "a") == (0, [{"key": "a", "found": True, "value": "1", **numbers}])
    assert map_cli("get", "b") == (4, [{"key": "b", "found": False}])
    assert map_cli("cas", "a", "2", "--expect", "0")[0] == 7
    assert map_cli("cas", "a", "2", "--expect", "1")[0] == 0
    assert [row["key"] for row in map_cli("scan")[1]] == ["a"]
    assert [sorted(row) for row in map_cli("scan", "--keys-only")[1]] == [
        ["create_revision", "key", "revision", "version"]
    ]
    assert map_cli("scan", "--count", "--prefix", "a") == (0, [{"count": 1}])
    assert map_cli("scan", "--count", "--prefix", "b") == (0, [{"count": 0}])
    assert map_cli("scan", "--count", "--limit", "3")[0] == 2
    assert map_cli("delete", "a")[1][0]["deleted"]
    assert log in [one["log"] for one in run_cli(uri, "log", "list")[1]]
    code, (status,) = run_cli(uri, "status", "--log", log)
    assert status["leader"] == "a"
    assert len(status["bookies"]) == 3


async def test_the_command_line_does_what_the_clients_do(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        replicas.start("a")
        await asyncio.to_thread(_command_line, cluster.metadata_uri, unique_name)


async def test_the_blocking_client_serves_threads(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    def work() -> None:
        with BlockingMapClient.connect(unique_name, cluster.metadata_uri) as client:
            revision = client.put(b"a", b"1")
            found = client.get(b"a")
            assert found is not None
            assert (found.value, found.revision) == (b"1", revision)
            client.put_many((b"k%d" % n, b"") for n in range(50))
            assert len(list(client.scan(prefix=b"k", limit=20))) == 20
            assert not client.compare_and_set(b"a", expected=None, value=b"2").succeeded
            assert client.delete(b"a") is not None

    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        replicas.start("a")
        await asyncio.to_thread(work)

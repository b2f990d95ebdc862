"""Locks and elections on real replicas: one holder at a time, in the order of coming, whoever is killed or lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.errors import InvalidCommandError
from rsm_spark.map.client.blocking import BlockingMapClient
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.client.locks import LockHolder
from rsm_spark.map.client.results import LeaseLostError
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio

NAME = b"locks/nightly"
TTL_MS = 10_000


async def test_one_at_a_time_holds_a_lock_while_leaders_are_killed(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    inside: set[int] = set()
    tokens: list[int] = []

    async def work(client: MapClient, number: int) -> None:
        for _ in range(4):
            async with client.holding_lock(NAME, TTL_MS, value=b"%d" % number) as lock:
                assert not inside, "two hold the lock"
                inside.add(number)
                tokens.append(lock.token)
                found = await client.get(b"count")
                await client.put(b"count", b"%d" % (int(found.value) + 1 if found else 1))
                inside.remove(number)

    with stores(uri, log, tmp_path) as replicas:
        for name in "abc":
            await asyncio.to_thread(replicas.start, name)
        async with await MapClient.connect(log, uri) as one, await MapClient.connect(log, uri) as other:
            async with asyncio.TaskGroup() as group:
                for number in range(6):
                    group.create_task(work((one, other)[number % 2], number))
                while len(tokens) < 5:
                    await asyncio.sleep(0.01)
                leader = await replicas.leader()
                leader.kill()
                replicas.gone(leader.replica_id)
            assert (await one.get(b"count")).value == b"24"
            assert tokens == sorted(set(tokens))
            assert len(tokens) == 24
            assert await one.lock_holder(NAME) is None
            assert await one.count(prefix=NAME) == 0


async def test_who_loses_a_lock_is_told_and_the_next_one_has_it(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        await asyncio.to_thread(replicas.start, "a")
        async with await MapClient.connect(log, uri) as client, await MapClient.connect(log, uri) as other:
            seen: list[LockHolder | None] = []

            async def observe() -> None:
                async for holder in other.watch_lock_holder(NAME):
                    seen.append(holder)

            observing = asyncio.create_task(observe())
            held: asyncio.Future[int] = asyncio.get_running_loop().create_future()

            async def hold() -> None:
                async with client.holding_lock(NAME, TTL_MS, value=b"first") as lock:
                    held.set_result(lock.lease)
                    await asyncio.sleep(60)

            holding = asyncio.create_task(hold())
            lease = await held
            next_one = other.holding_lock(NAME, TTL_MS, value=b"second")
            entering = asyncio.create_task(next_one.__aenter__())
            while await other.count(prefix=NAME) < 2:
                await asyncio.sleep(0.01)
            assert not entering.done()
            assert (await other.lock_holder(NAME)).value == b"first"
            await other.revoke_lease(lease)  # As if it had been silent for its time.
            lock = await entering
            assert await other.lock_holder(NAME) == LockHolder(b"second", lock.token)
            with pytest.raises(LeaseLostError):
                await holding
            await next_one.__aexit__(None, None, None)
            async with asyncio.timeout(60):
                while not seen or seen[-1] is not None or len(seen) < 3:
                    await asyncio.sleep(0.01)
            observing.cancel()
            assert [holder.value for holder in seen if holder][-1] == b"second"
            with pytest.raises(InvalidCommandError, match="the name of a lock has 1 to"):
                await client.holding_lock(b"", TTL_MS).__aenter__()


async def test_commands_run_while_a_lock_is_held(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name

    def lock(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rsm_spark", "map", "lock", "--log", log, "--metadata-uri", uri, *arguments],
            capture_output=True, text=True, timeout=60, check=False, cwd=Path(__file__).parents[2],
        )  # fmt: skip

    with stores(uri, log, tmp_path) as replicas:
        await asyncio.to_thread(replicas.start, "a")
        assert lock("jobs/a", "--show").returncode == 4
        said = lock("jobs/a", "--value", "me", "--", "sh", "-c", "echo token $RSM_LOCK_TOKEN; exit 3")
        assert said.returncode == 3
        assert int(said.stdout.removeprefix("token ")) > 0
        assert lock("jobs/a", "--", "no-such-command").returncode == 127
        assert "needs either --show, or -- and a command" in lock("jobs/a").stderr
        async with (
            await MapClient.connect(log, uri) as client,
            client.holding_lock(b"jobs/a", TTL_MS, value=b"me") as held,
        ):
            shown = lock("jobs/a", "--show")
            assert (shown.returncode, shown.stdout) == (0, f"me holds jobs/a, token {held.token}\n")


async def test_threads_hold_locks_too(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name

    def work() -> None:
        counted: list[int] = []
        running = threading.Lock()

        def hold() -> None:
            with client.holding_lock(NAME, TTL_MS):
                assert running.acquire(blocking=False), "two hold the lock"
                counted.append(len(counted))
                running.release()

        with BlockingMapClient.connect(log, uri) as client:
            threads = [threading.Thread(target=hold) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert counted == list(range(5))

    with stores(uri, log, tmp_path) as replicas:
        await asyncio.to_thread(replicas.start, "a")
        await asyncio.to_thread(work)

"""Barriers on real replicas: parties begin together and end together, whoever is killed or lost."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.errors import InvalidCommandError
from rsm_spark.map.client.blocking import BlockingMapClient
from rsm_spark.map.client.client import MapClient
from rsm_spark.map.client.results import LeaseLostError
from tests.integration.store_processes import stores

pytestmark = pytest.mark.asyncio

NAME = b"barriers/load"
TTL_MS = 10_000


async def test_parties_begin_and_end_together_while_leaders_are_killed(
    cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    uri, log = cluster.metadata_uri, unique_name
    here: set[int] = set()
    inside: set[int] = set()
    rounds: dict[int, list[int]] = {}

    async def work(client: MapClient, number: int) -> None:
        for _ in range(4):
            here.add(number)
            async with client.barrier(NAME, 4, TTL_MS) as one:
                assert len(here) == 4, "it opened early"
                inside.add(number)
                rounds.setdefault(one.token, []).append(one.place)
                while len(inside) < 4:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)
                here.discard(number)
            assert not here & inside - {number}, "one has not ended"
            inside.discard(number)
            while inside:
                await asyncio.sleep(0.01)

    with stores(uri, log, tmp_path) as replicas:
        for name in "abc":
            await asyncio.to_thread(replicas.start, name)
        async with await MapClient.connect(log, uri) as one, await MapClient.connect(log, uri) as other:
            async with asyncio.TaskGroup() as group:
                for number in range(4):
                    group.create_task(work((one, other)[number % 2], number))
                while not rounds:
                    await asyncio.sleep(0.01)
                leader = await replicas.leader()
                leader.kill()
                replicas.gone(leader.replica_id)
            assert [sorted(places) for places in rounds.values()] == [[0, 1, 2, 3]] * 4
            assert list(rounds) == sorted(rounds)
            assert await one.count(prefix=NAME) == 0


async def test_nobody_waits_for_a_party_that_is_lost(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name
    with stores(uri, log, tmp_path) as replicas:
        await asyncio.to_thread(replicas.start, "a")
        async with await MapClient.connect(log, uri) as client, asyncio.timeout(60):
            for name, parties in ((b"", 2), (b"a", 0), (b"a", 256)):
                with pytest.raises(InvalidCommandError, match="barrier has 1 to"):
                    await client.barrier(name, parties, TTL_MS).__aenter__()

            async def stay(entered: asyncio.Future[int], end: asyncio.Event) -> int:
                async with client.barrier(NAME, 2, TTL_MS) as one:
                    entered.set_result(one.lease)
                    await end.wait()
                return one.token

            loop, end = asyncio.get_running_loop(), asyncio.Event()
            entered = [loop.create_future() for _ in range(4)]
            early = asyncio.create_task(stay(entered[0], end))
            while await client.count(prefix=NAME) < 1:
                await asyncio.sleep(0.01)
            (lease,) = [one.lease for one in await client.leases()]
            await client.revoke_lease(lease)  # As if it had been silent for its time.
            with pytest.raises(LeaseLostError):
                await early
            second = asyncio.create_task(stay(entered[1], end))
            while await client.count(prefix=NAME) < 1:
                await asyncio.sleep(0.01)
            assert not entered[1].done(), "a party that is lost does not count"
            third = asyncio.create_task(stay(entered[2], end))
            lost = await entered[2]
            await entered[1]
            fourth = asyncio.create_task(stay(entered[3], end))
            while await client.count(prefix=NAME) < 4:
                await asyncio.sleep(0.01)
            await client.revoke_lease(lost)
            with pytest.raises(LeaseLostError):
                await third
            assert not entered[3].done(), "it is in the next round"
            end.set()
            token = await second
            async with client.barrier(NAME, 2, TTL_MS) as last:
                assert last.token > token
                assert last.place == 1
            assert await fourth == last.token
            assert await client.count(prefix=NAME) == 0


async def test_commands_begin_and_end_together(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    where = ("--log", unique_name, "--metadata-uri", cluster.metadata_uri)
    here = tmp_path / "here"
    here.mkdir()
    # Each leaves a file, and ends with its place as the code; it sees all files if nobody ended before all began.
    script = f"touch {here}/$RSM_BARRIER_PLACE; while [ $(ls {here} | wc -l) -lt 3 ]; do sleep 0.05; done; "
    script += "echo round $RSM_BARRIER_TOKEN; exit $RSM_BARRIER_PLACE"
    arguments = ("map", "barrier", "barriers/a", "--parties", "3", *where, "--", "sh", "-c", script)
    with stores(cluster.metadata_uri, unique_name, tmp_path) as replicas:
        await asyncio.to_thread(replicas.start, "a")
        parties = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rsm_spark", *arguments, cwd=Path(__file__).parents[2],
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )
            for _ in range(3)
        ]  # fmt: skip
        said = await asyncio.wait_for(asyncio.gather(*(one.communicate() for one in parties)), 60)
        assert sorted(one.returncode or 0 for one in parties) == [0, 1, 2], said
        (token,) = {out for out, _ in said}
        assert int(token.decode().removeprefix("round ")) > 0


async def test_threads_meet_at_barriers_too(cluster: DevCluster, unique_name: str, tmp_path: Path) -> None:
    uri, log = cluster.metadata_uri, unique_name

    def work() -> None:
        places: list[int] = []

        def meet() -> None:
            with client.barrier(NAME, 3, TTL_MS) as one:
                places.append(one.place)

        with BlockingMapClient.connect(log, uri) as client:
            threads = [threading.Thread(target=meet) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sorted(places) == [0, 1, 2]

    with stores(uri, log, tmp_path) as replicas:
        await asyncio.to_thread(replicas.start, "a")
        await asyncio.to_thread(work)

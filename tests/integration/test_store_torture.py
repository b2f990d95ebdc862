"""Sixteen clients while leader, followers, bookies and ZooKeeper are killed and frozen: what they heard is one history.

They come by the framed port, gRPC and etcd's API. Every reply is judged (see `rsm_spark.testing.linearizability`);
outcomes that stayed unknown may have come true or not. In the end all replicas hold the same state, and so does one
that starts from nothing and reads the whole log.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ledger.dev import DevCluster
from rsm_spark.map.client.client import MapClient
from tests.integration.history_plants import check_doors
from tests.integration.map_doors import DOORS
from tests.integration.recorded_callers import RecordedCallers, check_calls
from tests.integration.store_faults import FAULTS, PAUSE_S, SESSION_MS, StoreFaults, kind_of
from tests.integration.store_processes import Stores, stores

pytestmark = pytest.mark.asyncio

OPTIONS = ("--session-timeout-ms", str(SESSION_MS))


async def _check_states(replicas: Stores, options: tuple[str, ...]) -> None:
    """All replicas, and one that knows nothing but the log, come to the same state."""
    async with await MapClient.connect(replicas.log, replicas.metadata_uri, timeout_s=60) as client:
        revision = await client.put(b"end", b"")
    await replicas.agree(revision, timeout_s=60)
    await asyncio.to_thread(replicas.start, "fresh", *options, "--follow-only")
    said = await replicas.agree(revision, timeout_s=60)
    assert len({one["digest"] for one in said}) == 1, said
    assert all(store.process.poll() is None for store in replicas.alive.values())


async def _one_at_a_time(faults: StoreFaults, callers: RecordedCallers, rng: random.Random) -> None:
    for name in rng.sample(FAULTS, len(FAULTS)):
        await faults.begin(name)
        await asyncio.sleep(_length_s(name, rng))
        await faults.mend()
        await asyncio.to_thread(callers.wait_for_more, 100)


async def _two_at_once(faults: StoreFaults, callers: RecordedCallers, rng: random.Random) -> None:
    """Each fault, and while it lasts one of another kind: of a replica, a bookie, ZooKeeper."""
    for name in rng.sample(FAULTS, len(FAULTS)):
        other = rng.choice([other for other in FAULTS if kind_of(other) != kind_of(name)])
        await faults.begin(name)
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        await faults.begin(other)
        await asyncio.sleep(_length_s(other, rng))
        await faults.mend()
        await asyncio.to_thread(callers.wait_for_more, 100)


def _length_s(name: str, rng: random.Random) -> float:
    return PAUSE_S if name.startswith("pause") else rng.uniform(0.1, 1.0)


async def _run(
    cluster: DevCluster,
    log: str,
    folder: Path,
    seed: int,
    plan: Callable[[StoreFaults, RecordedCallers, random.Random], Awaitable[None]],
    *more_options: str,
    rounds: int = 1,
) -> None:
    rng, options = random.Random(seed), (*OPTIONS, *more_options)
    with stores(cluster.metadata_uri, log, folder) as replicas:
        addresses = [replicas.start_with_etcd(name, *options) for name in "abc"]
        uri = cluster.metadata_uri
        callers = RecordedCallers(uri, log, folder, seed=seed, doors=DOORS, etcd_addresses=addresses)
        try:
            await asyncio.to_thread(callers.wait_for_more, 100)
            for _ in range(rounds):
                await plan(StoreFaults(cluster, replicas, rng, options), callers, rng)
            calls = await asyncio.to_thread(callers.end)
        finally:
            callers.kill()
        await _check_states(replicas, options)
        check_calls(calls, callers.path)
        check_doors(calls, DOORS, answered_min=50, seed=seed)
        print(f"{callers.answered_count} calls answered, {callers.unknown_count} of unknown outcome")


async def test_every_reply_fits_one_order_when_each_process_is_killed_and_frozen_once(
    whole_cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    await _run(whole_cluster, unique_name, tmp_path, 1, _one_at_a_time)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 5))
async def test_every_reply_fits_one_order_when_two_are_killed_or_frozen_at_once_over_rolls_and_snapshots(
    whole_cluster: DevCluster, unique_name: str, tmp_path: Path, seed: int
) -> None:
    options = ("--roll-bytes", "300000", "--snapshot-s", "5", "--bookies", ("2/2/2", "3/3/2")[seed % 2])
    await _run(whole_cluster, unique_name, tmp_path, seed, _two_at_once, *options, rounds=3)

"""`make bench-store`: the replicated map on three replicas and three bookies (3/3/2, fsync before every answer).

`map_puts_16` = 16 callers with one put each outstanding, over at most 8 clients. 256-byte values, 10,000 keys; gets are
linearizable. Clients, replicas, bookies and ZooKeeper share this machine's cores.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from rsm_spark.grpc.channel import ReplicaChannel
from rsm_spark.store.client import MapClient
from rsm_spark.store.core.operation import Message, Operation
from rsm_spark.store.kv import messages as m
from tests.bench.figure import ROUND_COUNT, percentile, print_figure, say

LOG = "bench"
LEVELS = (1, 16, 64)
SECONDS = 5.0
VALUE = os.urandom(256)
KEYS = [b"key-%05d" % number for number in range(10_000)]
CLIENT_COUNT_MAX = 8
FAILOVER_COUNT = 5


async def main() -> None:
    """Measure everything and print a line per figure."""
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder) / "cluster") as cluster:
        replicas = {name: await start_replica(name, cluster, Path(folder)) for name in ("r1", "r2", "r3")}
        try:
            await fill(cluster.metadata_uri)
            for number in range(ROUND_COUNT):
                say(f"store: round {number + 1} of {ROUND_COUNT}")
                for level in LEVELS:
                    for name, operation in (("map_puts", put), ("map_gets", get)):
                        rate = await measure(cluster.metadata_uri, level, operation)
                        figures.setdefault(f"{name}_{level}", []).append(rate)
                figures.setdefault("map_puts_unary_16", []).append(await measure_unary(cluster.metadata_uri, 16))
            failovers = [await measure_failover(cluster, replicas, Path(folder)) for _ in range(FAILOVER_COUNT)]
        finally:
            await asyncio.gather(*(child.stop() for child in replicas.values()))
    for name, values in sorted(figures.items()):
        print_figure(name, values, "ops/s")
    print_figure("failover_p50_s", failovers, "s")
    print_figure("failover_p99_s", [percentile(failovers, 0.99)], "s")


async def start_replica(name: str, cluster: DevCluster, folder: Path) -> Child:
    """Start a replica process; return when it serves."""
    command = [sys.executable, "-m", "rsm_spark", "store", "run", "--json", "--log", LOG, "--port", "0"]
    command += ["--metadata-uri", cluster.metadata_uri, "--replica-id", name, "--bookies", "3/3/2"]
    child = await Child.start(name, [*command, "--data-dir", str(folder / name)], log_dir=folder)
    await child.until(lambda said: said.get("ready"), timeout_s=60, what="serving")
    return child


async def fill(metadata_uri: str) -> None:
    """Write every key once."""
    async with await MapClient.connect(LOG, metadata_uri) as client:
        for first in range(0, len(KEYS), 1_000):
            await client.put_many((key, VALUE) for key in KEYS[first : first + 1_000])


async def put(client: MapClient, key: bytes) -> None:
    """Write one key."""
    await client.put(key, VALUE)


async def get(client: MapClient, key: bytes) -> None:
    """Read one key, linearizably."""
    found = await client.get(key)
    assert found is not None


async def measure(metadata_uri: str, level: int, operation: Callable[[MapClient, bytes], Awaitable[None]]) -> float:
    """Return operations/s of `level` callers, each with one outstanding, for `SECONDS`."""
    clients = [await MapClient.connect(LOG, metadata_uri) for _ in range(min(level, CLIENT_COUNT_MAX))]
    counts = [0] * level
    for client in clients:
        await operation(client, KEYS[0])  # connect, open the session
    end = time.perf_counter() + SECONDS

    async def call(number: int) -> None:
        client, rng = clients[number % len(clients)], random.Random(number)
        while time.perf_counter() < end:
            await operation(client, rng.choice(KEYS))
            counts[number] += 1

    began = time.perf_counter()
    await asyncio.gather(*(call(number) for number in range(level)))
    seconds = time.perf_counter() - began
    for client in clients:
        await client.close()
    return sum(counts) / seconds


async def measure_unary(metadata_uri: str, level: int) -> float:
    """Return puts/s of `level` callers who use the unary form, each with a channel and a session of its own."""
    async with await MapClient.connect(LOG, metadata_uri) as client:
        await client.get(KEYS[0])
        address = client.address
    counts = [0] * level
    end = time.perf_counter() + SECONDS

    async def call(number: int) -> None:
        channel, session, rng = ReplicaChannel(address, LOG), os.urandom(16), random.Random(number)
        sequence = 0
        while time.perf_counter() < end:
            sequence += 1
            payload = m.encode(m.Put(rng.choice(KEYS), VALUE))
            operation = Operation(payload, end, None)
            operation.sequence = sequence
            message = Message(sequence, session, sequence == 1, sequence - 1, [operation], [])
            await channel.call(message, 30)
            counts[number] += 1
        await channel.close()

    began = time.perf_counter()
    await asyncio.gather(*(call(number) for number in range(level)))
    return sum(counts) / (time.perf_counter() - began)


async def measure_failover(cluster: DevCluster, replicas: dict[str, Child], folder: Path) -> float:
    """Kill the leader under 8 writers; return seconds until the first put begun afterwards is acknowledged."""
    async with await MapClient.connect(LOG, cluster.metadata_uri) as client:
        await client.put(KEYS[0], VALUE)
        name = next(name for name, child in replicas.items() if child.said["address"] == client.address)
        stop = asyncio.Event()
        first_acked: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        killed_at = float("inf")

        async def write(number: int) -> None:
            while not stop.is_set():
                begun_at = time.perf_counter()
                await client.put(KEYS[number], VALUE)
                if begun_at > killed_at and not first_acked.done():
                    first_acked.set_result(time.perf_counter())

        writers = [asyncio.create_task(write(number)) for number in range(8)]
        await asyncio.sleep(1)
        replicas[name].kill()
        killed_at = time.perf_counter()
        probe = asyncio.create_task(client.put(KEYS[9], VALUE))  # begun after the kill
        await probe
        seconds = time.perf_counter() - killed_at
        stop.set()
        await asyncio.gather(*writers)
    await replicas[name].stop()
    replicas[name] = await start_replica(name, cluster, folder)
    return seconds


if __name__ == "__main__":
    asyncio.run(main())

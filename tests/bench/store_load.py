"""Loads on the replicated map: callers with one call outstanding each, and a leader that is killed under writers."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from rsm_spark.core.operation import Message, Operation
from rsm_spark.map import messages as m
from rsm_spark.map.client.client import MapClient
from rsm_spark.transport.channel import ReplicaChannel
from tests.bench.figure import percentile

LOG = "bench"
VALUE = os.urandom(256)
KEYS = [b"key-%05d" % number for number in range(10_000)]
CLIENT_COUNT_MAX = 8
"""Connections that callers share, as those of etcd's load do."""
WRITER_COUNT = 8


class Load(NamedTuple):
    """What a load came to."""

    per_s: float
    p50_ms: float
    p99_ms: float


async def start_replica(name: str, cluster: DevCluster, folder: Path, *options: str, log: str = LOG) -> Child:
    """Start a replica process; return when it serves."""
    command = [sys.executable, "-m", "rsm_spark.map", "run", "--json", "--log", log, "--port", "0"]
    command += ["--metadata-uri", cluster.metadata_uri, "--replica-id", name, "--bookies", "3/3/2"]
    child = await Child.start(name, [*command, "--data-dir", str(folder / name), *options], log_dir=folder)
    try:
        await child.until(lambda said: said.get("ready"), timeout_s=300, what="serving")
    except BaseException:  # Nobody else knows of it yet.
        await child.stop()
        raise
    return child


async def fill(metadata_uri: str) -> None:
    """Write every key once."""
    async with await MapClient.connect(LOG, metadata_uri) as client:
        for first in range(0, len(KEYS), 1_000):
            await client.put_many((key, VALUE) for key in KEYS[first : first + 1_000])


async def leader_address(metadata_uri: str) -> str:
    """Return who leads."""
    async with await MapClient.connect(LOG, metadata_uri) as client:
        await client.get(KEYS[0])
        return client.address


async def put(client: MapClient, key: bytes) -> None:
    """Write one key."""
    await client.put(key, VALUE)


async def get(client: MapClient, key: bytes) -> None:
    """Read one key, linearizably."""
    found = await client.get(key)
    assert found is not None


async def measure(
    metadata_uri: str,
    callers: int,
    operation: Callable[[MapClient, bytes], Awaitable[None]],
    *,
    seconds: float,
    log: str = LOG,
) -> Load:
    """Let callers call, each with one call outstanding, over at most `CLIENT_COUNT_MAX` clients."""
    clients = [await MapClient.connect(log, metadata_uri) for _ in range(min(callers, CLIENT_COUNT_MAX))]
    for client in clients:
        await operation(client, KEYS[0])  # connect, open the session

    def _calls(number: int) -> Callable[[bytes], Awaitable[None]]:
        client = clients[number % len(clients)]
        return lambda key: operation(client, key)

    load = await _drive(callers, _calls, seconds)
    for client in clients:
        await client.close()
    return load


async def measure_unary(metadata_uri: str, callers: int, *, seconds: float) -> Load:
    """Let callers put by the unary form, each with a channel and a session of its own."""
    address = await leader_address(metadata_uri)
    channels = [ReplicaChannel(address, LOG) for _ in range(callers)]

    def _calls(number: int) -> Callable[[bytes], Awaitable[None]]:
        session, sequence = os.urandom(16), 0

        async def _put(key: bytes) -> None:
            nonlocal sequence
            sequence += 1
            operation = Operation(m.encode(m.Put(key, VALUE)), float("inf"), None)
            operation.sequence = sequence
            await channels[number].call(Message(sequence, session, sequence == 1, sequence - 1, [operation], []), 30)

        return _put

    load = await _drive(callers, _calls, seconds)
    for channel in channels:
        await channel.close()
    return load


async def _drive(callers: int, calls: Callable[[int], Callable[[bytes], Awaitable[None]]], seconds: float) -> Load:
    began = time.perf_counter()
    end = began + seconds
    latencies: list[float] = []

    async def _call(number: int) -> None:
        call, rng = calls(number), random.Random(number)
        at = time.perf_counter()
        while at < end:
            await call(rng.choice(KEYS))
            now = time.perf_counter()
            latencies.append(now - at)
            at = now

    await asyncio.gather(*(_call(number) for number in range(callers)))
    per_s = len(latencies) / (time.perf_counter() - began)
    return Load(per_s, percentile(latencies, 0.5) * 1000, percentile(latencies, 0.99) * 1000)


async def measure_failover(metadata_uri: str, replicas: dict[str, Child]) -> tuple[str, float]:
    """Kill the leader under writers.

    Returns:
        Who was killed, and the seconds until the first put that began afterwards was acknowledged.

    """
    clients = [await MapClient.connect(LOG, metadata_uri) for _ in range(WRITER_COUNT)]
    for client in clients:
        await client.put(KEYS[0], VALUE)
    name = next(name for name, child in replicas.items() if child.said["address"] == clients[0].address)
    first_acked: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    killed_at = float("inf")

    async def _write(number: int) -> None:
        while not first_acked.done():
            begun_at = time.perf_counter()
            # A put that the dead leader has is sent again for as long as it takes; so that each writer soon has one
            # that began after the kill, as etcd's writers have.
            waiting = asyncio.create_task(clients[number].put(KEYS[number], VALUE))
            waiting.add_done_callback(lambda done, begun_at=begun_at: _on_acked(done, begun_at))
            puts.append(waiting)
            await asyncio.wait([waiting], timeout=0.1)

    def _on_acked(done: asyncio.Task[int], begun_at: float) -> None:
        if not done.cancelled() and done.exception() is None and begun_at > killed_at and not first_acked.done():
            first_acked.set_result(time.perf_counter())

    puts: list[asyncio.Task[int]] = []
    writers = [asyncio.create_task(_write(number)) for number in range(WRITER_COUNT)]
    await asyncio.sleep(1)
    replicas[name].kill()
    killed_at = time.perf_counter()
    seconds = await first_acked - killed_at
    await asyncio.gather(*writers)
    await asyncio.gather(*puts)
    for client in clients:
        await client.close()
    return name, seconds

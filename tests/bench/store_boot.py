"""How quickly a replica comes to a state of many keys: from the whole log, its own snapshot, another replica's."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from rsm_spark.errors import ConnectionLostError
from rsm_spark.map.client.client import MapClient
from rsm_spark.server.replica_server import SNAPSHOTS_FOLDER
from rsm_spark.snapshots.lake import LakeSnapshots, lake_place
from rsm_spark.snapshots.local import LocalSnapshots
from rsm_spark.transport.channel import ReplicaChannel
from tests.bench.figure import say
from tests.bench.ledger_load import resident_mib
from tests.bench.store_load import VALUE, start_replica

LOG = "bench-boot"
_NO_SNAPSHOTS = ("--snapshot-s", "0", "--snapshot-bytes", "0")
_BATCH = 2_000
_LIMIT_S = 600.0
_NAMES = ("loader", "reader", "fresh")


async def measure_boots(cluster: DevCluster, folder: Path, key_count: int) -> dict[str, float]:
    """Return replay_per_s (records/s), seconds of boots to a map of so many keys, and memory of replicas, by name."""
    figures: dict[str, float] = {}
    running: list[Child] = []  # Ended whatever fails; to end one twice does no harm.

    async def start(name: str, *options: str) -> Child:
        running.append(await start_replica(name, cluster, folder, *options, log=LOG))
        return running[-1]

    try:
        leader = await start("loader", *_NO_SNAPSHOTS)
        revision, figures["bulk_puts"] = await load_keys(cluster.metadata_uri, key_count)
        say("  replay of the whole log")
        began = time.perf_counter()
        reader = await start("reader", "--follow-only", *_NO_SNAPSHOTS)
        served_at = time.perf_counter()
        await _reach(reader, "revision", revision)
        figures["replay_per_s"] = revision / (time.perf_counter() - served_at)
        figures["replay_s"] = time.perf_counter() - began
        await reader.stop()
        options = ("--follow-only", "--snapshot-s", "1")
        say("  boot from the own snapshot")
        reader = await start("reader", *options)
        await _reach(reader, "snapshot_revision", revision - key_count // 100)
        reader.kill()
        await reader.wait()
        figures["boot_s"], reader = await _boot(start, "reader", revision)
        say("  boot from a peer's snapshot")
        figures["peer_boot_s"], fresh = await _boot(start, "fresh", revision)
        figures |= {f"{name}_mib": resident_mib(one.pid) for name, one in (("leader", leader), ("follower", fresh))}
        await fresh.stop()
        await reader.stop()
        say("  verification, and a copy in the lake")
        figures["snapshot_read_per_s"] = await asyncio.to_thread(_verify_and_copy, folder)
        await leader.stop()
        for name in _NAMES:
            shutil.rmtree(folder / name)
        say("  boot from the lake, no replica's disk left")
        figures["resurrect_s"], fresh = await _boot(start, "fresh", revision, "--lake", str(folder / "lake"))
        await fresh.stop()
    finally:
        for child in running:
            await child.stop()
        for name in (*_NAMES, "lake"):
            shutil.rmtree(folder / name, ignore_errors=True)
    return figures


def _verify_and_copy(folder: Path) -> float:
    """Read the newest snapshot back, as a verifier does, then write it to the lake; return rows/s read."""
    local = LocalSnapshots(folder / "reader" / SNAPSHOTS_FOLDER)
    manifest = local.manifests()[0]
    began = time.perf_counter()
    damage = local.scrub(manifest)
    assert damage is None, damage
    row_count = sum(1 for _ in local.read(manifest))
    per_s = row_count / (time.perf_counter() - began)
    LakeSnapshots(lake_place(str(folder / "lake"), LOG)).write(manifest, local.read(manifest))
    return per_s


async def _boot(start: Callable[..., Awaitable[Child]], name: str, revision: int, *options: str) -> tuple[float, Child]:
    """Start a replica; return the seconds from its start until it has applied this revision, and it."""
    began = time.perf_counter()
    child = await start(name, "--follow-only", *_NO_SNAPSHOTS, *options)
    await _reach(child, "revision", revision)
    return time.perf_counter() - began, child


async def load_keys(metadata_uri: str, key_count: int, *, log: str = LOG) -> tuple[int, float]:
    """Put keys in bulk, two batches on their way; return the revision of the last, and keys/s."""
    began = time.perf_counter()
    said_at = began
    revision = 0
    async with await MapClient.connect(log, metadata_uri, timeout_s=120) as client:
        firsts = iter(range(0, key_count, _BATCH))

        async def _put() -> None:
            nonlocal revision, said_at
            for first in firsts:
                keys = range(first, min(key_count, first + _BATCH))
                revisions = await client.put_many((b"key-%08d" % number, VALUE) for number in keys)
                revision = max(revision, *revisions)
                if time.perf_counter() - said_at > 5:
                    said_at = time.perf_counter()
                    say(f"  {first + len(keys):,} of {key_count:,} keys")

        await asyncio.gather(_put(), _put())
    return revision, key_count / (time.perf_counter() - began)


async def _reach(child: Child, what: str, revision: int) -> None:
    """Wait until a replica says that this figure has come to this revision."""
    deadline = time.monotonic() + _LIMIT_S
    async with ReplicaChannel(child.said["address"], LOG) as channel:
        while True:
            try:
                said: dict[str, Any] = json.loads(await channel.status(10))
            except ConnectionLostError:
                said = {}
            if said.get(what, 0) >= revision:
                return
            assert child.is_running, f"{child.name} ended at {said}"
            assert time.monotonic() < deadline, f"{child.name}: {what} of {revision} not reached: {said}"
            await asyncio.sleep(0.02)

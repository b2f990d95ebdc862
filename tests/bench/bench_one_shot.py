"""What a command of the shell costs a log, in a session that commands share and in one of its own.

    python -P -m tests.bench.bench_one_shot [commands]

`rsm map put` as a process, one after the other, 30 times (or as told) each way in three rounds, on a replica and three
bookies: records of the log, and how long the process takes, most of which is Python's start. Commands without a place
for a session's file open one each, as all did before. Then the same two ways without the start of a process: a client
that connects, reads, puts once and closes; entries of the log and processor time of the leader for each, and how long
the put takes.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from ledger.dev import DevCluster
from rsm_spark.client.kept_session import KeptSession
from rsm_spark.map import MapClient
from tests.bench.figure import ROUND_COUNT, percentile, print_figure
from tests.hostile.victim import processor_s
from tests.integration.store_processes import StoreProcess, stores

_LOG: Final = "one-shot"
_WAYS: Final = ("shared", "own")


def _commands(uri: str, state: Path, count: int) -> list[float]:
    """Run commands one after the other; return how long each took, in seconds."""
    command = [sys.executable, "-m", "rsm_spark", "map", "put", "k", "v", "--log", _LOG, "--metadata-uri", uri]
    environment = os.environ | {"XDG_STATE_HOME": str(state)}
    took_s = []
    for _ in range(count):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment)
        took_s.append(time.perf_counter() - began)
    return took_s


async def _clients(uri: str, folder: Path | None, count: int) -> list[float]:
    """Do the same with a client each; only the put is timed, from its call to its answer."""
    took_s = []
    for _ in range(count):
        async with await MapClient.connect(_LOG, uri) as client:
            await client.get(b"k")  # Connected.
            client.keep_session(KeptSession(folder, "put"))
            began = time.perf_counter()
            await client.put(b"k", b"v")
            took_s.append(time.perf_counter() - began)
    return took_s


async def _measure(store: StoreProcess, uri: str, folder: Path, count: int) -> None:
    found: dict[str, list[float]] = {}
    # /dev/null has no folders: there is no place for a session.
    states = {"shared": folder / "state", "own": Path("/dev/null/state")}
    for way in _WAYS:
        await asyncio.to_thread(_commands, uri, states[way], 2)
    for _ in range(ROUND_COUNT):
        for way in _WAYS:
            before = await store.status()
            took_s = await asyncio.to_thread(_commands, uri, states[way], count)
            between, spent_s = await store.status(), processor_s(store.process.pid)
            puts_s = await _clients(uri, folder / "clients" if way == "shared" else None, count)
            after = await store.status()
            assert between["position"][0] == after["position"][0], "another ledger began: run it again"
            told = {
                "records": (between["revision"] - before["revision"]) / count,
                "p50_ms": percentile(took_s, 0.5) * 1e3,
                "put_entries": (after["position"][1] - between["position"][1]) / count,
                "put_leader_cpu_ms": (processor_s(store.process.pid) - spent_s) / count * 1e3,
                "put_p50_ms": percentile(puts_s, 0.5) * 1e3,
            }
            for name, value in told.items():
                found.setdefault(f"{name} {way}", []).append(value)
    units = {"records": "records", "put_entries": "entries"}
    for name in ("records", "p50_ms", "put_entries", "put_leader_cpu_ms", "put_p50_ms"):
        print_figure(f"one_shot_{name}", found[f"{name} shared"], units.get(name, "ms"), found[f"{name} own"])


def main() -> None:
    """Start a cluster and a replica, and measure."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    with tempfile.TemporaryDirectory(prefix="one-shot-") as name:
        folder = Path(name)
        cluster = DevCluster(folder / "cluster")
        try:
            cluster.start()
            with stores(cluster.metadata_uri, _LOG, folder) as replicas:
                asyncio.run(_measure(replicas.start("a"), cluster.metadata_uri, folder, count))
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()

"""`python -m tests.bench.bench_restore`: how long a log of many keys takes to be backed up, verified and restored.

A map of RSM_BENCH_KEYS keys (1,000,000) of 256 bytes on three bookies (3/3/2), served while it is backed up. Times are
those of the whole commands; `restore_first_put_s` is from the start of `rsm backup restore` until a replica of the new
log has confirmed a put. Each of RSM_BENCH_ROUNDS begins with a backup to a place that is empty.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import uvloop

from ledger.dev.cluster import DevCluster
from rsm_spark.map.client.client import MapClient
from tests.bench.figure import ROUND_COUNT, print_figure, say
from tests.bench.store_boot import load_keys
from tests.bench.store_load import VALUE, start_replica

ROUNDS = int(os.environ.get("RSM_BENCH_ROUNDS", str(ROUND_COUNT)))
KEYS = int(os.environ.get("RSM_BENCH_KEYS", "1000000"))
LOG = "copied"
_LIMIT_S = 600.0


async def main() -> None:
    """Measure each round and print a line per figure."""
    figures: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder) / "cluster") as cluster:
        leader = await start_replica("leader", cluster, Path(folder), log=LOG)
        try:
            say(f"restore: {KEYS:,} keys")
            await load_keys(cluster.metadata_uri, KEYS, log=LOG)
            for number in range(ROUNDS):
                say(f"restore: round {number + 1} of {ROUNDS}")
                await _measure(cluster, Path(folder), f"again-{number}", figures)
        finally:
            await leader.stop()
    for name, found in figures.items():
        print_figure(name, found, "s")


async def _measure(cluster: DevCluster, folder: Path, new: str, figures: dict[str, list[float]]) -> None:
    place = folder / f"backups-of-{new}"
    data = folder / f"replica-{new}"
    where = ("--metadata-uri", cluster.metadata_uri)
    figures["backup_create_s"].append(await _run("create", LOG, "--place", str(place), *where))
    figures["backup_verify_s"].append(await _run("verify", LOG, "--place", str(place)))
    began = time.perf_counter()
    arguments = ("restore", LOG, "--place", str(place), "--as", new, "--data-dir", str(data), *where)
    figures["backup_restore_s"].append(await _run(*arguments))
    replica = await start_replica(data.name, cluster, folder, log=new)
    try:
        async with await MapClient.connect(new, cluster.metadata_uri, timeout_s=_LIMIT_S) as client:
            await client.put(b"first", VALUE)
            figures["restore_first_put_s"].append(time.perf_counter() - began)
            found = await client.count(prefix=b"key-")
            assert found == KEYS, f"{found} of {KEYS} keys were restored"
    finally:
        await replica.stop()


async def _run(*arguments: str) -> float:
    """Run `rsm backup`; return its seconds."""
    command = [sys.executable, "-m", "rsm_spark", "backup", *arguments, "--json"]
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    code = await asyncio.wait_for(process.wait(), _LIMIT_S)
    assert not code, f"{arguments} ended with {code}"
    return time.perf_counter() - began


if __name__ == "__main__":
    uvloop.run(main())

"""`python -m tests.bench.bench_logs`: appends of 100 bytes to a plain log beside adds to a ledger.

`peer` is the ledger alone, on the same bookies: one entry for each append. One caller, and 64 that append again as soon
as they are answered. CPU is that of this process, the writer, by append. RSM_BENCH_ROUNDS, RSM_BENCH_SECONDS change
sizes.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import uvloop

from ledger.client.client import LedgerClient
from ledger.dev.cluster import DevCluster
from rsm_spark.logs import Logs
from tests.bench.figure import print_figure, say

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "3"))
SECONDS = float(os.environ.get("RSM_BENCH_SECONDS", "3"))
LEVELS = (1, 64)
_PAYLOAD = bytes(100)


async def _load(append: Callable[[], asyncio.Future[int]], callers: int) -> tuple[float, float]:
    """Return appends a second, and microseconds of this process by append."""
    end, count = time.perf_counter() + SECONDS, 0

    async def call() -> None:
        nonlocal count
        while time.perf_counter() < end:
            await append()
            count += 1

    cpu_s = time.process_time()
    await asyncio.gather(*(call() for _ in range(callers)))
    return count / SECONDS, (time.process_time() - cpu_s) * 1e6 / count


async def main() -> None:
    """Measure both in turn and print a line per figure."""
    figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder) / "cluster") as cluster:
        async with (
            await LedgerClient.connect(cluster.metadata_uri) as client,
            await Logs.connect(cluster.metadata_uri) as logs,
        ):
            await logs.create("bench")
            writer = await logs.open_writer("bench")
            handle = await client.create(ensemble_size=2, write_quorum=2, ack_quorum=2)
            ways = {"log": lambda: writer.append(_PAYLOAD), "ledger": lambda: handle.append(_PAYLOAD)}
            for number in range(ROUND_COUNT):
                say(f"logs: round {number + 1} of {ROUND_COUNT}")
                for callers in LEVELS:
                    for way in sorted(ways, reverse=bool(number % 2)):
                        per_s, cpu_us = await _load(ways[way], callers)
                        figures[f"log_appends_{callers}"][way].append(per_s)
                        figures[f"log_append_cpu_us_{callers}"][way].append(cpu_us)
            await handle.close()
            await writer.close()
    for name, found in figures.items():
        print_figure(name, found["log"], "us" if "_us_" in name else "appends/s", found["ledger"])


if __name__ == "__main__":
    uvloop.run(main())

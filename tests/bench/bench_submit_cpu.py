"""CPU of a single submit: of the client that sends it and of the broker that has it logged, in µs a task.

    RSM_BENCH_SECONDS=5 RSM_BENCH_ROUNDS=3 .venv/bin/python -m tests.bench.bench_submit_cpu

One caller, then sixteen, submit one task after the other by `AsyncBrokerClient`; nobody works, so that the CPU of a
broker is that of submits alone. What it uses while nothing is asked of it is measured before, and taken off. Wall time
says little on a busy machine: what counts is what the processes used, of all their threads.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from broker.client.client import AsyncBrokerClient
from ledger.dev.cluster import DevCluster
from tests.bench.broker_site import PAYLOAD, BrokerSite
from tests.bench.figure import print_figure, say

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "3"))
SECONDS = float(os.environ.get("RSM_BENCH_SECONDS", "5"))
CALLER_COUNTS = (1, 16)
_IDLE_S = 3.0


async def _submit(client: AsyncBrokerClient, callers: int, seconds: float) -> int:
    """Submit for so long; return how many tasks."""
    end = time.perf_counter() + seconds

    async def one(caller: int) -> int:
        count = 0
        while time.perf_counter() < end:
            await client.submit("nothing", PAYLOAD.format(caller))
            count += 1
        return count

    return sum(await asyncio.gather(*(one(number) for number in range(callers))))


async def _measure(site: BrokerSite) -> None:
    figures: dict[str, list[float]] = defaultdict(list)
    pid = site.brokers[site.leader].pid
    began_us, began_s = _cpu_us(pid), time.perf_counter()
    await asyncio.sleep(_IDLE_S)
    idle = (_cpu_us(pid) - began_us) / (time.perf_counter() - began_s)
    async with await AsyncBrokerClient.connect([f"http://{site.address}"], tenant="bench") as client:
        await _submit(client, max(CALLER_COUNTS), 1.0)
        for number in range(ROUND_COUNT):
            say(f"submits: round {number + 1} of {ROUND_COUNT}")
            for callers in CALLER_COUNTS:
                before = _cpu_us(os.getpid()), _cpu_us(pid), time.perf_counter()
                count = await _submit(client, callers, SECONDS)
                after = _cpu_us(os.getpid()), _cpu_us(pid), time.perf_counter()
                ours, theirs, took_s = (new - old for new, old in zip(after, before, strict=True))
                figures[f"submit_{callers}_client_cpu_us"].append(ours / count)
                figures[f"submit_{callers}_broker_cpu_us"].append((theirs - idle * took_s) / count)
                figures[f"submit_{callers}_per_s"].append(count / took_s)
    for name, values in figures.items():
        print_figure(name, values, "tasks/s" if name.endswith("per_s") else "us")


def _cpu_us(pid: int) -> float:
    """Return what all threads of a process have used so far."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((one / "schedstat").read_text().split()[0]) for one in tasks.iterdir()) / 1_000


async def _main() -> None:
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as name:
        folder = Path(name)
        cluster = DevCluster(folder / "cluster")
        cluster.start()
        try:
            site = BrokerSite(cluster, folder)
            try:
                await site.start_broker("b1")
                await site.find_leader()
                await _measure(site)
            finally:
                await site.stop()
        finally:
            cluster.stop()


if __name__ == "__main__":
    asyncio.run(_main())

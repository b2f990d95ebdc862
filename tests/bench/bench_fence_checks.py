"""What a fence check costs that is asked of as few bookies as can prove it, and one that is asked of all.

    RSM_BENCH_ROUNDS=20 .venv/bin/python -P -m tests.bench.bench_fence_checks

One writer of a ledger on three bookies (3/3/2) makes one check after the other, as the leader of a log does for one
reader. The two kinds take turns every few hundred checks, so that what else the machine does meets both alike. CPU is
by check, of the writer's process and of the three bookies.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import uvloop

from ledger.client.client import LedgerClient
from ledger.client.write_handle import WriteHandle
from ledger.core.fence_check import FenceCheck
from ledger.dev.cluster import DevCluster
from tests.bench.cpu import CpuMeter
from tests.bench.figure import percentile, print_figure, say

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "20"))
_CHECKS = 500
_TAKE = FenceCheck.take
_IS_FEW = [True]  # Whether the checks that begin now ask few.


def _take(check: FenceCheck, order: Sequence[int]) -> list[int]:
    return _TAKE(check, order) if _IS_FEW[0] else check.take_rest(order)


async def _check(handle: WriteHandle, count: int) -> list[float]:
    """Return how long each check took, ms."""
    took_ms: list[float] = []
    for _ in range(count):
        began_s = time.perf_counter()
        while not await handle.check_fence():  # A machine that is too busy to answer within 0.1 s.
            await asyncio.sleep(1.0)
            began_s = time.perf_counter()
        took_ms.append((time.perf_counter() - began_s) * 1e3)
    return took_ms


async def main() -> None:
    """Measure and print a line per figure."""
    figures: dict[str, list[float]] = defaultdict(list)
    FenceCheck.take = _take  # type: ignore[method-assign, assignment]  # counts both kinds
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder) / "cluster") as cluster:
        pids = cluster.pids()
        kinds = {"writer": [os.getpid()], "bookies": [pid for name, pid in pids.items() if name.startswith("bookie")]}
        async with await LedgerClient.connect(cluster.metadata_uri) as client:
            handle = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
            await handle.append(b"zero")
            while not await handle.check_fence():
                await asyncio.sleep(0.1)
            for number in range(ROUND_COUNT):
                say(f"fence checks: round {number + 1} of {ROUND_COUNT}")
                for name in ("few", "all"):
                    _IS_FEW[0] = name == "few"
                    await _check(handle, 20)
                    meter = CpuMeter(kinds)
                    took_ms = await _check(handle, _CHECKS)
                    meter.note(f"fence_check_{name}", _CHECKS, lambda key, value: figures[key].append(value))
                    figures[f"fence_check_{name}_p50_ms"].append(percentile(took_ms, 0.5))
                    figures[f"fence_check_{name}_p99_ms"].append(percentile(took_ms, 0.99))
    for name, values in figures.items():
        print_figure(name, values, "ms" if name.endswith("_ms") else "µs")


if __name__ == "__main__":
    uvloop.run(main())

"""`python -m tests.bench.bench_seal`: what the key of a log costs, beside a log without one on the same bookies.

Three replicas each (3/3/2), 256-byte puts of 64 callers and of one, in turn within each round, one log idle meanwhile.
CPU is that of the three replicas of the log, user and system, by put. RSM_BENCH_ROUNDS, RSM_BENCH_SECONDS change sizes.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from pathlib import Path

import uvloop

from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from rsm_spark.log.key_file import new_key, write_key_file
from tests.bench.cpu import cpu_s
from tests.bench.figure import print_figure, say
from tests.bench.store_load import measure, put, start_replica

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "3"))
SECONDS = float(os.environ.get("RSM_BENCH_SECONDS", "5"))
LEVELS = (64, 1)


async def main() -> None:
    """Measure both logs in turn and print a line per figure; `peer` is the log without a key."""
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder) / "cluster") as cluster:
        key = Path(folder) / "log.key"
        write_key_file(key, [new_key()], replace=False)
        logs: dict[str, list[Child]] = {}
        figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        try:
            for log, options in (("plain", ()), ("sealed", ("--log-key", str(key)))):
                (Path(folder) / log).mkdir()
                logs[log] = []
                for number in range(3):
                    started = start_replica(f"{log}-{number}", cluster, Path(folder) / log, *options, log=log)
                    logs[log].append(await started)
            for number in range(ROUND_COUNT):
                say(f"seal: round {number + 1} of {ROUND_COUNT}")
                for callers in LEVELS:
                    for log in ("plain", "sealed") if number % 2 else ("sealed", "plain"):
                        before = sum(cpu_s(child.pid) for child in logs[log])
                        load = await measure(cluster.metadata_uri, callers, put, seconds=SECONDS, log=log)
                        cpu_us = (sum(cpu_s(child.pid) for child in logs[log]) - before) * 1e6 / (load.per_s * SECONDS)
                        figures[f"seal_puts_{callers}"][log].append(load.per_s)
                        figures[f"seal_put_p50_ms_{callers}"][log].append(load.p50_ms)
                        figures[f"seal_put_cpu_us_{callers}"][log].append(cpu_us)
        finally:
            for children in logs.values():
                for child in children:
                    await child.stop()
        for name, found in figures.items():
            unit = "ms" if "_ms_" in name else "us" if "_us_" in name else "puts/s"
            print_figure(name, found["sealed"], unit, found["plain"])


if __name__ == "__main__":
    uvloop.run(main())

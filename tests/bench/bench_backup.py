"""`python -m tests.bench.bench_backup`: what a backup that runs costs the puts of the log that it copies.

Three replicas (3/3/2), 256-byte puts of 64 callers, alone and beside `rsm backup create --every 2s`, in turn within
each round. The backup copies all that was written since the one before, and the newest snapshot. CPU is that of the
three replicas and three bookies, by put. RSM_BENCH_ROUNDS, RSM_BENCH_SECONDS change sizes; RSM_BENCH_RATE_MB bounds
what the backup reads a second (0 = nothing does).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import uvloop

from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from tests.bench.cpu import cpu_s
from tests.bench.figure import print_figure, say
from tests.bench.store_load import measure, put, start_replica

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "4"))
SECONDS = float(os.environ.get("RSM_BENCH_SECONDS", "8"))
RATE_MB = os.environ.get("RSM_BENCH_RATE_MB", "20")
LOG = "backed-up"


async def main() -> None:
    """Measure in turn and print a line per figure; `peer` is the log without a backup beside it."""
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder) / "cluster") as cluster:
        replicas: list[Child] = []
        figures: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        backups = 0
        try:
            for number in range(3):
                options = ("--snapshot-s", "5", "--roll-s", "10")
                replicas.append(await start_replica(f"r{number}", cluster, Path(folder), *options, log=LOG))
            pids = [child.pid for child in replicas]
            pids += [pid for name, pid in cluster.pids().items() if name.startswith("bookie")]
            for number in range(ROUND_COUNT):
                say(f"backup: round {number + 1} of {ROUND_COUNT}")
                for what in ("alone", "beside") if number % 2 else ("beside", "alone"):
                    backup = _backup(cluster.metadata_uri, Path(folder)) if what == "beside" else None
                    try:
                        before = sum(map(cpu_s, pids))
                        load = await measure(cluster.metadata_uri, 64, put, seconds=SECONDS, log=LOG)
                        cpu_us = (sum(map(cpu_s, pids)) - before) * 1e6 / (load.per_s * SECONDS)
                    finally:
                        if backup is not None:
                            backup.terminate()
                            backups += len((backup.communicate()[0] or b"").splitlines())
                    figures["backup_puts_64"][what].append(load.per_s)
                    figures["backup_put_p99_ms_64"][what].append(load.p99_ms)
                    figures["backup_put_cpu_us_64"][what].append(cpu_us)
        finally:
            for child in replicas:
                await child.stop()
        if not backups:
            raise RuntimeError("no backup was made: nothing was measured")
        say(f"backup: {backups} backups were made beside the puts")
        for name, found in figures.items():
            unit = "ms" if "_ms_" in name else "us" if "_us_" in name else "puts/s"
            print_figure(name, found["beside"], unit, found["alone"])


def _backup(metadata_uri: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "rsm_spark", "backup", "create", LOG, "--place", str(folder / "backups")]
    command += ["--every", "2s", "--rate-mb", RATE_MB, "--json", "--metadata-uri", metadata_uri]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


if __name__ == "__main__":
    uvloop.run(main())

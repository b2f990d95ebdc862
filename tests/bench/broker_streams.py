"""What idle workers cost a broker: memory and CPU of its process, with so many streams open.

python -m tests.bench.broker_streams --workers 1000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from broker.machine.policies import WorkerOffer
from broker.machine.worker_messages import FromWorker, WorkerHello
from broker.worker.stream import WorkerStream
from ledger.dev import DevCluster
from rsm_spark.transport.security import Security
from tests.bench.cpu import cpu_s


def _rss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError


async def _connect(address: str, number: int) -> WorkerStream:
    stream = WorkerStream(address, Security())
    hello = WorkerHello(f"w{number}", secrets.token_hex(16), "bench", WorkerOffer(8))
    await stream.send(FromWorker(hello=hello))
    assert (await stream.receive()).welcome is not None
    return stream


async def _ping(streams: list[WorkerStream], period_s: float) -> None:
    """Have every worker ping as it would, spread over the period."""
    while True:
        for stream in streams:
            await stream.send(FromWorker(ping=1))
            await stream.receive()
            await asyncio.sleep(period_s / len(streams))


async def _measure(pid: int, address: str, workers: int, seconds: float) -> None:
    await asyncio.sleep(3)
    before_mib, used_s = _rss_mib(pid), cpu_s(pid)
    await asyncio.sleep(seconds)
    idle = (cpu_s(pid) - used_s) / seconds
    streams: list[WorkerStream] = []
    loop = asyncio.get_running_loop()
    began = loop.time()
    for first in range(0, workers, 50):
        streams += await asyncio.gather(*(_connect(address, n) for n in range(first, min(workers, first + 50))))
    connect_s = loop.time() - began
    pinging = loop.create_task(_ping(streams, 10.0))
    await asyncio.sleep(5)
    used_s = cpu_s(pid)
    await asyncio.sleep(seconds)
    busy = (cpu_s(pid) - used_s) / seconds
    print(
        json.dumps(
            {
                "workers": workers,
                "connect_s": round(connect_s, 2),
                "rss_mib": round(_rss_mib(pid), 1),
                "kib_a_worker": round((_rss_mib(pid) - before_mib) * 1024 / workers, 1),
                "cpu_percent_without": round(idle * 100, 1),
                "cpu_percent_with": round(busy * 100, 1),
            }
        )
    )
    pinging.cancel()
    await asyncio.gather(*(stream.close() for stream in streams))


def main() -> None:
    """Start a cluster and a broker, open the streams, print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cluster = DevCluster(Path(folder) / "cluster", bookie_count=3)
        cluster.start()
        try:
            command = [
                sys.executable,
                "-m",
                "broker",
                "run",
                "--metadata-uri",
                cluster.metadata_uri,
                "--bookies",
                "3/3/2",
            ]
            command += ["--data-dir", f"{folder}/a", "--json"]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as broker:
                try:
                    assert broker.stdout is not None
                    ready = json.loads(broker.stdout.readline())
                    asyncio.run(_measure(broker.pid, ready["address"], options.workers, options.seconds))
                finally:
                    broker.terminate()
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()

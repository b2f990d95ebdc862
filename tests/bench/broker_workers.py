"""Many workers in one process, for loads on the broker: `python -m tests.bench.broker_workers URI LOG COUNT THREADS`.

Each is a whole worker with a stream of its own; only the process is shared, as 100 interpreters would be most of the
load. Their tasks do nothing. A payload that begins with `T` holds the time at which it was sent (ns of the monotonic
clock, which all processes of a machine share): how long each took to begin is told when asked (`{"latencies": true}` on
standard input) as percentiles, and forgotten.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

from broker.worker.context import TaskContext
from broker.worker.executors.coroutines import AsyncioExecutor
from broker.worker.registry import Registry
from broker.worker.settings import WorkerSettings
from broker.worker.worker import Worker
from tests.bench.figure import percentile

NOTHING = "nothing"
SLEEP = "sleep"


class _Runs:
    """What was run since it was last asked."""

    def __init__(self) -> None:
        self.count = 0
        self.latencies_ms: list[float] = []

    def nothing(self, _context: TaskContext, payload: bytes) -> None:
        self.count += 1
        if payload[:1] == b"T":
            sent_ns = int(payload[1:].split(b" ", 1)[0])
            self.latencies_ms.append((time.monotonic_ns() - sent_ns) / 1e6)

    async def sleep(self, _context: TaskContext, payload: bytes) -> None:
        await asyncio.sleep(float(payload))

    def take(self) -> dict[str, Any]:
        latencies, self.latencies_ms = self.latencies_ms, []
        count, self.count = self.count, 0
        shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        found = {name: percentile(latencies, share) if latencies else None for name, share in shares.items()}
        return {"count": count, **found}


async def _main(metadata_uri: str, log: str, count: int, threads: int) -> None:
    runs = _Runs()
    registry = Registry()
    registry.add(NOTHING, runs.nothing)
    registry.add(SLEEP, runs.sleep)
    workers = [
        Worker(
            WorkerSettings(worker_id=f"w{number:03}", threads=threads, log=log),
            AsyncioExecutor(registry),
            metadata_uri=metadata_uri,
        )
        for number in range(count)
    ]
    for worker in workers:
        await worker.__aenter__()
    for worker in workers:
        await worker.wait_connected()
    _say({"ready": True})
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    asked = 0
    while line := await stdin.readline():
        if json.loads(line).get("latencies"):
            asked += 1
            _say({"asked": asked, "runs": runs.take()})
    for worker in workers:
        await worker.__aexit__(None, None, None)


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))

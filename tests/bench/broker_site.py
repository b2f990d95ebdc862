"""A whole broker for loads: three bookies (3/3/2, fsync), a leading broker, a following one, workers."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from tests.bench.http_load import HttpLoad, call, drive_http, request_bytes

LOG = "bench-tasks"
BATCH = 1_000
PAYLOAD = "{:0>100}"
"""100 bytes that compress as well as most payloads: a number behind zeros."""
_SETTLE_S = 1.0
_WAIT_S_MAX = 600.0


class BrokerSite:
    """Its processes; made by `start`.

    Attributes:
        address: "host:port" of the leader's HTTP API.
        leader: Name of the leading broker.

    """

    def __init__(self, cluster: DevCluster, folder: Path, *, options: tuple[str, ...] = ()) -> None:
        self._cluster = cluster
        self._folder = folder
        self._options = options
        self._numbers = itertools.count()
        self.brokers: dict[str, Child] = {}
        self.workers: Child | None = None
        self.address = ""
        self.leader = ""

    async def start(self, worker_count: int, *, threads: int = 50, names: tuple[str, ...] = ("b1", "b2")) -> None:
        """Start brokers and workers; return when tasks can be submitted."""
        for name in names:
            await self.start_broker(name)
        await self.find_leader()
        await self.start_workers(worker_count, threads)

    async def start_workers(self, count: int, threads: int) -> None:
        """Have so many workers instead of those that are there."""
        if self.workers is not None:
            await self.workers.stop()
        command = [sys.executable, "-m", "tests.bench.broker_workers", self._cluster.metadata_uri, LOG]
        name = f"workers-{next(self._numbers)}"
        self.workers = await Child.start(name, [*command, str(count), str(threads)], log_dir=self._folder)
        await self.workers.until(lambda said: said.get("ready"), timeout_s=120, what="connecting")

    async def start_broker(self, name: str) -> None:
        """Start a broker on its own data."""
        command = [sys.executable, "-m", "rsm_spark", "broker", "run", "--json", "--log", LOG, "--port", "0"]
        command += ["--http-port", "0", "--metadata-uri", self._cluster.metadata_uri, "--replica-id", name]
        command += ["--bookies", "3/3/2", "--data-dir", str(self._folder / name), *self._options]
        child = await Child.start(name, command, log_dir=self._folder)
        self.brokers[name] = child
        await child.until(lambda said: said.get("ready"), timeout_s=300, what="serving")

    async def find_leader(self) -> None:
        """Look who leads."""
        deadline = time.monotonic() + _WAIT_S_MAX
        while time.monotonic() < deadline:
            for name, child in self.brokers.items():
                if child.is_running:
                    address = child.said["http_address"].removeprefix("http://")
                    if (await call(address, "GET", "/api/v1/status"))["role"] == "leader":
                        self.leader, self.address = name, address
                        return
            await asyncio.sleep(0.05)
        raise TimeoutError("nobody leads")

    async def wait_caught_up(self, name: str) -> None:
        """Wait until a broker has applied what the leader has."""
        wanted = (await call(self.address, "GET", "/api/v1/status"))["revision"]
        address = self.brokers[name].said["http_address"]
        deadline = time.monotonic() + _WAIT_S_MAX
        while (await call(address, "GET", "/api/v1/status"))["revision"] < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} does not catch up")
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """End everything."""
        children = [*self.brokers.values(), *([self.workers] if self.workers else [])]
        await asyncio.gather(*(child.stop() for child in children))

    # ---- loads

    def single_requests(self, task_type: str = "nothing") -> Iterator[bytes]:
        """Return requests that submit one task each, without end."""
        while True:
            payload = PAYLOAD.format(next(self._numbers))
            yield request_bytes("POST", "/api/v1/tasks", self.address, {"type": task_type, "payload": payload})

    def batches(
        self,
        count: int,
        *,
        task_type: str = "nothing",
        transaction: int = 0,
        tenant: str = "bench",
        size: int = BATCH,
    ) -> list[bytes]:
        """Return requests that submit `size` tasks each."""
        more = {"transaction": transaction} if transaction else {}
        return [
            request_bytes(
                "POST",
                "/api/v1/tasks/batch",
                self.address,
                {
                    "tasks": [{"type": task_type, "payload": PAYLOAD.format(next(self._numbers))} for _ in range(size)],
                    **more,
                },
                tenant=tenant,
            )
            for _ in range(count)
        ]

    async def send(self, requests: list[bytes], *, connections: int) -> HttpLoad:
        """Send requests, spread over connections."""
        shares = [requests[number::connections] for number in range(connections)]
        return await drive_http(self.address, lambda number: iter(shares[number]), connections=connections)

    async def finished(self, tenant: str = "bench") -> int:
        """Return how many tasks have finished."""
        overview = await call(self.address, "GET", "/api/v1/overview", tenant=tenant)
        return int(overview["by_status"].get("finished", 0))

    async def wait_finished(self, count: int, tenant: str = "bench") -> float:
        """Wait until so many have; return when."""
        deadline = time.monotonic() + _WAIT_S_MAX
        while await self.finished(tenant) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"fewer than {count} tasks have finished")
            await asyncio.sleep(0.02)
        return time.perf_counter()

    async def run_latencies(self) -> dict[str, Any]:
        """Return what workers have run since this was asked last."""
        assert self.workers is not None
        asked = self.workers.said.get("asked", 0)
        await self.workers.tell({"latencies": True})
        await self.workers.until(lambda said: said.get("asked", 0) > asked, timeout_s=60, what="counting")
        found: dict[str, Any] = self.workers.said["runs"]
        return found

    async def settle(self) -> None:
        """Let what the load before has left end."""
        await asyncio.sleep(_SETTLE_S)

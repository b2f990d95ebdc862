"""`python -m tests.bench.bench_fairness`: one tenant's submits, alone and beside another tenant that takes all it can.

`fairness_batches_p99` is the victim's p99 beside batches of 5,000 tasks by three connections, over its p99 alone in the
same round; `_p50` the same. The victim submits one task after the other. `_stall_ms` is the longest answer of
`/healthz`, asked every 2 ms: about how long the event loop stood still. `_tasks` is what the other tenant got, in tasks
a second.

RSM_BENCH_ROUNDS, RSM_BENCH_SECONDS change sizes; RSM_BENCH_TREES=DIR:DIR measures the brokers of several trees in turn,
each figure then being followed by the name of the tree.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop

from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from tests.bench.figure import percentile, print_figure, say
from tests.bench.http_load import call, request_bytes

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "5"))
SECONDS = float(os.environ.get("RSM_BENCH_SECONDS", "8"))
TREES = [Path(one) for one in os.environ.get("RSM_BENCH_TREES", "").split(":") if one]
ATTACKERS = 3
BATCH = 5_000
_PROBE_S = 0.002


class _Connection:
    """One request after the other; every answer counts, whatever its status."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, address: str) -> _Connection:
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def ask(self, request: bytes) -> int:
        """Return the status."""
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        _, _, rest = head.partition(b"content-length:")
        await self._reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
        return int(head.split(b" ", 2)[1])

    def close(self) -> None:
        self._writer.close()


class _Site:
    """One broker of one tree."""

    def __init__(self, name: str, tree: Path | None, cluster: DevCluster, folder: Path, number: int) -> None:
        self.name = name
        self._tree = tree
        self._command = [
            sys.executable, "-m", "rsm_spark", "broker", "run", "--json", "--log", f"fair{name}{number}", "--port", "0",
            "--http-port", "0", "--metadata-uri", cluster.metadata_uri, "--replica-id", "b1", "--bookies", "3/3/2",
            "--data-dir", str(folder / f"data{name}{number}"),
        ]  # fmt: skip
        self._folder = folder
        self.address = ""

    async def start(self) -> None:
        tree = {} if self._tree is None else {"PYTHONPATH": str(self._tree)}
        # What is run is that of the folder in which it is run.
        command = self._command if self._tree is None else ["env", "-C", str(self._tree), *self._command]
        self._child = await Child.start(f"broker{self.name}", command, log_dir=self._folder, environment=tree)
        await self._child.until(lambda said: said.get("ready"), timeout_s=120, what="serving")
        self.address = self._child.said["http_address"].removeprefix("http://")
        while (await call(self.address, "GET", "/api/v1/status"))["role"] != "leader":
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        await self._child.stop()


class Bench:
    """Figures of all rounds, by name."""

    def __init__(self) -> None:
        self._figures: dict[str, list[float]] = defaultdict(list)

    def note(self, name: str, value: float) -> None:
        say(f"  {name}: {value:,.2f}")
        self._figures[name].append(value)

    def print(self) -> None:
        """Print every figure."""
        for name, values in self._figures.items():
            unit = "ms" if "_ms" in name else "tasks/s" if "_tasks" in name else "times"
            print_figure(name, values, unit)

    async def round(self, site: _Site) -> None:
        """Measure the victim alone, then beside batches."""
        quiet, _ = await _victim(site, SECONDS / 2)
        async with _batches(site) as sent:
            began = time.monotonic()
            beside, stall_s = await _victim(site, SECONDS)
            took = time.monotonic() - began
        after = site.name
        self.note(f"fairness_quiet_p50_ms{after}", percentile(quiet, 0.5) * 1e3)
        self.note(f"fairness_quiet_p99_ms{after}", percentile(quiet, 0.99) * 1e3)
        self.note(f"fairness_batches_p99_ms{after}", percentile(beside, 0.99) * 1e3)
        self.note(f"fairness_batches_p50{after}", percentile(beside, 0.5) / percentile(quiet, 0.5))
        self.note(f"fairness_batches_p99{after}", percentile(beside, 0.99) / percentile(quiet, 0.99))
        self.note(f"fairness_batches_stall_ms{after}", stall_s * 1e3)
        self.note(f"fairness_batches_tasks{after}", len(sent) * BATCH / took)


async def _victim(site: _Site, seconds: float) -> tuple[list[float], float]:
    """Return the latencies of one task after the other, and the longest answer of a request that needs nothing."""
    connection, probe = await _Connection.open(site.address), await _Connection.open(site.address)
    task = {"type": "mail", "payload": "x" * 100}
    request = request_bytes("POST", "/api/v1/tasks", site.address, task, tenant="bolt")
    ping = request_bytes("GET", "/healthz", site.address)
    latencies: list[float] = []
    longest = 0.0
    end = time.perf_counter() + seconds

    async def look() -> None:
        nonlocal longest
        while time.perf_counter() < end:
            began = time.perf_counter()
            await probe.ask(ping)
            longest = max(longest, time.perf_counter() - began)
            await asyncio.sleep(_PROBE_S)

    looking = asyncio.create_task(look())
    while time.perf_counter() < end:
        began = time.perf_counter()
        status = await connection.ask(request)
        assert status == 201, f"the victim was answered {status}"
        latencies.append(time.perf_counter() - began)
    await looking
    connection.close()
    probe.close()
    return latencies, longest


@contextlib.asynccontextmanager
async def _batches(site: _Site) -> AsyncIterator[list[float]]:
    """Have another tenant submit batches; yield when each was taken."""
    body = {"tasks": [{"type": "mail", "payload": "x" * 20}] * BATCH}
    request = request_bytes("POST", "/api/v1/tasks/batch", site.address, body, tenant="acme")
    sent: list[float] = []

    async def attack() -> None:
        connection = await _Connection.open(site.address)
        while True:
            status = await connection.ask(request)
            if status == 200:
                sent.append(time.perf_counter())
            else:
                assert status == 429, f"the other tenant was answered {status}"
                await asyncio.sleep(0.01)

    attacks = [asyncio.create_task(attack()) for _ in range(ATTACKERS)]
    await asyncio.sleep(1.0)
    sent.clear()
    try:
        yield sent
        assert not any(one.done() for one in attacks)
    finally:
        for one in attacks:
            one.cancel()
        await asyncio.gather(*attacks, return_exceptions=True)


async def _main() -> None:
    bench = Bench()
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as text:
        folder = Path(text)
        cluster = DevCluster(folder / "cluster")
        cluster.start()
        try:
            trees: list[tuple[str, Path | None]] = [(f"_{tree.name}", tree) for tree in TREES] or [("", None)]
            for number in range(ROUND_COUNT):
                for name, tree in trees:
                    say(f"fairness{name}: round {number + 1} of {ROUND_COUNT}")
                    site = _Site(name, tree, cluster, folder, number)
                    await site.start()
                    await bench.round(site)
                    await site.stop()
        finally:
            cluster.stop()
    bench.print()


if __name__ == "__main__":
    uvloop.run(_main())

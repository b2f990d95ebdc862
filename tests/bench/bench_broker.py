"""`make bench-broker`: the task broker: one leader, one follower, three bookies (3/3/2, fsync), no-op tasks.

`tasks_batch` is tasks a second from the first submit to the last end, in batches of 1,000 over HTTP, with 20 workers;
`tasks_single_http_16` submits by 16 connections with one task outstanding each, and `_finished` counts the same until
the last has ended. A dispatch latency runs from the moment at which a task is sent to the broker to that at which a
worker begins with it, submit and both entries of the log included, at a share of `tasks_batch`. `backlog_cost` is the
share of `tasks_batch` that 1,000,000 waiting tasks of a capped tenant in front cost. `tasks_batch_cpu_us` is what all
processes use by task until the last has ended, `…_cpu_us_leader` the leading broker alone. Load, brokers, workers,
bookies and ZooKeeper share this machine's cores; the peers' figures of the same kind are in docs/figures.md.

RSM_BENCH_ROUNDS, RSM_BENCH_SECONDS (of each timed load), RSM_BENCH_TASKS (of each batch load), RSM_BENCH_BACKLOG,
RSM_BENCH_KILLS change sizes; RSM_BENCH_ONLY=single,batch,hundred,latency,tenants,backlog,memory,snapshot,failover names
parts.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import uvloop

from broker.client.client import AsyncBrokerClient
from broker.client.task import NewTask
from ledger.dev.cluster import DevCluster
from tests.bench.broker_site import BATCH, LOG, PAYLOAD, BrokerSite
from tests.bench.broker_snapshot import measure_snapshot
from tests.bench.cpu import CpuMeter
from tests.bench.figure import percentile, print_figure, say
from tests.bench.http_load import HttpFeed, call, drive_http, request_bytes

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "3"))
SECONDS = float(os.environ.get("RSM_BENCH_SECONDS", "5"))
TASK_COUNT = int(os.environ.get("RSM_BENCH_TASKS", "30000"))
BACKLOG = int(os.environ.get("RSM_BENCH_BACKLOG", "1000000"))
KILL_COUNT = int(os.environ.get("RSM_BENCH_KILLS", "10"))
ALL_PARTS = "single,batch,hundred,latency,tenants,backlog,memory,snapshot,failover"
PARTS = os.environ.get("RSM_BENCH_ONLY", ALL_PARTS).split(",")
CONNECTIONS = 4
TENANT_COUNT = 10_000
LOAD_SHARES = (0.1, 0.5, 0.9)
ARRIVALS_S = 0.01
SNAPSHOT_TASKS = 100_000
_UNITS = {"_ms": "ms", "_s": "s", "_mb": "MB", "cost": "share"}


class Bench:
    """Figures of all rounds, by name."""

    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._figures: dict[str, list[float]] = defaultdict(list)
        self._site = BrokerSite(cluster, folder, options=("--session-timeout-ms", "2000"))

    async def run(self) -> None:
        """Measure all parts."""
        site = self._site
        try:
            await site.start(20)
            # Before there is much to replay: a follower that has just come is not what is measured.
            if "failover" in PARTS:
                await self._failovers()
            for number in range(ROUND_COUNT):
                say(f"broker: round {number + 1} of {ROUND_COUNT}")
                await self._round()
            await self._once()
        finally:
            await site.stop()

    def print(self) -> None:
        """Print every figure."""
        for name, values in self._figures.items():
            unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), "tasks/s")
            unit = "µs" if "_cpu_us" in name else unit
            print_figure(name, values, unit)

    def _note(self, name: str, value: float) -> None:
        say(f"  {name}: {value:,.2f}")
        self._figures[name].append(value)

    def _meter(self) -> CpuMeter:
        """Count what each kind of process uses from now on."""
        site, named = self._site, self._cluster.pids()
        bookies = [pid for name, pid in named.items() if name.startswith("bookie")]
        assert site.workers is not None
        return CpuMeter({
            "load": [os.getpid()],
            "leader": [site.brokers[site.leader].pid],
            "followers": [child.pid for name, child in site.brokers.items() if name != site.leader],
            "workers": [site.workers.pid],
            "bookies": bookies,
            "zookeeper": [pid for pid in named.values() if pid not in bookies],
        })  # fmt: skip

    # ---- parts

    async def _round(self) -> None:
        if "single" in PARTS:
            for connections in (1, 16):
                await self._single(connections)
        if "batch" in PARTS or "latency" in PARTS:
            await self._batches("tasks_batch")
        if "batch" in PARTS:
            await self._transactions()
            await self._by_client()
        if "hundred" in PARTS:
            await self._site.start_workers(100, 50)
            await self._batches("tasks_batch_100_workers")
            await self._site.start_workers(20, 50)
        if "latency" in PARTS:
            for share in LOAD_SHARES:
                await self._latency(share)
        if "tenants" in PARTS:
            await self._tenants()

    async def _once(self) -> None:
        if "memory" in PARTS:
            await self._memory()
        if "backlog" in PARTS:
            await self._backlog()
        if "snapshot" in PARTS:
            await asyncio.to_thread(measure_snapshot, 1_000, self._folder)  # Loads what writes Parquet.
            for _ in range(ROUND_COUNT):
                mb, seconds = await asyncio.to_thread(measure_snapshot, SNAPSHOT_TASKS, self._folder)
                self._note("snapshot_mb", mb)
                self._note("snapshot_s", seconds)

    async def _single(self, connections: int) -> None:
        site = self._site
        await site.settle()
        before = await site.finished()
        meter = self._meter()
        began = time.perf_counter()
        load = await drive_http(
            site.address, lambda _: site.single_requests(), connections=connections, seconds=SECONDS
        )
        done = await site.wait_finished(before + len(load.answers))
        meter.note(f"tasks_single_http_{connections}", len(load.answers), self._note)
        self._note(f"tasks_single_http_{connections}", load.per_s)
        self._note(f"tasks_single_http_{connections}_p50_ms", load.p50_ms)
        self._note(f"tasks_single_http_{connections}_finished", len(load.answers) / (done - began))

    async def _batches(self, name: str) -> None:
        site = self._site
        await site.settle()
        requests = site.batches(TASK_COUNT // BATCH)
        before = await site.finished()
        meter = self._meter()
        began = time.perf_counter()
        load = await site.send(requests, connections=CONNECTIONS)
        submitted = time.perf_counter()
        done = await site.wait_finished(before + len(requests) * BATCH)
        meter.note(name, len(requests) * BATCH, self._note)
        self._note(name, len(requests) * BATCH / (done - began))
        self._note(f"{name}_submits", len(requests) * BATCH / (submitted - began))
        self._note(f"{name}_call_p50_ms", load.p50_ms)

    async def _transactions(self) -> None:
        """Submit 1,000 tasks by a transaction of their own, ten batches of 100 each."""
        site = self._site
        await site.settle()
        before = await site.finished()
        count = max(1, TASK_COUNT // BATCH // 3)
        began = time.perf_counter()
        for _ in range(count):
            transaction = (await call(site.address, "POST", "/api/v1/transactions", {"ttl_s": 60}))["transaction"]
            await site.send(site.batches(10, transaction=transaction, size=BATCH // 10), connections=2)
            await call(site.address, "POST", f"/api/v1/transactions/{transaction}/commit")
        done = await site.wait_finished(before + count * BATCH)
        self._note("tasks_transaction_http", count * BATCH / (done - began))

    async def _by_client(self) -> None:
        site = self._site
        await site.settle()
        async with await AsyncBrokerClient.connect([f"http://{site.address}"], tenant="bench") as client:
            before = await site.finished()
            count = TASK_COUNT // 2
            began = time.perf_counter()
            await client.submit_many(NewTask("nothing", PAYLOAD.format(number)) for number in range(count))
            done = await site.wait_finished(before + count)
            self._note("tasks_batch_client", count / (done - began))
            began = time.perf_counter()
            async with client.transaction() as transaction:
                await transaction.submit_many(NewTask("nothing", PAYLOAD.format(number)) for number in range(BATCH))
            done = await site.wait_finished(before + count + BATCH)
            self._note("tasks_transaction_client", BATCH / (done - began))

    async def _latency(self, share: float) -> None:
        """Let tasks arrive evenly, a few every 10 ms, whatever becomes of those before."""
        site = self._site
        await site.settle()
        await site.run_latencies()
        full = self._figures["tasks_batch"][-1]
        per_arrival = max(1, round(full * share * ARRIVALS_S))
        before = await site.finished()
        count = int(SECONDS / ARRIVALS_S)
        async with HttpFeed(site.address, 8) as feed:
            began = time.perf_counter()
            for number in range(count):
                await asyncio.sleep(max(0.0, began + number * ARRIVALS_S - time.perf_counter()))
                tasks = [
                    {"type": "nothing", "payload": f"T{time.monotonic_ns()} ".ljust(100, "0")}
                    for _ in range(per_arrival)
                ]
                feed.put(request_bytes("POST", "/api/v1/tasks/batch", site.address, {"tasks": tasks}))
        await site.wait_finished(before + count * per_arrival)
        found = await site.run_latencies()
        ending = "" if share == 0.5 else f"_{share:.0%}".rstrip("%")  # noqa: PLR2004 - the contract's figure
        self._note(f"dispatch{ending}_p50_ms", found["p50"])
        self._note(f"dispatch{ending}_p99_ms", found["p99"])

    async def _tenants(self) -> None:
        """Let 10,000 tenants submit five tasks each."""
        site = self._site
        await site.settle()
        requests = [site.batches(1, tenant=f"t{number:05}", size=5)[0] for number in range(TENANT_COUNT)]
        overview = await call(site.address, "GET", "/api/v1/status")
        assert overview["role"] == "leader"
        began = time.perf_counter()
        await site.run_latencies()
        await site.send(requests, connections=16)
        ran = 0
        while ran < TENANT_COUNT * 5:
            await asyncio.sleep(0.05)
            ran += (await site.run_latencies())["count"]
        self._note("tasks_10000_tenants", TENANT_COUNT * 5 / (time.perf_counter() - began))

    async def _failovers(self) -> None:
        """Kill one leader after the other under single submits; each is back before the next."""
        site, seconds = self._site, []
        for _ in range(KILL_COUNT):
            async with await AsyncBrokerClient.connect(
                metadata_uri=self._cluster.metadata_uri, log=LOG, tenant="bench"
            ) as client:
                await client.submit("nothing", b"x")
                await asyncio.sleep(random.uniform(0.2, 0.5))  # noqa: S311 - spreads the kills
                killed = site.leader
                site.brokers[killed].kill()
                began = time.perf_counter()
                await client.result(await client.submit("nothing", b"x", limit_s=60), timeout_s=60)
                seconds.append(time.perf_counter() - began)
                await site.brokers[killed].stop()
                await site.start_broker(killed)
                await site.find_leader()
                await site.wait_caught_up(killed)
        self._note("tasks_failover_p50_s", percentile(seconds, 0.5))
        self._note("tasks_failover_p99_s", percentile(seconds, 0.99))

    async def _memory(self) -> None:
        """Have 100,000 tasks wait."""
        site = self._site
        await call(site.address, "PUT", "/api/v1/holds?tenant=held", {"is_paused": True}, tenant="held")
        before = _rss_mib(site.brokers[site.leader].pid)
        await site.send(site.batches(100, tenant="held"), connections=2)
        await site.settle()
        self._note("memory_100k_tasks_mb", (_rss_mib(site.brokers[site.leader].pid) - before) * 1.048576)

    async def _backlog(self) -> None:
        """Compare the load without and with very many waiting tasks of a tenant that may run one at a time."""
        site = self._site
        await call(site.address, "PUT", "/api/v1/tenants/capped", {"running_max": 1})
        sleeper = {"type": "sleep", "payload": "100000"}
        await call(site.address, "POST", "/api/v1/tasks", sleeper, tenant="capped")
        await self._batches("tasks_batch_before_backlog")
        began = time.perf_counter()
        for _ in range(BACKLOG // 100_000):
            await site.send(site.batches(100, tenant="capped"), connections=2)
            say(f"  {time.perf_counter() - began:.0f} s: another 100,000 wait")
        self._note("tasks_backlog_submits", BACKLOG / (time.perf_counter() - began))
        for _ in range(ROUND_COUNT):
            await self._batches("tasks_batch_behind_backlog")
            before = percentile(self._figures["tasks_batch_before_backlog"], 0.5)
            self._note("backlog_cost", 1 - self._figures["tasks_batch_behind_backlog"][-1] / before)
        self._note("memory_backlog_mb", _rss_mib(site.brokers[site.leader].pid) * 1.048576)


def _rss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(pid)


async def _main() -> None:
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as name:
        folder = Path(name)
        cluster = DevCluster(folder / "cluster")
        cluster.start()
        try:
            bench = Bench(cluster, folder)
            try:
                await bench.run()
            finally:
                bench.print()
        finally:
            cluster.stop()


if __name__ == "__main__":
    uvloop.run(_main())

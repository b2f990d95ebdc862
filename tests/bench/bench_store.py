"""`make bench-store`: the replicated map on three replicas and three bookies (3/3/2, fsync before every answer).

`map_puts_16` = 16 callers with one put each outstanding, over at most 8 clients. 256-byte values, 10,000 keys; gets are
linearizable. Clients, replicas, bookies and ZooKeeper share this machine's cores; `map_gets_16_cpu_us` is what all of
them use by operation, `…_cpu_us_leader` the leader alone. Beside it, in turn within each round, etcd under the same
load by its own client in Go, if `go` is there and can build it (its CPU is that of its servers: `…_cpu_us_servers`);
else the last two columns are null. `map_puts_unary_16` are single calls by gRPC's client in Python, a channel for each
caller; `map_puts_unary_go_16` the same by gRPC's client in Go over eight channels, as etcd's load is made. A failover
is the time from the SIGKILL of the leader to the first acknowledgement of a put begun afterwards; our replicas' session
is 2 s, etcd's election time-out its default, 1 s.

RSM_BENCH_ROUNDS, RSM_BENCH_SECONDS (of each load), RSM_BENCH_KILLS, RSM_BENCH_BOOT_KEYS (0 = no boots) change sizes;
RSM_BENCH_ONLY=puts,gets,unary,failover,boot names parts. RSM_STORE__TRANSPORT=grpc takes clients off the framed port;
unary calls are gRPC's in any case.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import defaultdict
from pathlib import Path

import uvloop

from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from tests.bench.cpu import CpuMeter
from tests.bench.etcd_peer import EtcdPeer
from tests.bench.figure import percentile, print_figure, say
from tests.bench.ledger_load import settle
from tests.bench.nats_peer import PeerMissingError
from tests.bench.store_boot import measure_boots
from tests.bench.store_load import (
    KEYS,
    VALUE,
    Load,
    fill,
    get,
    leader_address,
    measure,
    measure_failover,
    measure_unary,
    put,
    start_replica,
)
from tests.bench.unary_caller import UnaryCaller

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "3"))
SECONDS = float(os.environ.get("RSM_BENCH_SECONDS", "5"))
KILL_COUNT = int(os.environ.get("RSM_BENCH_KILLS", "10"))
BOOT_KEY_COUNT = int(os.environ.get("RSM_BENCH_BOOT_KEYS", "1000000"))
PARTS = os.environ.get("RSM_BENCH_ONLY", "puts,gets,unary,failover,boot").split(",")
LEVELS = (1, 16, 64)
UNARY_LEVEL = 16
SESSION_MS = 2_000
NAMES = ("r1", "r2", "r3")


class Bench:
    """Figures of all rounds, by name: ours and the peer's."""

    def __init__(
        self, cluster: DevCluster, folder: Path, etcd: EtcdPeer | None, caller: UnaryCaller | None = None
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._etcd = etcd
        self._caller = caller
        self._replicas: dict[str, Child] = {}
        self._ours: dict[str, list[float]] = defaultdict(list)
        self._peers: dict[str, list[float]] = defaultdict(list)

    async def start(self) -> None:
        """Start three replicas, every key written once."""
        for name in NAMES:
            await self._start(name)
        await fill(self._cluster.metadata_uri)

    async def stop(self) -> None:
        """End the replicas."""
        await asyncio.gather(*(child.stop() for child in self._replicas.values()))

    async def _start(self, name: str) -> None:
        options = ("--session-timeout-ms", str(SESSION_MS))
        self._replicas[name] = await start_replica(name, self._cluster, self._folder, *options)

    async def run_round(self, number: int) -> None:
        """Measure everything once; ours first in every other round."""
        if number % 2:
            await self._peer_round()
        await self._our_round()
        if not number % 2:
            await self._peer_round()

    async def _our_round(self) -> None:
        uri = self._cluster.metadata_uri
        for part, operation in (("puts", put), ("gets", get)):
            for level in LEVELS if part in PARTS else ():
                await self._settle()
                meter = await self._meter()
                load = await measure(uri, level, operation, seconds=SECONDS)
                self._note(self._ours, f"map_{part}_{level}", load, meter)
        if "unary" in PARTS:
            await self._settle()
            meter = await self._meter()
            load = await measure_unary(uri, UNARY_LEVEL, seconds=SECONDS)
            self._note(self._ours, f"map_puts_unary_{UNARY_LEVEL}", load, meter)
        if "unary" in PARTS and self._caller is not None:
            await self._settle()
            address = await leader_address(uri)
            meter = await self._meter(with_client=False)
            load, client_s = await self._caller.measure(address, UNARY_LEVEL, seconds=SECONDS)
            self._note(self._ours, f"map_puts_unary_go_{UNARY_LEVEL}", load, meter, client_s=client_s)

    async def _peer_round(self) -> None:
        if self._etcd is None or not {"puts", "gets", "unary"} & set(PARTS):
            return
        await self._settle()
        with self._etcd.running():
            for part in ("puts", "gets"):
                for level in LEVELS if part in PARTS or (part == "puts" and "unary" in PARTS) else ():
                    settle(self._etcd.pids)
                    meter = CpuMeter({"servers": self._etcd.pids})
                    said = await asyncio.to_thread(self._etcd.load, part[:-1], callers=level, seconds=SECONDS)
                    load = Load(said["per_s"], said["p50_ms"], said["p99_ms"])
                    names = [f"map_{part}_{level}"]
                    if (part, level) == ("puts", UNARY_LEVEL):  # etcd's calls are unary.
                        names += [f"map_puts_unary_{level}", f"map_puts_unary_go_{level}"]
                    for name in names:
                        self._note(self._peers, name, load, meter)
                        used_us = said["cpu_s"] * 1e6 / (load.per_s * SECONDS)
                        self._peers[f"{name}_cpu_us_client"].append(used_us)

    async def _meter(self, *, with_client: bool = True) -> CpuMeter:
        """Count what each kind of process uses from now on."""
        address = await leader_address(self._cluster.metadata_uri)
        replicas = {child.said["address"]: child.pid for child in self._replicas.values()}
        named = self._cluster.pids()
        bookies = [pid for name, pid in named.items() if name.startswith("bookie")]
        return CpuMeter({
            **({"client": [os.getpid()]} if with_client else {}),
            "leader": [replicas.pop(address)],
            "followers": list(replicas.values()),
            "bookies": bookies,
            "zookeeper": [pid for pid in named.values() if pid not in bookies],
        })  # fmt: skip

    @staticmethod
    def _note(
        figures: dict[str, list[float]], name: str, load: Load, meter: CpuMeter, *, client_s: float | None = None
    ) -> None:
        meter.note(name, load.per_s * SECONDS, lambda name, us: figures[name].append(us))
        if client_s is not None:  # Of callers in a process that has ended.
            client_us = client_s * 1e6 / (load.per_s * SECONDS)
            figures[f"{name}_cpu_us"][-1] += client_us
            figures[f"{name}_cpu_us_client"].append(client_us)
        used = figures[f"{name}_cpu_us"][-1]
        say(f"  {name}: {load.per_s:,.0f}/s, p50 {load.p50_ms:.2f} ms, p99 {load.p99_ms:.2f} ms, CPU {used:,.0f} µs")
        figures[name].append(load.per_s)
        figures[f"{name}_p50_ms"].append(load.p50_ms)
        figures[f"{name}_p99_ms"].append(load.p99_ms)

    async def failovers(self, count: int) -> None:
        """Kill one leader after the other; each is back before the next."""
        for number in range(count):
            await self._settle()
            name, seconds = await measure_failover(self._cluster.metadata_uri, self._replicas)
            say(f"  kill {number + 1} of {count}: {seconds:.2f} s")
            self._ours["failover_p50_s"].append(seconds)
            await self._replicas[name].stop()
            await self._start(name)
        if self._etcd is not None:
            with self._etcd.running():
                for number in range(count):
                    seconds = await asyncio.to_thread(self._etcd.failover_s)
                    say(f"  etcd: kill {number + 1} of {count}: {seconds:.2f} s")
                    self._peers["failover_p50_s"].append(seconds)

    async def boots(self) -> None:
        """Note how a replica comes to a large state."""
        found = await measure_boots(self._cluster, self._folder, BOOT_KEY_COUNT)
        size = "1m" if BOOT_KEY_COUNT == 1_000_000 else str(BOOT_KEY_COUNT)
        self._ours["map_bulk_puts"].append(found["bulk_puts"])
        for name in ("replay_per_s", "snapshot_read_per_s", "resurrect_s"):
            self._ours[name].append(found[name])
        for name in ("replay", "boot", "peer_boot"):
            self._ours[f"{name}_{size}_keys_s"].append(found[f"{name}_s"])
        for name in ("leader", "follower"):
            self._ours[f"{name}_{size}_keys_mib"].append(found[f"{name}_mib"])

    async def _settle(self) -> None:
        pids = [pid for name, pid in self._cluster.pids().items() if name.startswith("bookie")]
        await asyncio.to_thread(settle, [*pids, *(child.pid for child in self._replicas.values() if child.is_running)])

    def report(self) -> None:
        """Print a line per figure."""
        for name, values in self._ours.items():
            print_figure(name, values, _unit(name), self._peers.get(name, ()))
        if "failover_p50_s" in self._ours:
            worst = [percentile(failovers["failover_p50_s"], 0.99) for failovers in (self._ours, self._peers)
                     if failovers["failover_p50_s"]]  # fmt: skip
            print_figure("failover_p99_s", worst[:1], "s", worst[1:])


def _unit(name: str) -> str:
    if "_cpu_us" in name:
        return "µs"
    if name.endswith("_ms"):
        return "ms"
    if name.endswith("_per_s"):
        return {"replay_per_s": "records/s", "snapshot_read_per_s": "rows/s"}[name]
    if name.endswith("_mib"):
        return "MiB"
    return "s" if name.endswith("_s") else "ops/s"


def _build_peer(folder: Path) -> EtcdPeer | None:
    if set(PARTS) == {"boot"}:
        return None
    say("building etcd: a minute or two when it is the first time")
    try:
        return EtcdPeer(folder, key_count=len(KEYS), value_bytes=len(VALUE))
    except PeerMissingError as error:
        say(f"etcd is not measured: {error}")
        return None


def _build_caller(folder: Path) -> UnaryCaller | None:
    if "unary" not in PARTS:
        return None
    try:
        return UnaryCaller(folder)
    except PeerMissingError as error:
        say(f"unary calls by gRPC's client in Go are not measured: {error}")
        return None


async def main() -> None:
    """Measure everything and print a line per figure."""
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder) / "cluster") as cluster:
        etcd = await asyncio.to_thread(_build_peer, Path(folder) / "etcd")
        caller = await asyncio.to_thread(_build_caller, Path(folder) / "unary")
        bench = Bench(cluster, Path(folder), etcd, caller)
        try:
            if {"puts", "gets", "unary", "failover"} & set(PARTS):
                await bench.start()
            for number in range(ROUND_COUNT if {"puts", "gets", "unary"} & set(PARTS) else 0):
                say(f"store: round {number + 1} of {ROUND_COUNT}")
                await bench.run_round(number)
            if "failover" in PARTS and KILL_COUNT:
                say("store: failovers")
                await bench.failovers(KILL_COUNT)
        finally:
            await bench.stop()
        if "boot" in PARTS and BOOT_KEY_COUNT:
            say(f"store: boots with {BOOT_KEY_COUNT:,} keys")
            await bench.boots()
        bench.report()


if __name__ == "__main__":
    uvloop.run(main())

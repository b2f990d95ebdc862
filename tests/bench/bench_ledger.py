"""`make bench-ledger`: adds, reads, tail lag, recovery, restart and memory, ours and Apache BookKeeper's in turn.

3/3/2, an fsync before every answer, on three bookies of each kind; clients, bookies and ZooKeeper share this machine's
cores. Both clusters are up all the time, one of them works at a time, and before each load all bookies have come to
rest from the one before (10 s at most). `adds_v2_100_cpu_us_bookies` is the bookies' CPU by add, `…_client` our
client's. Without Java, a JDK or BookKeeper's JARs (fetched when they are first needed) ours are measured alone and the
last two columns are null. RSM_BENCH_ROUNDS changes the number of rounds.

`adds_v2_<n>_beside_nats` are the same rounds' adds beside NATS JetStream (three replicas on files, a sync before every
answer), if `go` can build it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import uvloop

from ledger import ClientSettings, LedgerClient
from ledger.dev.cluster import DevCluster
from ledger.zookeeper_server.errors import JavaError
from tests.bench.cpu import CpuMeter
from tests.bench.figure import percentile, print_figure, say
from tests.bench.java_peer import JavaBookies, JavaLoad, java_peer
from tests.bench.ledger_load import (
    forget_pages,
    measure_adds,
    measure_reads,
    measure_recovery,
    measure_tail_lag,
    peak_mib,
    resident_mib,
    settle,
    write_ledger,
)
from tests.bench.nats_peer import NatsPeer, PeerMissingError
from tools.fetch_bookkeeper import FetchError

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "5"))
Protocol = Literal["v2", "v3"]
PROTOCOLS: tuple[Protocol, ...] = ("v2", "v3")
KIB = 1024
T = TypeVar("T")
READ_COUNT = 100_000
TAIL_PER_S, TAIL_COUNT = 5_000, 10_000


class Level(NamedTuple):
    """One load of adds."""

    name: str
    in_flight: int
    warm: int
    count: int  # type: ignore[assignment]  # A tuple counts too.
    size: int


LEVELS = [
    Level("1", 1, 300, 1_500, KIB),
    Level("100", 100, 5_000, 30_000, KIB),
    Level("2000", 2_000, 20_000, 100_000, KIB),
    Level("2000_100b", 2_000, 20_000, 100_000, 100),
    Level("50_64k", 50, 200, 2_000, 64 * KIB),
]
CROSSED = LEVELS[1:3]
BESIDE_NATS = LEVELS[:3]


class Bench:
    """Figures of all rounds, by name: ours and the peer's."""

    def __init__(self, cluster: DevCluster, java: tuple[JavaBookies, JavaLoad] | None, nats: NatsPeer | None) -> None:
        self.cluster = cluster
        self.java = java
        self.nats = nats
        self.ours: dict[str, list[float]] = defaultdict(list)
        self.peers: dict[str, list[float]] = defaultdict(list)

    def run_round(self) -> None:
        """Measure everything once, ours and Java's in turn."""
        for protocol in PROTOCOLS:
            for level in LEVELS:
                self._adds(protocol, level)
            for level in CROSSED if self.java else []:
                self._crossed_adds(protocol, level)
        if self.nats:
            self._beside_nats(self.nats)
        self._tail()
        self._recovery()
        self._reads()

    def _adds(self, protocol: Protocol, level: Level) -> None:
        name = f"adds_{protocol}_{level.name}"
        say(f"  {name}")
        adds = self._our_adds(self.cluster.metadata_uri, protocol, level, name)
        self.ours[name].append(adds[0])
        if level.in_flight == 1:
            self.ours[f"add_p50_{protocol}_1"].append(adds[1])
        if self.java:
            answer = self._java_adds(self.java[0].uri, protocol, level, name)
            self.peers[name].append(answer["per_s"])
            if level.in_flight == 1:
                self.peers[f"add_p50_{protocol}_1"].append(answer["p50_ms"])

    def _crossed_adds(self, protocol: Protocol, level: Level) -> None:
        """Our client on Java's bookies, Java's client on ours; beside each, Java on Java in this round."""
        assert self.java is not None
        say(f"  adds_{protocol}_{level.name}, crossed")
        beside = self.peers[f"adds_{protocol}_{level.name}"][-1]
        for name, value in (
            (f"adds_{protocol}_{level.name}_our_client_java_bookies",
             self._our_adds(self.java[0].uri, protocol, level)[0]),
            (f"adds_{protocol}_{level.name}_java_client_our_bookies",
             self._java_adds(self.cluster.metadata_uri, protocol, level)["per_s"]),
        ):  # fmt: skip
            self.ours[name].append(value)
            self.peers[name].append(beside)

    def _beside_nats(self, nats: NatsPeer) -> None:
        """Put NATS beside the adds that this round has measured."""
        self._settle()
        with nats.running() as urls:
            for level in BESIDE_NATS:
                name = f"adds_v2_{level.name}"
                say(f"  {name}, NATS")
                load = nats.load(urls, in_flight=level.in_flight, warm=level.warm, count=level.count, size=level.size)
                self.ours[f"{name}_beside_nats"].append(self.ours[name][-1])
                self.peers[f"{name}_beside_nats"].append(load["per_s"])

    @property
    def _bookies(self) -> list[int]:
        return [pid for name, pid in self.cluster.pids().items() if name.startswith("bookie")]

    def _settle(self) -> None:
        settle([*self._bookies, *(self.java[0].pids if self.java else [])])

    def _our_adds(self, uri: str, protocol: Protocol, level: Level, noted: str = "") -> tuple[float, float]:
        self._settle()
        meter = CpuMeter({"client": [os.getpid()], "bookies": self._bookies})

        async def run() -> tuple[float, float]:
            async with await LedgerClient.connect(uri, settings=ClientSettings(protocol=protocol)) as client:
                adds = await measure_adds(client, level.in_flight, warm=level.warm, count=level.count, size=level.size)
            return adds.per_s, adds.p50_ms

        adds = _run(run())
        if noted:
            meter.note(noted, level.warm + level.count, lambda name, us: self.ours[name].append(us))
        return adds

    def _java_adds(self, uri: str, protocol: Protocol, level: Level, noted: str = "") -> dict[str, float]:
        assert self.java is not None
        self._settle()
        meter = CpuMeter({"bookies": self.java[0].pids})
        load = {"level": level.in_flight, "warm": level.warm, "count": level.count, "size": level.size}
        answer = self.java[1].ask("adds", uri=uri, v2=protocol == "v2", **load)
        if noted:
            meter.note(noted, level.warm + level.count, self._note_java)
        return answer

    def _note_java(self, name: str, us: float) -> None:
        if name.endswith("_bookies"):  # The client's share is not known here.
            self.peers[name].append(us)

    def _tail(self) -> None:
        say("  tail lag")
        self._settle()

        async def run() -> list[float]:
            async with self._client() as client:
                return await measure_tail_lag(client, per_s=TAIL_PER_S, count=TAIL_COUNT, size=KIB)

        lags_ms = _run(run())
        self.ours["tail_lag_p50_ms"].append(percentile(lags_ms, 0.5))
        self.ours["tail_lag_p99_ms"].append(percentile(lags_ms, 0.99))

    def _recovery(self) -> None:
        say("  recovery")
        self._settle()
        settings = ClientSettings()
        ms = _run(measure_recovery(self.cluster.metadata_uri, settings, in_flight=2_000, size=KIB))
        self.ours["recovery_2000_ms"].append(ms)

    def _reads(self) -> None:
        """Read what was just written, then, after a restart and with no page in memory, again from the disks."""
        say("  reads")
        ledger_id = _run(self._written(self.cluster.metadata_uri))
        java_ledger_id = _run(self._written(self.java[0].uri)) if self.java else 0
        self._read_all("reads_cached", ledger_id, java_ledger_id)
        seconds = []
        for number in range(3):
            self.cluster.kill_bookie(number)
            began = time.perf_counter()
            self.cluster.start_bookie(number)
            seconds.append(time.perf_counter() - began)
        self.ours["restart_s"].append(max(seconds))
        for name in self.cluster.pids():
            if name.startswith("bookie"):
                forget_pages(self.cluster.data_dir / name)
        if self.java:
            self.java[0].stop()
            forget_pages(self.java[0].folder)
            self.java[0].start()
        self._read_all("reads_cold", ledger_id, java_ledger_id)

    def _read_all(self, name: str, ledger_id: int, java_ledger_id: int) -> None:
        async def run() -> float:
            async with self._client() as client:
                return await measure_reads(client, ledger_id)

        self._settle()
        self.ours[name].append(_run(run()))
        if self.java:
            self._settle()
            answer = self.java[1].ask("reads", uri=self.java[0].uri, v2=True, ledger=java_ledger_id)
            self.peers[name].append(answer["per_s"])

    async def _written(self, uri: str) -> int:
        async with await LedgerClient.connect(uri) as client:
            return await write_ledger(client, READ_COUNT, KIB)

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[LedgerClient]:
        async with await LedgerClient.connect(self.cluster.metadata_uri) as client:
            yield client

    def memory(self) -> None:
        """Note the memory of every process: the highest so far, and of the bookies what they hold now."""
        bookies = self._bookies
        self.ours["client_peak_mib"].append(peak_mib(os.getpid()))
        self.ours["bookie_peak_mib"].extend(map(peak_mib, bookies))
        self.ours["bookie_rss_mib"].extend(map(resident_mib, bookies))
        if self.java:
            self.peers["client_peak_mib"].append(self.java[1].ask("memory")["peak_kib"] / KIB)
            self.peers["bookie_peak_mib"].extend(map(peak_mib, self.java[0].pids))
            self.peers["bookie_rss_mib"].extend(map(resident_mib, self.java[0].pids))

    def report(self) -> None:
        """Print a line per figure."""
        for name, values in self.ours.items():
            print_figure(name, values, _unit(name), self.peers.get(name, ()))


def _unit(name: str) -> str:
    if "_cpu_us" in name:
        return "µs"
    for ending, unit in (("_ms", "ms"), ("_s", "s"), ("_mib", "MiB")):
        if name.endswith(ending):
            return unit
    if name.startswith("add_p50"):
        return "ms"
    return "entries/s" if name.startswith("reads") else "adds/s"


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


@contextlib.contextmanager
def _peer(cluster: DevCluster, folder: Path) -> Iterator[tuple[JavaBookies, JavaLoad] | None]:
    with contextlib.ExitStack() as stack:
        peer = None
        try:
            peer = stack.enter_context(java_peer(cluster.zookeeper, folder))
        except (FetchError, JavaError) as error:
            say(f"Apache BookKeeper is not measured: {error}")
        yield peer


def _nats(folder: Path) -> NatsPeer | None:
    try:
        return NatsPeer(folder)
    except PeerMissingError as error:
        say(f"NATS is not measured: {error}")
        return None


def main() -> None:
    """Measure everything and print a line per figure."""
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder:
        base = Path(folder)
        with DevCluster(base / "ours") as cluster, _peer(cluster, base / "java") as java:
            bench = Bench(cluster, java, _nats(base / "nats"))
            try:
                for number in range(ROUND_COUNT):
                    say(f"ledger: round {number + 1} of {ROUND_COUNT}")
                    bench.run_round()
                bench.memory()
            finally:  # What was measured before something failed is worth having; the exit code says that it did.
                bench.report()


if __name__ == "__main__":
    main()

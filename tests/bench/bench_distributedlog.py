"""`python -m tests.bench.bench_distributedlog`: appends of 1 KiB to a plain log beside DistributedLog's own writer.

Both write to the same bookies, 3/3/2, in turn: one writer, one record at a time and a thousand on their way. `cpu_us`
is that of the process that appends, `cpu_us_bookies` that of the three bookies, by append. DistributedLog sends what
has gathered when it has 64 KiB, or after 2 ms.
RSM_BENCH_ROUNDS, RSM_BENCH_SECONDS change sizes.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import uvloop

from ledger.dev.cluster import DevCluster
from ledger.zookeeper.uri import MetadataUri
from ledger.zookeeper_server.java import find_java
from rsm_spark.logs import Logs, PlainLogWriter
from rsm_spark.runtime.settings import ReplicaSettings
from tests.bench.cpu import cpu_s
from tests.bench.figure import percentile, print_figure, say
from tools.fetch_bookkeeper import DISTRIBUTEDLOG_LOCK, ensure_jars

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "3"))
SECONDS = float(os.environ.get("RSM_BENCH_SECONDS", "3"))
LEVELS = (1, 1000)
_WARM_S = 2.0
_PAYLOAD = bytes(1024)
_ENSEMBLE, _ACK = 3, 2
_BUFFER_BYTES, _FLUSH_MS = 64 * 1024, 2
_UNITS = {"per_s": "appends/s", "cpu_us": "us", "cpu_us_bookies": "us", "p50_ms": "ms", "p99_ms": "ms"}


class DistributedLogPeer:
    """DistributedLog's writer as a process (tests/bench/java/DistributedLogLoad.java); one command at a time."""

    def __init__(self, folder: Path, metadata_uri: str) -> None:
        jars = f"{ensure_jars(DISTRIBUTEDLOG_LOCK)}/*"
        compiler = Path(find_java()).resolve().with_name("javac")
        source = Path(__file__).with_name("java") / "DistributedLogLoad.java"
        subprocess.run([str(compiler), "-cp", jars, "-d", str(folder / "classes"), str(source)], check=True)
        command = [
            find_java(), "-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m",
            "-Dio.netty.tryReflectionSetAccessible=true", "-cp", f"{folder / 'classes'}:{jars}", "DistributedLogLoad",
        ]  # fmt: skip
        with (folder / "distributedlog.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        zookeeper = MetadataUri.of(metadata_uri).hosts[0]
        self.ask(
            "open", zookeeper=zookeeper, ledgers="/ledgers", log="bench", buffer=_BUFFER_BYTES, flush_ms=_FLUSH_MS,
            ensemble=_ENSEMBLE, ack=_ACK,
        )  # fmt: skip

    def ask(self, command: str, **options: Any) -> dict[str, Any]:
        """Run a command and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"command": command, **options}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):  # What its libraries say.
            line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer
        return answer

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


async def _appends(writer: PlainLogWriter, level: int, seconds: float) -> dict[str, float]:
    """Append for so long, with so many on their way; return what the peer tells of itself, too."""
    took: list[float] = []
    waiting: deque[asyncio.Future[int]] = deque()
    clock_s = time.perf_counter
    cpu_s, began_s = time.process_time(), clock_s()
    count = 0

    def sample(sent_s: float, future: asyncio.Future[int]) -> None:
        future.add_done_callback(lambda _: took.append(clock_s() - sent_s))

    while clock_s() < began_s + seconds:
        while len(waiting) < level:
            future = writer.append(_PAYLOAD)
            if level == 1 or not count % 16:
                sample(clock_s(), future)
            waiting.append(future)
            count += 1
        await waiting.popleft()
        while waiting and waiting[0].done():
            waiting.popleft()
    await writer.flush()
    spent_s = clock_s() - began_s
    return {
        "count": count,
        "per_s": count / spent_s,
        "cpu_us": (time.process_time() - cpu_s) * 1e6 / count,
        "p50_ms": percentile(took, 0.5) * 1000,
        "p99_ms": percentile(took, 0.99) * 1000,
    }


async def main() -> None:
    """Measure both in turn and print a line per figure."""
    found: dict[str, Any]
    ours: dict[str, list[float]] = defaultdict(list)
    peers: dict[str, list[float]] = defaultdict(list)
    settings = ReplicaSettings(ensemble_size=_ENSEMBLE, write_quorum=_ENSEMBLE, ack_quorum=_ACK)

    with (
        tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder,
        DevCluster(Path(folder) / "cluster", bookie_count=_ENSEMBLE) as cluster,
    ):
        bookies = [pid for name, pid in cluster.pids().items() if "bookie" in name]
        assert len(bookies) == _ENSEMBLE
        peer = DistributedLogPeer(Path(folder), cluster.metadata_uri)
        try:
            async with await Logs.connect(cluster.metadata_uri, settings=settings) as logs:
                await logs.create("bench")
                async with await logs.open_writer("bench") as writer:
                    for level in LEVELS:
                        await asyncio.to_thread(peer.ask, "appends", level=level, seconds=_WARM_S, size=len(_PAYLOAD))
                        await _appends(writer, level, _WARM_S)
                    for number in range(ROUND_COUNT):
                        say(f"distributedlog: round {number + 1} of {ROUND_COUNT}")
                        for level in LEVELS:
                            for is_ours in (number % 2 == 0, number % 2 == 1):
                                before_s = sum(map(cpu_s, bookies))
                                if is_ours:
                                    found = await _appends(writer, level, SECONDS)
                                else:
                                    found = await asyncio.to_thread(
                                        peer.ask, "appends", level=level, seconds=SECONDS, size=len(_PAYLOAD)
                                    )
                                used_s = sum(map(cpu_s, bookies)) - before_s
                                found["cpu_us_bookies"] = used_s * 1e6 / found["count"]
                                for name in _UNITS:
                                    (ours if is_ours else peers)[f"log_appends_1k_{level}_{name}"].append(found[name])
        finally:
            peer.close()
    for name, values in ours.items():
        unit = next(unit for end, unit in _UNITS.items() if name.endswith(f"_{end}"))
        print_figure(name, values, unit, peers[name])


if __name__ == "__main__":
    uvloop.run(main())

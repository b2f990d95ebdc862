"""`python -m tests.bench.bench_files_checkpoint`: a micro-batch with its checkpoint on `rsm files serve`.

One stateful query (counts by key, RocksDB with changelog checkpoints, two shuffle partitions, `local[2]`), a file of
2,000 rows a micro-batch. In each round it runs twice from the beginning: with a checkpoint in a folder of this machine,
and with one on a server of files whose log is on three bookies (3/3/2), all on this machine. The first batches of each
run are left out. Durations are those that Spark tells of its batches: `trigger` is the whole, `wal` and `commit` are
what it waits for its two logs. Behind them: how many requests of WebHDFS a batch makes, and how long one of each takes
by itself.

RSM_BENCH_ROUNDS (3), RSM_BENCH_BATCHES (20), RSM_BENCH_FILES_SERVERS (1; the checkpoint is at the first, which leads)
and RSM_BENCH_FILES_OPTIONS (more options of the servers) change what is measured.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

from pyspark.sql import functions as F

from connectors.session import spark_session
from ledger.dev.cluster import DevCluster
from rsm_demo.child import Child
from tests.bench.figure import ROUND_COUNT, percentile, print_figure, say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUNDS = int(os.environ.get("RSM_BENCH_ROUNDS", str(ROUND_COUNT)))
BATCHES = int(os.environ.get("RSM_BENCH_BATCHES", "20"))
SERVERS = int(os.environ.get("RSM_BENCH_FILES_SERVERS", "1"))
OPTIONS = os.environ.get("RSM_BENCH_FILES_OPTIONS", "").split()
_WARM_BATCHES = 4
_ROWS, _KEYS = 2_000, 50
_CALLS = 300
_TIMEOUT_S = 900
_DURATIONS = {"trigger": "triggerExecution", "wal": "walCommit", "commit": "commitOffsets", "add": "addBatch"}
_SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stateStore.providerClass":
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    # As Spark has it unless somebody says otherwise: a rename that never takes the place of another file.
    "spark.sql.streaming.checkpointFileManagerClass":
        "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager",
}  # fmt: skip


def write_source(folder: Path) -> None:
    """Write the rows of all micro-batches, a file each."""
    for number in range(_WARM_BATCHES + BATCHES):
        rows = ({"k": f"k{(number * 7 + row) % _KEYS}", "v": row} for row in range(_ROWS))
        (folder / f"{number:03d}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run_query(spark: SparkSession, source: Path, checkpoint: str) -> list[dict[str, float]]:
    """Run the query from its beginning; return the durations of its batches, ms, but for the first ones."""
    told: dict[str, int] = {}

    def keep(frame: DataFrame, _batch: int) -> None:
        told.update({row.k: row.n for row in frame.collect()})

    rows = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1).json(str(source))
    counted = rows.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))
    writer = counted.writeStream.outputMode("update").foreachBatch(keep).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(_TIMEOUT_S):
        raise RuntimeError(f"the query is not done after {_TIMEOUT_S} s")
    if sum(told.values()) != (_WARM_BATCHES + BATCHES) * _ROWS:
        raise RuntimeError(f"{sum(told.values())} rows were counted")
    batches = [one["durationMs"] for one in query.recentProgress if one["numInputRows"]]
    return [dict(one) for one in batches[_WARM_BATCHES:]]


def requests_of(address: str) -> dict[str, float]:
    """Return how many requests a server has answered, by operation."""
    with urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    counts: dict[str, float] = {}
    for name, count in re.findall(r'^rsm_files_requests_total\{operation="(\w+)",.*\} (\S+)$', text, re.MULTILINE):
        counts[name] = counts.get(name, 0.0) + float(count)
    return counts


def call_ms(address: str) -> dict[str, list[float]]:
    """Return how long one request of each kind takes, ms: one after the other, on one connection."""
    connection = http.client.HTTPConnection(address, timeout=60)
    took: dict[str, list[float]] = {}

    def ask(name: str, method: str, path: str, body: bytes | None = None) -> None:
        began_s = time.perf_counter()
        connection.request(method, f"/webhdfs/v1{path}", body=body)
        with connection.getresponse() as answer:
            answer.read()
        took.setdefault(name, []).append((time.perf_counter() - began_s) * 1000)

    for number in range(_CALLS):
        ask("create_first", "PUT", f"/calls/{number}?op=CREATE")
        ask("create", "PUT", f"/calls/{number}?op=CREATE&data=true", b"x" * 1_000)
        ask("status", "GET", f"/calls/{number}?op=GETFILESTATUS")
        ask("open", "GET", f"/calls/{number}?op=OPEN")
        ask("rename", "PUT", f"/calls/{number}?op=RENAME&destination=/calls/r{number}&renameoptions=NONE")
        ask("defaults", "GET", "/?op=GETSERVERDEFAULTS")
    connection.close()
    return took


async def start_server(name: str, cluster: DevCluster, folder: Path) -> tuple[Child, str]:
    """Start a server of files; return it, and its "host:port"."""
    command = [sys.executable, "-m", "rsm_spark", "files", "serve", "--json", "--log", "bench-files", "--bookies"]
    command += ["3/3/2", *OPTIONS, "--port", "0", "--http-port", "0", "--metadata-uri", cluster.metadata_uri]
    child = await Child.start(name, [*command, "--replica-id", name, "--data-dir", str(folder / name)], log_dir=folder)
    try:
        await child.until(lambda said: said.get("ready"), timeout_s=300, what="serving")
    except BaseException:  # Nobody else knows of it yet.
        await child.stop()
        raise
    return child, str(child.said["http_address"])


def measure(spark: SparkSession, address: str, folder: Path) -> None:
    """Run all rounds, and print a line per figure."""
    source = folder / "source"
    source.mkdir()
    write_source(source)
    medians: dict[tuple[str, str], list[float]] = {}
    singles: dict[tuple[str, str], list[float]] = {}
    asked: dict[str, float] = {}
    for number in range(-1, ROUNDS):  # One that is not counted: Spark compiles.
        places = [("local", str(folder / f"local-{number}")), ("files", f"webhdfs://{address}/round-{number}")]
        for place, checkpoint in places if number % 2 else places[::-1]:
            before = requests_of(address)
            batches = run_query(spark, source, checkpoint)
            if number < 0:
                continue
            for name, key in _DURATIONS.items():
                values = [float(one.get(key, 0)) for one in batches]
                medians.setdefault((name, place), []).append(statistics.median(values))
                singles.setdefault((name, place), []).extend(values)
            shown = ", ".join(f"{name} {medians[name, place][-1]:.0f}" for name in _DURATIONS)
            say(f"round {number + 1} of {ROUNDS}, checkpoint on {place}: median ms: {shown}")
            if place == "files":
                after = requests_of(address)
                for name, count in after.items():
                    asked[name] = asked.get(name, 0) + (count - before.get(name, 0)) / (_WARM_BATCHES + BATCHES)
    for name in _DURATIONS:
        print_figure(f"files_batch_{name}_ms", medians[name, "files"], "ms", medians[name, "local"])
    p90: Callable[[str], float] = lambda place: percentile(singles["trigger", place], 0.9)  # noqa: E731
    print_figure("files_batch_trigger_p90_ms", [p90("files")], "ms", [p90("local")])
    for name, count in sorted(asked.items(), key=lambda one: -one[1]):
        print_figure(f"files_batch_requests_{name.lower()}", [count / ROUNDS], "requests a batch")
    for name, values in call_ms(address).items():
        print_figure(f"files_call_{name}_p50_ms", [statistics.median(values)], "ms")


async def main() -> None:
    """Start everything, measure, stop everything."""
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as path, DevCluster(Path(path) / "cluster") as cluster:
        folder = Path(path)
        servers: list[Child] = []
        try:
            address = ""
            for number in range(SERVERS):
                child, own = await start_server(f"server-{number}", cluster, folder)
                servers.append(child)
                address = address or own
            spark = spark_session("bench", delta=False, local="local[2]", conf=_SETTINGS)
            spark.sparkContext.setLogLevel("ERROR")
            try:
                await asyncio.to_thread(measure, spark, address, folder)
            finally:
                spark.stop()
        finally:
            for child in servers:
                await child.stop()


if __name__ == "__main__":
    asyncio.run(main())

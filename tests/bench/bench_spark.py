"""`make bench-spark`: reading a log into Spark, followers as Delta tables, proofs, and a service back from the lake.

* `{batch,stream}_{mb,records}_per_s`, `{batch,stream}_{raw,record}_cpu_us`: entries of 1 KiB as they are
  (`rows=raw`: MB, CPU) and records of 100 B decoded (`rows=records`: records, CPU); the peer is a Parquet scan of the
  same rows
* `first_query_s`: the first query of a program, 100,000 records as a batch into nothing, behind the start of its
  session (`first_session_s`); and the same again (`second_query_s`); the peer is the same program on Parquet
* `ack_to_delta_{p50,p95}_s`: from the acknowledgement of an entry to the Delta commit that holds its records, at 1,000
  records/s; with the rate at its end at 100 and 10,000
* `merge_{wall,cpu}_s_{keys}`: one commit of a follower with so many keys, each another value, into 200,000 rows
* `verify_per_s`, `verify_cpu_us`, `log_snapshot_s`, `resurrect_s`: see `spark_proofs`

Spark, three bookies, ZooKeeper and the writer share this machine's cores.
`RSM_BENCH_ONLY=reads,first,merges,lags,proofs` picks parts, `RSM_BENCH_ROUNDS` their rounds, `RSM_BENCH_KEYS` the keys
of the proofs. What Spark writes: `bench_sinks`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import defaultdict
from pathlib import Path

from pyspark.sql import SparkSession

from connectors.session import spark_session
from ledger.client.client import LedgerClient
from ledger.dev.cluster import DevCluster
from ledger.loop_thread import LoopThread
from tests.bench.figure import print_figure, say
from tests.bench.spark_first import measure_first
from tests.bench.spark_followers import measure_lag, measure_merge
from tests.bench.spark_proofs import measure_proofs
from tests.bench.spark_reads import (
    ReadRound,
    measure_batch,
    measure_parquet,
    measure_stream,
    write_parquet,
    write_raw,
    write_records,
)
from tests.spark.conftest import WrittenLog

ROUND_COUNT = int(os.environ.get("RSM_BENCH_ROUNDS", "3"))
KEY_COUNT = int(os.environ.get("RSM_BENCH_KEYS", "1000000"))
PARTS = os.environ.get("RSM_BENCH_ONLY", "reads,first,merges,lags,proofs").split(",")
RATES = {100: "_100", 1_000: "", 10_000: "_10000"}
FIRST_ENTRIES = 1_000
MERGED_KEYS = (1_000, 10_000, 100_000)


class Bench:
    """The parts that need Spark and a cluster."""

    def __init__(self, cluster: DevCluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._loop = LoopThread("bench")
        self._client = self._loop.run(LedgerClient.connect(cluster.metadata_uri))
        self._spark: SparkSession = spark_session(
            "bench", delta=False, local="local[2]", conf={"spark.ui.enabled": "false"}
        )
        self._spark.sparkContext.setLogLevel("ERROR")

    def close(self) -> None:
        """Stop Spark and the client."""
        self._spark.stop()
        self._loop.run(self._client.close())

    def reads(self) -> None:
        """Read the same rows as batch, as stream and from Parquet, taking turns."""
        say("reads: writing")
        place = (self._cluster, self._loop, self._client, self._folder)
        subjects = [write_raw(*place), write_records(*place)]
        for subject in subjects:
            write_parquet(self._spark, subject)  # which also starts Python workers and warms the compiler up
        kinds = {"batch": measure_batch, "stream": measure_stream, "parquet": measure_parquet}
        rounds: dict[tuple[str, str], list[ReadRound]] = defaultdict(list)
        for number in range(ROUND_COUNT):
            for subject in subjects:
                for kind, measure in kinds.items():
                    say(f"reads: round {number + 1} of {ROUND_COUNT}: {subject.name}, {kind}")
                    rounds[kind, subject.name].append(measure(self._spark, subject))
        raw, records = (rounds["parquet", subject.name] for subject in subjects)
        for kind in ("batch", "stream"):
            ours = rounds[kind, "raw"]
            print_figure(f"{kind}_mb_per_s", [one.mb_per_s for one in ours], "MB/s", [one.mb_per_s for one in raw])
            _print_cpu(f"{kind}_raw_cpu_us", ours, raw)
            ours = rounds[kind, "records"]
            name = f"{kind}_records_per_s"
            print_figure(name, [one.rows_per_s for one in ours], "records/s", [one.rows_per_s for one in records])
            _print_cpu(f"{kind}_record_cpu_us", ours, records)

    def first(self) -> None:
        """Start programs that ask one thing, of the log and of Parquet in turn."""
        log = WrittenLog("bench-first", self._cluster, self._loop, self._client)
        log.fill(FIRST_ENTRIES, records_per_entry=100)
        parquet = str(self._folder / "first")
        self._spark.read.format("ledger").options(**log.options()).load().write.parquet(parquet)
        ours, peers = [], []
        for number in range(ROUND_COUNT):
            say(f"first: round {number + 1} of {ROUND_COUNT}")
            ours.append(measure_first("ledger", log.options()))
            peers.append(measure_first("parquet", {"path": parquet}))
        print_figure("first_session_s", [one.start_s for one in ours], "s", [one.start_s for one in peers])
        print_figure("first_query_s", [one.first_s for one in ours], "s", [one.first_s for one in peers])
        print_figure("second_query_s", [one.second_s for one in ours], "s", [one.second_s for one in peers])

    def lags(self) -> None:
        """Keep a table of a log that is written at a steady pace."""
        for rate, suffix in RATES.items():
            lags = []
            for number in range(ROUND_COUNT):
                say(f"lags: {rate} records/s, round {number + 1} of {ROUND_COUNT}")
                log = WrittenLog(f"lag-{rate}-{number}", self._cluster, self._loop, self._client)
                lags.append(measure_lag(self._spark, log, self._folder / log.name, rate))
            print_figure(f"ack_to_delta_p50_s{suffix}", [lag.p50_s for lag in lags], "s")
            print_figure(f"ack_to_delta_p95_s{suffix}", [lag.p95_s for lag in lags], "s")

    def proofs(self) -> None:
        """Prove a log of many keys, snapshot it, and bring it back."""
        say(f"proofs: {KEY_COUNT:,} keys")
        measured = measure_proofs(self._spark, self._cluster, self._folder, key_count=KEY_COUNT, rounds=ROUND_COUNT)
        for name, values in asyncio.run(measured).items():
            unit = "records/s" if name.endswith("_per_s") else "µs" if name.endswith("_us") else "s"
            print_figure(name, values, unit)


def measure_merges() -> None:
    """Merge changed keys into tables of their own, in this process."""
    for keys in MERGED_KEYS:
        costs = []
        for number in range(ROUND_COUNT):
            say(f"merges: {keys} keys, round {number + 1} of {ROUND_COUNT}")
            with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder:
                costs.append(measure_merge(Path(folder), keys))
        print_figure(f"merge_wall_s_{keys}", [cost.wall_s for cost in costs], "s")
        print_figure(f"merge_cpu_s_{keys}", [cost.cpu_s for cost in costs], "s")


def _print_cpu(name: str, ours: list[ReadRound], parquet: list[ReadRound]) -> None:
    print_figure(name, [one.cpu_us_per_row for one in ours], "µs", [one.cpu_us_per_row for one in parquet])


def main() -> None:
    """Measure everything and print a line per figure."""
    if "merges" in PARTS:
        measure_merges()
    if not {"reads", "first", "lags", "proofs"} & set(PARTS):
        return
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder) / "cluster") as cluster:
        bench = Bench(cluster, Path(folder))
        try:
            parts = {"reads": bench.reads, "first": bench.first, "lags": bench.lags, "proofs": bench.proofs}
            for name, measure in parts.items():
                if name in PARTS:
                    measure()
        finally:
            bench.close()


if __name__ == "__main__":
    main()

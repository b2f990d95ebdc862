"""`make bench-spark`, second half: rows that Spark writes, beside Delta's append and JDBC into PostgreSQL.

Rows of 100 bytes, read from Parquet by a stream with Trigger.AvailableNow in two micro-batches of four tasks each; the
servers of one kind run at a time, and have taken a tenth as many rows before it counts:

* `sink_{kind}_rows_per_s`, `sink_{kind}_cpu_us`: by kind of rows (`log`, `map`, `table`, `tasks`, `commands`), rows a
  second by the time of the micro-batches, and CPU a row of Spark and all servers; `_cpu_us_spark`, `_cpu_us_servers`.
  The peers: `delta`, an append to a table on the local disk, and `jdbc`, `foreachBatch` into PostgreSQL
* `sink_{kind}_visible_{p50,p95}_s`: of 500 rows every half second, from the start of the trigger until a reader has
  them: of `log` and `map`, beside the same two

Spark, servers, bookies and ZooKeeper share this machine's cores. `RSM_BENCH_ONLY=sinks,visible` picks parts,
`RSM_BENCH_KINDS` kinds (peers too), `RSM_BENCH_ROUNDS` rounds, `RSM_BENCH_ROWS` the rows of the map: others have more
or fewer, `RSM_BENCH_BATCHES` the micro-batches of `visible`. A peer that cannot be had here is null, and standard error
says why.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from connectors.session import spark_session
from ledger.dev import DevCluster
from tests.bench.figure import percentile, print_figure, print_figure_beside, say
from tests.bench.nats_peer import PeerMissingError
from tests.bench.sink_lags import SEEN_KINDS, measure_lags
from tests.bench.spark_sinks import DELTA, JDBC, KINDS, Rows, SinkPlace, SinkRound, SinkSite, pgjdbc_jar

ROUND_COUNT: Final = int(os.environ.get("RSM_BENCH_ROUNDS", "3"))
ROW_COUNT: Final = int(os.environ.get("RSM_BENCH_ROWS", "200000"))
PARTS: Final = os.environ.get("RSM_BENCH_ONLY", "sinks,visible").split(",")
PEERS: Final = (DELTA, JDBC)
WANTED: Final = os.environ.get("RSM_BENCH_KINDS", ",".join((*KINDS, *PEERS))).split(",")
BATCH_COUNT: Final = int(os.environ.get("RSM_BENCH_BATCHES", "40"))
_SHARES: Final = {"log": 2.0, "map": 1.0, "table": 0.5, "tasks": 0.2, "commands": 0.1, DELTA: 2.0, JDBC: 0.5}
_WARM_SHARE: Final = 0.1
_WARM_FIRST: Final = 1_000_000_000


class SinkBench:
    """Figures of all rounds, by kind."""

    def __init__(self, spark: SparkSession, cluster: DevCluster, folder: Path) -> None:
        self._spark, self._cluster, self._folder = spark, cluster, folder
        self._jar = pgjdbc_jar(folder)
        if self._jar is not None:
            spark.sql(f"ADD JAR '{self._jar}'")
        self._site = SinkSite(cluster, folder, self._jar)
        self._rows = Rows(spark, folder / "rows")
        self._rounds: dict[str, list[SinkRound]] = defaultdict(list)
        self._lags: dict[str, list[list[float]]] = defaultdict(list)

    def run_round(self, number: int) -> None:
        """Measure all kinds; who begins changes."""
        kinds = [kind for kind in (*KINDS, *PEERS) if kind in WANTED and _is_measured(kind)]
        for kind in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
            try:
                with self._site.running(kind) as place:
                    self._measure(place, number)
            except PeerMissingError as error:
                say(f"  {kind} is null: {error}")

    def _measure(self, place: SinkPlace, number: int) -> None:
        kind, checkpoints = place.kind, self._folder / f"checkpoints-{place.kind}-{number}"
        count = round(ROW_COUNT * _SHARES[kind])
        if "sinks" in PARTS:
            self._rows.measure(place, _WARM_FIRST, round(count * _WARM_SHARE), checkpoints / "warm")
            one = self._rows.measure(place, 0, count, checkpoints / "rows")
            self._rounds[kind].append(one)
            cpu = f"CPU a row: Spark {one.spark_cpu_us:.1f} µs, servers {one.server_cpu_us:.1f} µs"
            say(f"  {kind}: {one.rows_per_s:,.0f} rows/s, {cpu}")
        if "visible" in PARTS and kind in (*SEEN_KINDS, *PEERS):
            with self._site.running(kind) as fresh:
                lags = measure_lags(self._spark, fresh, self._cluster.metadata_uri, checkpoints / "lags", BATCH_COUNT)
            self._lags[kind].append(lags)
            say(f"  {kind}: visible after {percentile(lags, 0.5):.2f} s (p50), {percentile(lags, 0.95):.2f} s (p95)")

    def show(self) -> None:
        """Print all figures."""
        for kind in KINDS:
            if kind in self._rounds:
                self._show_kind(kind)
        for kind in SEEN_KINDS:
            for name, share in (("p50", 0.5), ("p95", 0.95)):
                found = {one: [percentile(lags, share) for lags in self._lags[one]] for one in (kind, *PEERS)}
                if found[kind]:
                    _show(f"sink_{kind}_visible_{name}_s", found, kind, "s")

    def _show_kind(self, kind: str) -> None:
        found = {one: self._rounds[one] for one in (kind, *PEERS)}
        rates = {one: [measured.rows_per_s for measured in rounds] for one, rounds in found.items()}
        _show(f"sink_{kind}_rows_per_s", rates, kind, "rows/s")
        costs = {one: [sum(measured[1:]) for measured in rounds] for one, rounds in found.items()}
        _show(f"sink_{kind}_cpu_us", costs, kind, "µs")
        print_figure(f"sink_{kind}_cpu_us_spark", [one.spark_cpu_us for one in found[kind]], "µs")
        print_figure(f"sink_{kind}_cpu_us_servers", [one.server_cpu_us for one in found[kind]], "µs")


def _is_measured(kind: str) -> bool:
    return "sinks" in PARTS or kind in (*SEEN_KINDS, *PEERS)


def _show(name: str, found: dict[str, Sequence[float]] | dict[str, list[float]], kind: str, unit: str) -> None:
    print_figure_beside(name, found[kind], unit, {peer: found[peer] for peer in PEERS})


def main() -> None:
    """Measure everything and print a line per figure."""
    if not {"sinks", "visible"} & set(PARTS):
        return
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # PostgreSQL's user comes through.
        with DevCluster(folder / "cluster", bookie_count=3, has_auto_recovery=False) as cluster:
            spark = spark_session("bench", delta=True, local="local[2]", conf={"spark.ui.enabled": "false"})
            spark.sparkContext.setLogLevel("ERROR")
            try:
                bench = SinkBench(spark, cluster, folder)
                for number in range(ROUND_COUNT):
                    say(f"sinks: round {number + 1} of {ROUND_COUNT}")
                    bench.run_round(number)
                bench.show()
            finally:
                spark.stop()


if __name__ == "__main__":
    main()

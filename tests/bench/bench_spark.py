"""`make bench-spark`: reading a log into Spark, and how long a put takes until it is in a Delta table.

`stream_mb_per_s`: entries (`rows=raw`, 100 KiB) to Spark's `noop` sink; `stream_records_per_s`: records of about 1 KiB,
decoded, the same way; both with two tasks, the planning included. `ack_to_delta_p95_s`: from the acknowledgement of an
entry to the Delta commit that holds it. Spark, three bookies, ZooKeeper and the writer share this machine's cores.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession

from connectors.delta.materialize import Materializer, MaterializeSettings, Progress
from connectors.session import spark_session
from connectors.spark.loop import LoopThread
from ledger.client.client import LedgerClient
from ledger.dev.cluster import DevCluster
from tests.bench.figure import ROUND_COUNT, percentile, print_figure, say
from tests.spark.conftest import WrittenLog

ENTRY_COUNT = 2_000
RECORDS_PER_ENTRY = 100
VALUE_BYTES = 1_000
PUT_COUNT = 150
PUT_INTERVAL_S = 0.1


def main() -> None:
    """Measure everything and print a line per figure."""
    loop = LoopThread("bench")
    with tempfile.TemporaryDirectory(prefix="rsm-bench-") as folder, DevCluster(Path(folder) / "cluster") as cluster:
        client = loop.run(LedgerClient.connect(cluster.metadata_uri))
        log = WrittenLog("bench", cluster, loop, client)
        for _ in range(20):
            log.fill(ENTRY_COUNT // 20, records_per_entry=RECORDS_PER_ENTRY, keys=50_000, size=VALUE_BYTES)
        spark = spark_session("bench", delta=False, local="local[2]", conf={"spark.ui.enabled": "false"})
        spark.sparkContext.setLogLevel("ERROR")
        size_mb = sum(len(payload) for _, _, payload in log.entries) / 1e6
        read_all(spark, log, "records")  # the first one starts Python workers and warms the compiler up
        mb_per_s, records_per_s, lags = [], [], []
        for number in range(ROUND_COUNT):
            say(f"spark: round {number + 1} of {ROUND_COUNT}")
            mb_per_s.append(size_mb / read_all(spark, log, "raw"))
            records_per_s.append(log.revision / read_all(spark, log, "records"))
            lags.append(
                measure_lag(spark, WrittenLog(f"lag-{number}", cluster, loop, client), Path(folder) / str(number))
            )
        spark.stop()
        loop.run(client.close())
    print_figure("stream_mb_per_s", mb_per_s, "MB/s")
    print_figure("stream_records_per_s", records_per_s, "records/s")
    print_figure("ack_to_delta_p95_s", lags, "s")


def read_all(spark: SparkSession, log: WrittenLog, rows: str) -> float:
    """Read the whole log into nothing; return the seconds."""
    began = time.perf_counter()
    frame = spark.read.format("ledger").options(**log.options(rows=rows, minPartitions=4)).load()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def measure_lag(spark: SparkSession, log: WrittenLog, folder: Path) -> float:
    """Put at a steady pace while a stream materializes; return the 95th percentile of acknowledged -> in the table."""
    settings = MaterializeSettings(
        log=log.name,
        place=str(folder / "table"),
        checkpoint=str(folder / "checkpoint"),
        source={"metadataUri": log.metadata_uri},
        trigger="0 seconds",
    )
    seen: list[tuple[float, Progress]] = []
    is_over = threading.Event()
    job = Materializer(
        spark,
        settings,
        report=lambda progress: seen.append((time.perf_counter(), progress)),
        should_stop=is_over.is_set,
    )
    thread = threading.Thread(target=job.run)
    thread.start()
    try:
        while not seen:
            time.sleep(0.05)
        acknowledged: list[tuple[float, int]] = []
        for number in range(PUT_COUNT):
            log.put({b"key-%d" % (number % 50): b"%d" % number})
            acknowledged.append((time.perf_counter(), log.revision))
            time.sleep(PUT_INTERVAL_S)
        while seen[-1][1].revision < log.revision:
            time.sleep(0.05)
    finally:
        is_over.set()
        thread.join()
    return percentile([min(at for at, one in seen if one.revision >= rev) - acked for acked, rev in acknowledged], 0.95)


if __name__ == "__main__":
    main()

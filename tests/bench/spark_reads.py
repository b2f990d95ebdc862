"""Reading into Spark beside a Parquet scan of the same rows: entries of 1 KiB as they are, records of 100 B decoded.

All goes to Spark's `noop` sink; a stream is one query with Trigger.AvailableNow, its start and stop included. CPU is
that of the JVM and its Python workers, from `/proc`.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from ledger.client.client import LedgerClient
from ledger.dev.cluster import DevCluster
from ledger.loop_thread import LoopThread
from tests.spark.conftest import WrittenLog

RAW_ENTRIES = 1_000_000
RAW_BYTES = 1024
RECORD_ENTRIES = 20_000
RECORDS_PER_ENTRY = 100
RECORD_BYTES = 100
_PARTITIONS = 4
_APPEND_ENTRIES = 1_000
_BLOCK_COUNT = 63
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ReadSubject(NamedTuple):
    """What is read.

    Attributes:
        name: `raw` or `records`.
        options: Of the source.
        parquet: Folder with the same rows.
        row_count: Rows.
        byte_count: Payload.

    """

    name: str
    options: dict[str, str]
    parquet: Path
    row_count: int
    byte_count: int


class ReadRound(NamedTuple):
    """One read of all rows."""

    rows_per_s: float
    mb_per_s: float
    cpu_us_per_row: float


def write_raw(cluster: DevCluster, loop: LoopThread, client: LedgerClient, folder: Path) -> ReadSubject:
    """Write a ledger of entries of `RAW_BYTES`, no two of them alike for long."""
    blocks = random.Random(1).randbytes(RAW_BYTES * (_BLOCK_COUNT + 1))  # noqa: S311 - bytes that do not compress

    async def write() -> int:
        writer = await client.create(ensemble_size=3, write_quorum=3, ack_quorum=2)
        for first in range(0, RAW_ENTRIES, _APPEND_ENTRIES):
            starts = [(first + place) * 17 % (RAW_BYTES * _BLOCK_COUNT) for place in range(_APPEND_ENTRIES)]
            await writer.append_many([blocks[start : start + RAW_BYTES] for start in starts])
        await writer.close()
        return writer.ledger_id

    options = {"metadataUri": cluster.metadata_uri, "ledgers": str(loop.run(write()))}
    return ReadSubject("raw", options, folder / "raw", RAW_ENTRIES, RAW_ENTRIES * RAW_BYTES)


def write_records(cluster: DevCluster, loop: LoopThread, client: LedgerClient, folder: Path) -> ReadSubject:
    """Write a log of records of about `RECORD_BYTES`, `RECORDS_PER_ENTRY` an entry."""
    log = WrittenLog("bench-reads", cluster, loop, client)
    value_bytes = RECORD_BYTES - 20
    for _ in range(10):
        log.fill(RECORD_ENTRIES // 10, records_per_entry=RECORDS_PER_ENTRY, keys=50_000, size=value_bytes)
    byte_count = sum(len(payload) for _, _, payload in log.entries)
    return ReadSubject("records", log.options(), folder / "records", log.revision, byte_count)


def write_parquet(spark: SparkSession, subject: ReadSubject) -> None:
    """Write the rows, all columns of them, as Parquet."""
    batch_frame(spark, subject).write.parquet(str(subject.parquet))


def batch_frame(spark: SparkSession, subject: ReadSubject) -> DataFrame:
    """Return a batch read of all rows."""
    return spark.read.format("ledger").options(**subject.options, minPartitions=str(_PARTITIONS)).load()


def measure_batch(spark: SparkSession, subject: ReadSubject) -> ReadRound:
    """Read all rows as a batch."""
    return _measure(spark, subject, lambda: _to_nothing(batch_frame(spark, subject)))


def measure_parquet(spark: SparkSession, subject: ReadSubject) -> ReadRound:
    """Read all rows from Parquet."""
    return _measure(spark, subject, lambda: _to_nothing(spark.read.parquet(str(subject.parquet))))


def measure_stream(spark: SparkSession, subject: ReadSubject) -> ReadRound:
    """Read all rows as a stream."""

    def read() -> None:
        options = subject.options | {"startingOffsets": "earliest", "minPartitions": str(_PARTITIONS)}
        frame = spark.readStream.format("ledger").options(**options).load()
        with tempfile.TemporaryDirectory(prefix="rsm-bench-") as checkpoint:
            query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            query.trigger(availableNow=True).start().awaitTermination()

    return _measure(spark, subject, read)


def _to_nothing(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _measure(spark: SparkSession, subject: ReadSubject, read: Callable[[], None]) -> ReadRound:
    began, before = time.perf_counter(), spark_cpu_s(spark)
    read()
    seconds, cpu_s = time.perf_counter() - began, spark_cpu_s(spark) - before
    rows = subject.row_count
    return ReadRound(rows / seconds, subject.byte_count / seconds / 1e6, cpu_s / rows * 1e6)


def spark_cpu_s(spark: SparkSession) -> float:
    """Return the CPU seconds that the JVM and all processes under it, ended ones too, have taken so far."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None, "a session of this process"
    found: dict[int, tuple[int, int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            found[int(folder.name)] = (int(after_name[1]), sum(map(int, after_name[11:15])))
    family = {int(jvm.java.lang.ProcessHandle.current().pid())}
    while grown := {pid for pid, (parent, _) in found.items() if parent in family} - family:
        family |= grown
    return sum(found[pid][1] for pid in sorted(family) if pid in found) / _TICKS_PER_S

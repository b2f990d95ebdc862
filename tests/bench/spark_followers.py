"""Followers as Delta tables: how long a record takes until a commit holds it, and what a merge costs."""

from __future__ import annotations

import itertools
import random
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from connectors.delta.fold import RecordRange
from connectors.delta.follower import FollowerTable
from connectors.delta.materialize import Materializer
from connectors.delta.settings import MaterializeSettings, Progress
from rsm_spark.core.machine import Field, FieldType, TableDescription
from rsm_spark.core.records import Record, pack
from tests.bench.figure import percentile
from tests.spark.conftest import WrittenLog

TABLE_ROWS = 200_000
_ENTRY_INTERVAL_S = 0.05
_SECONDS = 20.0
_WARM_S = 5.0
_KEYS = 20_000
_VALUE_BYTES = 100


class Lag(NamedTuple):
    """Seconds from acknowledgement to commit, over all entries but the first seconds'."""

    p50_s: float
    p95_s: float


class MergeCost(NamedTuple):
    """What one commit costs."""

    wall_s: float
    cpu_s: float


def measure_lag(spark: SparkSession, log: WrittenLog, folder: Path, rate: int, seconds: float = _SECONDS) -> Lag:
    """Write `rate` records a second for some seconds while a stream keeps a table.

    Args:
        spark: Session.
        log: A log that nobody else writes.
        folder: Empty, for table and checkpoints.
        rate: Records a second.
        seconds: Measured, after some to get warm.

    """
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
        _until(lambda: bool(seen), thread)
        acknowledged = _write(log, rate, _WARM_S + seconds)
        _until(lambda: seen[-1][1].revision >= log.revision, thread)
    finally:
        is_over.set()
        thread.join()
    lags, begin = [], acknowledged[0][0] + _WARM_S
    commits = iter(seen)
    at, progress = next(commits)
    for acked, revision in acknowledged:
        while progress.revision < revision:
            at, progress = next(commits)
        if acked >= begin:
            lags.append(at - acked)
    return Lag(percentile(lags, 0.5), percentile(lags, 0.95))


def _until(is_so: Any, thread: threading.Thread) -> None:
    while not is_so():
        if not thread.is_alive():
            raise RuntimeError("the job ended: see its error above")
        time.sleep(0.02)


def _write(log: WrittenLog, rate: int, seconds: float) -> list[tuple[float, int]]:
    """Append an entry every so often; return when each was acknowledged, and its last revision."""
    count = max(1, round(rate * _ENTRY_INTERVAL_S))
    interval_s = count / rate
    rng = random.Random(7)  # noqa: S311 - which keys change
    acknowledged: list[tuple[float, int]] = []
    began = time.perf_counter()
    for number in itertools.count():
        due = began + number * interval_s
        if due > began + seconds:
            return acknowledged
        time.sleep(max(0.0, due - time.perf_counter()))
        keys = rng.sample(range(_KEYS), count)
        value = b"%d-" % number
        log.append([Record(16, None, (b"key-%d" % key, value.ljust(_VALUE_BYTES, b"x"))) for key in keys])
        acknowledged.append((time.perf_counter(), log.revision))
    raise AssertionError("unreachable")


def measure_merge(folder: Path, key_count: int, *, table_rows: int = TABLE_ROWS, commits: int = 3) -> MergeCost:
    """Merge so many changed keys into a table, again and again; return the median cost of a commit.

    Args:
        folder: Empty, for the table.
        key_count: Keys of one commit, spread over the table.
        table_rows: Rows of the table.
        commits: Measured ones.

    """
    table = TableDescription("map", (Field("key", FieldType.BYTES),), (Field("value", FieldType.BYTES),))
    follower = FollowerTable(str(folder / "table"), log="bench", log_id="ab" * 16, table=table)
    revision = 0
    for begin in range(0, table_rows, 100_000):
        keys = range(begin, min(begin + 100_000, table_rows))
        follower.apply(_range(keys, revision))
        revision += len(keys)
    rng = random.Random(7)  # noqa: S311 - which keys change
    walls, cpus = [], []
    for _ in range(commits):
        records = _range(rng.sample(range(table_rows), key_count), revision)
        wall, cpu = time.perf_counter(), time.process_time()
        follower.apply(records)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        revision += key_count
    return MergeCost(percentile(walls, 0.5), percentile(cpus, 0.5))


def _range(keys: Any, revision: int) -> RecordRange:
    """Return a micro-batch that gives each key a new value."""
    count = len(keys)
    revisions = range(revision + 1, revision + count + 1)
    columns: dict[str, Any] = {
        "revision": pa.array(revisions, pa.int64()),
        "ledger_id": pa.repeat(pa.scalar(1, pa.int64()), count),
        "entry_id": pa.repeat(pa.scalar(revision, pa.int64()), count),
        "logged_at": pa.repeat(pa.scalar(0, pa.timestamp("us", "UTC")), count),
        "type": pa.repeat(pa.scalar(16, pa.int32()), count),
        "table_name": pa.repeat(pa.scalar("map"), count),
        "fold": pa.repeat(pa.scalar("upsert"), count),
        "key": pa.array([pack((b"key-%09d" % key,)) for key in keys], pa.binary()),
        "row": pa.array([pack((b"%d-" % at + random.randbytes(_VALUE_BYTES - 10),)) for at in revisions], pa.binary()),  # noqa: S311
        "fields": pa.nulls(count, pa.binary()),
        "entry_hash": pa.array([None] * (count - 1) + [bytes(32)], pa.binary()),
    }
    return RecordRange(pa.table(columns))

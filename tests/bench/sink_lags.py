"""How long rows take from the start of a micro-batch's trigger until others see them.

Spark's source `rate-micro-batch` gives each micro-batch the same number of rows, at a steady pace. A map's rows are
seen when a watch tells the last one of the micro-batch, a log's when a reader that follows it has it, in a process that
is not Spark's; those of Delta when the file of the commit is there, which nobody has synced; those of PostgreSQL when
JDBC returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from ledger.loop_thread import LoopThread
from rsm_spark.logs import Logs
from rsm_spark.map import MapClient
from tests.bench.spark_sinks import COLUMNS, DELTA, JDBC, ROW, SinkPlace

__all__ = ["SEEN_KINDS", "measure_lags"]

SEEN_KINDS: Final = ("log", "map")
_ROWS: Final = 500
_TRIGGER: Final = "500 milliseconds"
_WARM_BATCHES: Final = 8
_QUERY_S_MAX: Final = 900.0
_SEEN_S_MAX: Final = 120.0
_PARTITIONS: Final = 2


class _SeenRows:
    """Counts rows by their micro-batch, and notes when the last one of each came."""

    def __init__(self) -> None:
        self.at: dict[int, float] = {}
        self._counts: Counter[int] = Counter()

    def add(self, key: bytes | None) -> None:
        assert key is not None, "all rows have keys"
        batch = int(key.removeprefix(b"key-")) // _ROWS
        self._counts[batch] += 1
        if self._counts[batch] == _ROWS:
            self.at[batch] = time.time()


async def _watch_map(log: str, metadata_uri: str, seen: Callable[[bytes | None], None]) -> None:
    async with await MapClient.connect(log, metadata_uri) as client:
        async for change in client.watch():
            seen(change.key)


async def _follow_log(log: str, metadata_uri: str, seen: Callable[[bytes | None], None]) -> None:
    async with await Logs.connect(metadata_uri) as logs, await logs.reader(log) as reader:
        async for record in reader:
            seen(record.key)


@contextlib.contextmanager
def _seen(place: SinkPlace, metadata_uri: str) -> Iterator[Mapping[int, float]]:
    """Watch what is written; yield when each micro-batch was seen whole."""
    watch = {"log": _follow_log, "map": _watch_map}[place.kind]
    rows = _SeenRows()
    thread = LoopThread("bench-watch")
    is_over = asyncio.Event()
    watching = thread.start(_until(is_over, watch(place.batch[1]["log"], metadata_uri, rows.add)))
    try:
        yield rows.at
    finally:
        thread.call_soon(is_over.set)
        watching.result(_SEEN_S_MAX)
        thread.stop()


async def _until(is_over: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do work until it is over; raise what ends it before."""
    loop = asyncio.get_running_loop()
    working, waiting = loop.create_task(work), loop.create_task(is_over.wait())
    await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
    for one in (working, waiting):
        one.cancel()
    for outcome in await asyncio.gather(working, waiting, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


def _committed(table: Path) -> dict[int, float]:
    """Return when the commit of each micro-batch came into the table's log."""
    found: dict[int, float] = {}
    for file in table.glob("_delta_log/*.json"):
        for action in map(json.loads, file.read_text().splitlines()):
            if "txn" in action:
                found[int(action["txn"]["version"])] = file.stat().st_mtime
    return found


def measure_lags(
    spark: SparkSession, place: SinkPlace, metadata_uri: str, checkpoint: Path, batch_count: int
) -> list[float]:
    """Return the seconds of so many micro-batches, behind a few that are left out.

    Args:
        spark: Session.
        place: What is written to; one of `SEEN_KINDS`, Delta or JDBC.
        metadata_uri: Of the cluster.
        checkpoint: Empty.
        batch_count: Micro-batches that are measured; at most 80, which is what Spark remembers.

    """
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS)
    frame = source.option("numPartitions", _PARTITIONS).load().selectExpr("value id").selectExpr(*ROW)
    selected = frame.selectExpr(*COLUMNS[place.kind])
    returned: dict[int, float] = {}

    def append(rows: DataFrame, batch: int) -> None:
        kind, options = place.batch
        rows.write.format(kind).options(**options).mode("append").save()
        returned[batch] = time.time()

    writer = selected.writeStream.foreachBatch(append) if place.kind == JDBC else place.writer(selected)
    with _seen(place, metadata_uri) if place.kind in SEEN_KINDS else contextlib.nullcontext(returned) as seen:
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime=_TRIGGER).start()
        deadline = time.monotonic() + _QUERY_S_MAX
        try:
            while query.lastProgress is None or query.lastProgress.batchId < _WARM_BATCHES + batch_count:
                query.awaitTermination(1)
                assert time.monotonic() < deadline, f"{place.kind}: the stream stands still: {query.lastProgress}"
        finally:
            query.stop()
        triggers = {
            one.batchId: datetime.fromisoformat(one.timestamp).timestamp()
            for one in query.recentProgress
            if one.numInputRows
        }
        measured = [batch for batch in triggers if batch >= _WARM_BATCHES]
        deadline = time.monotonic() + _SEEN_S_MAX
        while place.kind in SEEN_KINDS and not all(batch in seen for batch in measured):
            assert time.monotonic() < deadline, f"{place.kind}: rows of a micro-batch were not seen"
            time.sleep(0.1)
        found = _committed(Path(place.batch[1]["path"])) if place.kind == DELTA else seen
        return [found[batch] - triggers[batch] for batch in measured]

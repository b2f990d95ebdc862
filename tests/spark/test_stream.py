from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Tail:
    """A stream of a log whose rows are kept by micro-batch."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.batches: list[list[Any]] = []

    def _keep(self, frame: DataFrame, _batch_id: int) -> None:
        self.batches.append(frame.select("ledger_id", "entry_id", "revision").orderBy("revision", "entry_id").collect())

    def start(
        self, options: dict[str, str], *, available_now: bool = False, interval: str = "0 seconds"
    ) -> StreamingQuery:
        frame = self.spark.readStream.format("ledger").options(**options).load()
        writer = frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self.checkpoint))
        trigger = {"availableNow": True} if available_now else {"processingTime": interval}
        return writer.trigger(**trigger).start()

    def drain(self, options: dict[str, str]) -> None:
        """Read all that there is, with Trigger.AvailableNow."""
        query = self.start(options, available_now=True)
        assert query.awaitTermination(60)

    @property
    def revisions(self) -> list[int]:
        return [row.revision for batch in self.batches for row in batch]

    def offsets(self) -> list[str]:
        """The offsets that Spark has written, oldest first."""
        files = sorted(
            (p for p in (self.checkpoint / "offsets").iterdir() if p.name.isdigit()), key=lambda p: int(p.name)
        )
        return [path.read_text().splitlines()[-1] for path in files]


class IdleTriggers(StreamingQueryListener):
    """Counts triggers that found nothing to do."""

    def __init__(self) -> None:
        self.count = 0

    def onQueryIdle(self, event: Any) -> None:
        self.count += 1

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


@pytest.fixture
def tail(spark: SparkSession, tmp_path: Path) -> Tail:
    return Tail(spark, tmp_path / "checkpoint")


def until(condition: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert query.exception() is None
        assert time.monotonic() < deadline, "nothing came for a minute"
        time.sleep(0.02)


def test_available_now_reads_in_limited_micro_batches_and_ends(tail: Tail, log: Any) -> None:
    log.fill(30)
    log.roll()
    log.fill(12)
    options = log.options(startingOffsets="earliest", maxOffsetsPerTrigger=100)
    tail.drain(options)
    assert tail.revisions == list(range(1, log.revision + 1))
    assert [len(batch) for batch in tail.batches] == [101, 100, 100, 100, 20], "101: rounded up to a whole entry"


def test_a_restart_goes_on_from_the_checkpoint_across_a_roll(tail: Tail, log: Any) -> None:
    log.fill(5)
    options = log.options(startingOffsets="earliest")
    tail.drain(options)
    log.fill(3)
    log.roll(tells_end=False)
    log.fill(2)
    tail.drain(options)
    tail.drain(options)
    assert tail.revisions == list(range(1, log.revision + 1))


def test_a_stream_follows_the_log_while_it_is_written_and_rolled(tail: Tail, log: Any) -> None:
    query = tail.start(log.options())
    try:
        until(lambda: query.lastProgress is not None, query)
        first = log.revision + 1
        for _ in range(4):
            log.fill(3)
            until(lambda: bool(tail.revisions) and tail.revisions[-1] == log.revision, query)
            log.roll()
        assert tail.revisions == list(range(first, log.revision + 1))
    finally:
        query.stop()


def test_a_hundred_idle_triggers_run_no_batch(spark: SparkSession, tail: Tail, log: Any) -> None:
    log.fill(3)
    idle = IdleTriggers()
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "0")
    spark.streams.addListener(idle)
    query = tail.start(log.options(startingOffsets="earliest"))
    try:
        until(lambda: len(tail.revisions) == log.revision, query)
        before, idle.count = len(tail.offsets()), 0
        until(lambda: idle.count >= 50, query)
        for _ in range(3):
            log.append([])  # what an idle leader writes
            log.roll()
        until(lambda: idle.count >= 150, query)
        assert len(tail.offsets()) == before
        log.put({b"a": b"1"})
        until(lambda: tail.revisions[-1] == log.revision, query)
        assert len(tail.offsets()) == before + 1
    finally:
        query.stop()
        spark.streams.removeListener(idle)
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


def test_offsets_in_the_checkpoint_are_canonical(tail: Tail, log: Any) -> None:
    log.fill(3)
    tail.drain(log.options(startingOffsets="earliest"))
    (text,) = tail.offsets()
    ledger_id, entry_id, _ = log.entries[-1]
    assert json.loads(text) == {
        "version": 1,
        "log": {log.name: {"ledger": ledger_id, "entry": entry_id + 1, "revision": log.revision + 1}},
    }
    assert list(json.loads(text)) == ["version", "log"]


def test_plain_ledgers_are_streamed_up_to_their_lac(tail: Tail, log: Any) -> None:
    log.fill(4)
    log.roll()
    log.fill(3)
    ids = ",".join(map(str, reversed(log.ledger_ids)))
    options = {
        "metadataUri": log.metadata_uri,
        "ledgers": ids,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "5",
    }
    tail.drain(options)
    seen = [(row.ledger_id, row.entry_id) for batch in tail.batches for row in batch]
    assert sorted(seen) == [(ledger, entry) for ledger, entry, _ in log.entries]
    assert [len(batch) for batch in tail.batches] == [5, 3]


def test_a_relative_start_is_exact(tail: Tail, log: Any) -> None:
    log.fill(5)
    tail.drain(log.options(startingOffsets="latest-7"))
    assert tail.revisions == list(range(log.revision - 6, log.revision + 1))


def test_a_start_that_was_trimmed_ends_the_query_with_range_and_choices(tail: Tail, log: Any) -> None:
    log.fill(2)
    options = log.options(startingOffsets="earliest")
    tail.drain(options)
    log.fill(2)
    log.roll()
    log.fill(1)
    log.trim(1)
    with pytest.raises(Exception, match="records 22 to 41 have been trimmed") as caught:
        tail.drain(options)
    assert "startingOffsets=earliest" in str(caught.value)
    assert "snapshot" in str(caught.value)


def test_a_log_is_read_while_a_bookie_is_down(tail: Tail, log: Any, whole_cluster: Any) -> None:
    log.fill(20)
    whole_cluster.kill_bookie(0)
    tail.drain(log.options(startingOffsets="earliest"))
    assert tail.revisions == list(range(1, log.revision + 1))


def test_a_metadata_store_that_blinks_does_not_end_the_stream(tail: Tail, log: Any, whole_cluster: Any) -> None:
    query = tail.start(log.options(startingOffsets="earliest"))
    try:
        log.fill(2)
        until(lambda: len(tail.revisions) == log.revision, query)
        whole_cluster.pause_zookeeper()
        log.fill(2)
        time.sleep(2)  # longer than a trigger: the stream is in the middle of asking
        whole_cluster.resume_zookeeper()
        until(lambda: len(tail.revisions) == log.revision, query)
        assert tail.revisions == list(range(1, log.revision + 1))
    finally:
        query.stop()

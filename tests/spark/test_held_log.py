"""Spark queries and followers that hold the log: registered where they begin, moved as they read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from ledger.client.client import LedgerClient
from ledger.loop_thread import LoopThread
from rsm_spark.log.consumers import ConsumerState, LogConsumers
from tests.spark.test_materialize import content, materialize
from tests.spark.test_stream import Tail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Notes:
    """What the consumers of a log have written down."""

    def __init__(self, log: Any, client: LedgerClient, loop: LoopThread) -> None:
        self._log = log
        self._loop = loop
        self.consumers = LogConsumers(client.store, log.log_id.hex())

    def all(self) -> dict[str, ConsumerState]:
        return {one.name: one.state for one in self._loop.run(self.consumers.present())}

    def add(self, name: str, revision: int) -> None:
        self._loop.run(self.consumers.register(self._log.name, name, revision, what="a test"))


@pytest.fixture
def notes(log: Any, client: LedgerClient, loop: LoopThread) -> _Notes:
    return _Notes(log, client, loop)


def test_a_query_holds_what_it_has_not_read_also_while_it_is_down(
    spark: SparkSession, log: Any, tmp_path: Path, notes: _Notes
) -> None:
    tail = Tail(spark, tmp_path / "checkpoint")
    log.fill(3)
    end = log.revision
    options = log.options(startingOffsets="earliest", consumer="report", holdTime="2h", holdBytes="3m")
    tail.drain(options)
    # Spark commits a micro-batch when it plans the next one.
    first = notes.all()["report"]
    assert (first.hold_ms, first.hold_bytes) == (7_200_000, 3 << 20)
    assert first.revision <= end
    log.fill(3)
    tail.drain(options)
    second = notes.all()["report"]
    assert end <= second.revision <= log.revision
    assert second.holder != first.holder
    assert tail.revisions == list(range(1, log.revision + 1))


def test_a_query_holds_from_where_it_begins(spark: SparkSession, log: Any, tmp_path: Path, notes: _Notes) -> None:
    log.fill(3)
    log.roll()
    log.fill(1)
    log.trim(1)
    gone = log.revision - 10
    Tail(spark, tmp_path / "checkpoint").drain(log.options(startingOffsets="earliest", consumer="report"))
    assert notes.all()["report"].revision == gone


def test_options_that_hold_are_checked(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    tail = Tail(spark, tmp_path / "checkpoint")
    with pytest.raises(StreamingQueryException, match="is no name of a consumer"):
        tail.drain(log.options(startingOffsets="earliest", consumer="a/b"))
    assert tail.batches == []


def test_a_follower_lets_go_of_what_its_table_has_written_down(
    spark: SparkSession, log: Any, tmp_path: Path, notes: _Notes
) -> None:
    log.fill(3)
    notes.add("other", 0)
    materialize(spark, log, tmp_path, hold={"consumer": "follower", "holdTime": "1h"})
    assert content(tmp_path) == log.state
    found = notes.all()
    assert sorted(found) == ["follower", "other"]
    assert (found["follower"].revision, found["follower"].hold_ms) == (log.revision, 3_600_000)
    log.fill(2)
    end = log.revision
    log.append([])  # What changes no row is written down too.
    materialize(spark, log, tmp_path, hold={"consumer": "follower"})
    assert notes.all()["follower"].revision == end
    assert notes.all()["other"].revision == 0

"""What Spark shows of errors that this project raises, where it plans and in tasks: the sentence, without frames."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ledger.client.client import LedgerClient
from ledger.dev import DevCluster
from ledger.loop_thread import LoopThread
from tests.integration.store_processes import StoreProcess
from tests.integration.test_etcd_api import principals_of
from tests.spark.conftest import WrittenLog
from tests.spark.streams import Batches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


class ForeignReader(DataSourceReader):
    """Fails in a task, where ours did before."""

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:  # noqa: ARG002
        raise ValueError("of somebody else, in a task")
        yield (1,)


class ForeignSource(DataSource):
    """Somebody else's, which raises where ours did before."""

    @classmethod
    def name(cls) -> str:
        return "foreign"

    def schema(self) -> str:
        if "fails" in self.options:
            raise ValueError("of somebody else")
        return "id int"

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
        return ForeignReader()


def _said(work: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whichever Spark makes of it
        work()
    return str(caught.value)


def _is_plain(said: str) -> bool:
    """Return whether there is no frame of Python's; those of the JVM are Spark's to show or not."""
    return "Traceback (most recent call last)" not in said and 'File "' not in said


def test_an_error_of_ours_is_a_sentence_and_others_keep_their_traces(spark: SparkSession, log: WrittenLog) -> None:
    def read(source: str = "ledger", **more: str) -> Callable[[], Any]:
        options = {**log.options(), **more}
        return lambda: spark.read.format(source).options(**options).load().collect()

    spark.dataSource.register(ForeignSource)
    for wrong, why in (
        (read(log="nowhere"), "there is no log nowhere"),
        (read(startingOfsets="latest"), "unknown option"),
        (read("ledger_state", table="nothing"), "has no table nothing: its tables are map"),
        (read(rows="table", table="nothing"), "option table is nothing: machine map has map"),
    ):
        said = _said(wrong)
        assert why in said
        assert _is_plain(said), said
    for foreign, why in (
        (lambda: spark.read.format("foreign").options(fails="1").load(), "of somebody else"),
        (spark.read.format("foreign").load().collect, "of somebody else, in a task"),
    ):
        said = _said(foreign)
        assert why in said
        assert not _is_plain(said), said


def test_a_sink_that_is_refused_says_so_in_a_sentence(spark: SparkSession, log: WrittenLog) -> None:
    frame = spark.range(1).write.format("ledger").options(log=log.name, metadataUri=log.metadata_uri)
    said = _said(frame.mode("append").save)
    assert "option" in said
    assert _is_plain(said), said


def test_a_task_whose_bookies_are_gone_says_so_in_a_sentence(
    spark: SparkSession, start_cluster: Callable[..., DevCluster], loop: LoopThread, unique_name: str
) -> None:
    cluster = start_cluster(bookie_count=3)
    client = loop.run(LedgerClient.connect(cluster.metadata_uri))
    try:
        log = WrittenLog(unique_name, cluster, loop, client)
        log.fill(5)
        frame = spark.read.format("ledger").options(**log.options(rows="records")).load()
        frame._jdf.queryExecution().executedPlan()  # It is planned while they are there.
        for number in range(3):
            cluster.kill_bookie(number)
        said = _said(frame.collect)
        assert f"ledger {log.ledger_ids[0]}" in said
        assert "QuorumLostError: " in said
        assert _is_plain(said), said
    finally:
        loop.run(client.close())


def test_a_log_that_is_deleted_while_it_is_read_is_a_sentence(
    spark: SparkSession, log: WrittenLog, loop: LoopThread, client: LedgerClient, tmp_path: Path
) -> None:
    log.fill(5)

    query = Batches(spark, log.options(startingOffsets="earliest"), {"availableNow": True}, tmp_path)
    query.run_until(lambda: False)
    log.fill(5)
    log.roll()
    gone = log.ledger_ids[0]
    loop.run(client.delete(gone))
    said = _said(lambda: query.run_until(lambda: False))
    assert f"ledger {gone}: no such ledger" in said, said
    assert _is_plain(said), said


def test_a_task_that_may_not_write_says_so_in_a_sentence(
    spark: SparkSession, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    replica = StoreProcess(cluster.metadata_uri, unique_name, tmp_path, "a", *principals_of(tmp_path))
    try:
        options = {"log": unique_name, "metadataUri": cluster.metadata_uri, "as": "map", "writer": "job", "batch": "0"}
        frame = spark.range(3).selectExpr("encode(string(id), 'UTF-8') key", "encode('v', 'UTF-8') value")
        said = _said(frame.write.format("ledger").options(**options).mode("append").save)
        assert "token" in said
        assert _is_plain(said), said
        bad = spark.range(3).selectExpr("cast(null as binary) key", "encode('v', 'UTF-8') value")
        said = _said(bad.write.format("ledger").options(**options).mode("append").save)
        assert "column key" in said
        assert _is_plain(said), said
    finally:
        replica.kill()

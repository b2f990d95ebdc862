"""Partitioned logs in Spark: all partitions as one table, and keys in their order over a growth while a stream runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality

from connectors.delta.materialize import Materializer
from connectors.delta.partitions import partitioned_table
from connectors.delta.settings import MaterializeSettings, Progress
from connectors.errors import ForeignTableError
from connectors.state.verify import VerifySettings, verify_log
from ledger.dev import DevCluster
from rsm_spark.logs import partition_log, partition_of
from rsm_spark.logs.blocking import BlockingLogs
from tests.spark.streams import drain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)

_KEYS = 12
_PAGE = (Path(__file__).resolve().parents[2] / "docs" / "spark.md").read_text()


class _Sales:
    """A partitioned log whose records are numbers, each under the key of its remainder."""

    def __init__(self, logs: BlockingLogs, name: str, metadata_uri: str) -> None:
        self.name, self.count = name, 0
        self._logs, self._uri = logs, metadata_uri
        logs.create(name, partitions=2)
        self._writer = logs.open_partitioned_writer(name)

    def append(self, count: int) -> None:
        for number in range(self.count, self.count + count):
            self._writer.append(b"%d" % number, key=b"k%d" % (number % _KEYS))
        self._writer.flush()
        self.count += count

    def grow(self, partitions: int) -> None:
        self._writer.grow(partitions)

    def options(self, **more: str) -> dict[str, str]:
        return {"log": self.name, "metadataUri": self._uri, "rows": "table", **more}

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
def sales(cluster: DevCluster, unique_name: str) -> Iterator[_Sales]:
    with BlockingLogs.connect(cluster.metadata_uri) as logs:
        made = _Sales(logs, unique_name, cluster.metadata_uri)
        try:
            yield made
        finally:
            made.close()


class _Rows:
    """What a stream has delivered, by micro-batch: (number, partition) in the order of partition and position."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self._spark, self._checkpoint = spark, checkpoint
        self.batches: dict[int, list[tuple[int, int]]] = {}

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("payload", "_partition").orderBy("_partition", "position").collect()
        self.batches[batch_id] = [(int(row.payload), row._partition) for row in rows]

    def drain(self, options: dict[str, str]) -> None:
        drain(self._spark.readStream.format("ledger").options(**options).load(), self._keep, self._checkpoint)

    @property
    def numbers(self) -> list[int]:
        return [number for batch in self.batches.values() for number, _ in batch]

    def offsets(self) -> dict[str, Any]:
        files = sorted(
            (int(path.name), path) for path in (self._checkpoint / "offsets").iterdir() if path.name.isdigit()
        )
        found: dict[str, Any] = json.loads(files[-1][1].read_text().splitlines()[-1])["log"]
        return found


def test_a_batch_reads_all_partitions_as_one_table(spark: SparkSession, sales: _Sales) -> None:
    sales.append(30)
    sales.grow(3)
    sales.append(30)
    table = spark.read.format("ledger").options(**sales.options()).load().collect()
    assert sorted(int(row.payload) for row in table) == list(range(60))
    after = {row.key: row._partition for row in table if int(row.payload) >= 30}
    assert after == {b"k%d" % n: partition_of(b"k%d" % n, 3) for n in range(_KEYS)}
    kafka = spark.read.format("ledger").options(**sales.options(rows="kafka")).load()
    assert {row.topic for row in kafka.select("topic").distinct().collect()} == {sales.name}
    assert {row.partition for row in kafka.where("key is not null").select("partition").collect()} == {0, 1, 2}
    one = partition_log(sales.name, 2)
    last = spark.read.format("ledger").options(**sales.options(log=one)).load()
    assert "_partition" not in last.columns
    assert last.count() == sum(1 for row in table if row._partition == 2)


def test_a_stream_picks_up_partitions_and_keeps_the_order_of_keys(
    spark: SparkSession, sales: _Sales, tmp_path: Path
) -> None:
    rows = _Rows(spark, tmp_path / "checkpoint")
    options = sales.options(startingOffsets="earliest")
    sales.append(24)
    rows.drain(options)
    sales.append(24)  # Not read before the growth.
    sales.grow(5)
    sales.append(24)
    rows.drain(options)
    assert sorted(rows.numbers) == list(range(72))
    for key in range(_KEYS):
        numbers = [number for number in rows.numbers if number % _KEYS == key]
        assert numbers == sorted(numbers), "over micro-batches, and in one by partition and position"
    for batch in rows.batches.values():
        by_key = {number % _KEYS: partition for number, partition in batch}
        assert all(by_key[number % _KEYS] == partition for number, partition in batch), "one partition a key"
    assert sorted(rows.offsets()) == [partition_log(sales.name, number) for number in range(5)]


def test_a_checkpoint_of_the_partitions_by_pattern_goes_on_with_the_whole(
    spark: SparkSession, sales: _Sales, tmp_path: Path
) -> None:
    rows = _Rows(spark, tmp_path / "checkpoint")
    sales.append(20)
    pattern = {"logPattern": rf"{sales.name}\.p\d+", "startingOffsets": "earliest"}
    parts = {name: value for name, value in sales.options(**pattern).items() if name != "log"}
    schema = spark.read.format("ledger").options(**sales.options()).load().schema
    frame = spark.readStream.format("ledger").options(**parts).schema(schema).load()
    drain(frame, lambda _frame, _batch: None, tmp_path / "checkpoint")
    sales.append(20)
    rows.drain(sales.options())
    assert sorted(rows.numbers) == list(range(20, 40))


def test_one_follower_has_a_table_for_each_partition_and_goes_on_when_the_log_grows(
    spark: SparkSession, sales: _Sales, tmp_path: Path
) -> None:
    settings = MaterializeSettings(
        log=sales.name,
        place=str(tmp_path / "table"),
        source={"metadataUri": sales.options()["metadataUri"]},
        hold={"consumer": "follower"},
        checkpoint=str(tmp_path / "checkpoint"),
        available_now=True,
    )

    def follow() -> set[str]:
        seen: list[Progress] = []
        summary = Materializer(spark, settings, report=seen.append).run()
        assert {one.log: one.revision for one in summary.positions if one.revision}.keys() >= {one.log for one in seen}
        assert summary.batches <= len(seen), "a micro-batch is told of by partition"
        return {one.log for one in seen}

    def names(count: int) -> set[str]:
        return {partition_log(sales.name, number) for number in range(count)}

    sales.append(24)
    assert follow() == names(2)
    sales.append(12)
    sales.grow(5)  # A partition of these has no record for a while.
    sales.append(36)
    assert follow() == names(5)
    assert follow() == set()
    rows = partitioned_table(spark, settings.place)
    table = spark.read.format("ledger").options(**sales.options()).load()
    columns = ["_partition", "position", "key", "payload"]
    assert_df_equality(rows.select(columns), table.select(columns), ignore_row_order=True, ignore_nullable=True)
    assert rows.count() == 72
    (shown,) = [block for block in re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL) if "partitioned_table" in block]
    exec(shown.replace("/lake/sales", settings.place), {"spark": spark})  # noqa: S102 - the page's own words
    one = partition_log(sales.name, 3)
    verdict = verify_log(
        spark, VerifySettings(one, tables=(f"{settings.place}/p3",), source=settings.source), lambda **_: None
    )
    assert verdict.ok, verdict.differences
    with pytest.raises(ForeignTableError, match="is no Delta table"):
        partitioned_table(spark, str(tmp_path / "nowhere"))


def test_a_follower_begins_anew_when_a_partition_appears_under_it(
    spark: SparkSession, sales: _Sales, tmp_path: Path
) -> None:
    sales.append(24)
    settings = MaterializeSettings(
        log=sales.name,
        place=str(tmp_path / "table"),
        source={"metadataUri": sales.options()["metadataUri"]},
        trigger="100 milliseconds",
    )
    seen: list[Progress] = []

    def should_stop() -> bool:
        if len(seen) >= 2 and sales.count == 24:
            sales.grow(3)
            sales.append(24)
        return sum(one.upserted for one in seen) >= 48

    summary = Materializer(spark, settings, report=seen.append, should_stop=should_stop).run()
    assert [one.log for one in summary.positions] == [partition_log(sales.name, number) for number in range(3)]
    numbers = [int(row.payload) for row in partitioned_table(spark, settings.place).collect()]
    assert sorted(numbers) == list(range(48))

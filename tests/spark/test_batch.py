from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("ledger").options(**options).load()


def revisions(frame: DataFrame) -> list[int]:
    return [row.revision for row in frame.select("revision").orderBy("revision").collect()]


def test_a_batch_reads_every_record_of_a_log_across_ledgers(spark: SparkSession, log: Any) -> None:
    log.fill(20)
    log.roll()
    log.fill(5)
    log.roll(tells_end=False)
    log.put({b"a": b"1"})
    frame = read(spark, log.options())
    assert revisions(frame) == list(range(1, log.revision + 1))
    last = frame.where("name = 'put'").orderBy("revision", ascending=False).first()
    assert last is not None
    assert (last.log, last.ledger_id, last.table_name, last.fold) == (log.name, log.ledger_ids[2], "map", "upsert")
    assert bytes(last.entry_hash) == log.hash


def test_raw_rows_are_the_entries_as_they_were_written(spark: SparkSession, log: Any) -> None:
    log.fill(10)
    log.append([])
    rows = read(spark, log.options(rows="raw")).orderBy("ledger_id", "entry_id").collect()
    assert [(row.ledger_id, row.entry_id, bytes(row.payload)) for row in rows] == log.entries
    by_ledger = {"metadataUri": log.metadata_uri, "ledgers": str(log.ledger_ids[0])}
    plain = read(spark, by_ledger).orderBy("entry_id").collect()
    assert [bytes(row.payload) for row in plain] == [payload for _, _, payload in log.entries]
    assert (plain[0].log, plain[0].revision) == (None, None)


def test_nothing_that_is_not_confirmed_is_read(spark: SparkSession, log: Any) -> None:
    log.put({b"a": b"1"})
    log.put({b"b": b"2"}, is_shown=False)
    assert revisions(read(spark, log.options())) == [1, 2]
    log.put({b"c": b"3"}, is_shown=False)
    assert revisions(read(spark, log.options())) == [1, 2], "the header LAC alone proves nothing"


def test_bounds_are_exact(spark: SparkSession, log: Any) -> None:
    log.fill(10)
    name, end = log.name, log.revision
    assert revisions(read(spark, log.options(startingOffsets="latest-7"))) == list(range(end - 6, end + 1))
    start, stop = f'{{"{name}": {{"revision": 5}}}}', f'{{"{name}": {{"revision": 95}}}}'
    between = read(spark, log.options(startingOffsets=start, endingOffsets=stop))
    assert revisions(between) == list(range(5, 95))
    assert revisions(read(spark, log.options(startingOffsets="latest"))) == []


def test_more_partitions_are_read_when_asked_for(spark: SparkSession, log: Any) -> None:
    log.fill(40)
    frame = read(spark, log.options(minPartitions=4))
    assert frame.rdd.getNumPartitions() >= 4
    assert revisions(frame) == list(range(1, log.revision + 1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffset": "latest"}, "unknown option startingoffset: did you mean startingOffsets?"),
        ({"rows": "json"}, "it may be raw, records, kafka or table"),
        ({"ledgers": "1"}, "exactly one of the options log, logPattern and ledgers: set are log and ledgers"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_right(
    spark: SparkSession, log: Any, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match="option") as caught:
        read(spark, log.options(**options))
    assert said in str(caught.value)


def test_a_log_that_does_not_exist_is_an_error_that_names_the_nearest_ones(spark: SparkSession, log: Any) -> None:
    with pytest.raises(Exception, match=f"there is no log {log.name}x under /rsm \\(known: {log.name}"):
        read(spark, log.options() | {"log": f"{log.name}x"}).count()


def test_a_wrong_password_is_an_error(
    spark: SparkSession, log: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "secret").write_text("wrong\n")
    with pytest.raises(Exception, match="(?i)password"):
        read(spark, log.options(passwordFile=tmp_path / "secret")).count()


def test_a_trimmed_start_is_an_error_with_range_and_choices(spark: SparkSession, make_log: Callable[[], Any]) -> None:
    log = make_log()
    log.fill(5)
    log.roll()
    log.put({b"a": b"1"})
    log.trim(1)
    start = f'{{"{log.name}": {{"revision": 7}}}}'
    with pytest.raises(Exception, match="records 7 to 51 have been trimmed") as caught:
        read(spark, log.options(startingOffsets=start)).count()
    assert "startingOffsets=earliest" in str(caught.value)
    rows = read(spark, log.options()).collect()
    assert [(row.revision, row.name, row.key) for row in rows] == [(52, None, None)], "the description was trimmed too"

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ledger.client.client import LedgerClient
from ledger.loop_thread import LoopThread
from rsm_spark.core.machine import encode_description
from rsm_spark.core.records import KernelRecord, Record
from tests.spark.conftest import MACHINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONF = "spark.sql.python.filterPushdown.enabled"
_DESCRIBED = Record(KernelRecord.MACHINE_DESCRIBED, None, (encode_description(MACHINE),))


@pytest.fixture
def pushing(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(_CONF, "true")
    yield spark
    spark.conf.unset(_CONF)


def read(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    return spark.read.format("ledger").options(**options).load()


def revisions(frame: DataFrame) -> list[int]:
    return sorted(row.revision for row in frame.select("revision").collect())


@pytest.fixture
def hollow_log(log: Any, loop: LoopThread, client: LedgerClient) -> Any:
    """A log of four ledgers, the first and the third of which nobody can open: they are gone from the bookies.

    The second one holds the records 52 to 103, logged at 1.051 s to 1.102 s.
    """
    log.fill(5)
    for _ in range(3):
        log.roll()
        log.append([_DESCRIBED])
        log.fill(5)
    for ledger_id in (log.ledger_ids[0], log.ledger_ids[2]):
        loop.run(client.delete(ledger_id))
    return log


def test_ledgers_outside_of_starts_and_ends_are_never_opened(spark: SparkSession, hollow_log: Any) -> None:
    name = hollow_log.name
    start, end = f'{{"{name}": {{"revision": 60}}}}', f'{{"{name}": {{"revision": 90}}}}'
    frame = read(spark, hollow_log.options(startingOffsets=start, endingOffsets=end))
    assert revisions(frame) == list(range(60, 90))
    assert revisions(frame.where("name = 'put' and revision > 80")) == list(range(81, 90))


def test_ledgers_outside_of_the_filters_are_never_opened(pushing: SparkSession, hollow_log: Any) -> None:
    frame = read(pushing, hollow_log.options(pushdown="true"))
    wanted = frame.where("revision >= 60 and revision < 90 and name = 'put'")
    assert revisions(wanted) == list(range(60, 90))
    plan = wanted._jdf.queryExecution().executedPlan().toString()
    assert "name" in plan.split("Filter", 1)[1]
    assert revisions(frame.where(f"ledger_id = {hollow_log.ledger_ids[1]} and entry_id in (0, 2)")) == [
        52,
        *range(63, 73),
    ]
    assert revisions(frame.where("logged_at > timestamp_millis(1060) and logged_at <= timestamp_millis(1080)")) == list(
        range(63, 83)
    )
    raw = read(pushing, hollow_log.options(pushdown="true", rows="raw"))
    assert [row.entry_id for row in raw.where("revision between 53 and 72").orderBy("entry_id").collect()] == [1, 2]


def test_pushdown_says_which_setting_it_needs(spark: SparkSession, log: Any) -> None:
    with pytest.raises(Exception, match=_CONF.replace(".", r"\.")):
        read(spark, log.options(pushdown="true")).collect()

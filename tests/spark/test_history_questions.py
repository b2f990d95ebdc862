"""The questions of docs/broker-history.md are answered by Spark as they stand there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pytest

from connectors.history.apply import HistoryWriter
from connectors.history.tables import HistoryTables
from tests.unit.connectors.history.recorded_broker import acted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TEXT = (Path(__file__).resolve().parents[2] / "docs" / "broker-history.md").read_text()


@pytest.mark.timeout(900)
def test_the_documented_questions_are_answered(spark: SparkSession, tmp_path: Path) -> None:
    broker = acted(3)
    tables = HistoryTables(str(tmp_path / "broker"), log="jobs", log_id="ab" * 16)
    tables.create(0)
    HistoryWriter(tables).apply(broker.facts())
    (views,) = re.findall(r"```python\n(.*?)```", _TEXT, re.DOTALL)
    exec(views.replace("/lake/broker", str(tmp_path / "broker")), {})  # noqa: S102 - it is the page's
    waits, failures, losses, shares = re.findall(r"```sql\n(.*?)```", _TEXT, re.DOTALL)
    assert spark.sql(waits).collect() == [], "the broker of this test ran in 1970"
    found = spark.sql(waits.replace("WHERE day >= current_date() - INTERVAL 1 DAY", "")).collect()
    all_waits = tables.open("waits").rows("assignment_id", list(broker.waits))
    assert sum(row.attempts for row in found) == len(all_waits)
    by_tenant = {tenant: [row.wait_ms for row in all_waits if row.tenant == tenant] for tenant in ("one", "two")}
    if len(found) == 2:  # all within a minute
        assert [row.p50_ms for row in found] == [median(by_tenant[row.tenant]) for row in found]
    attempts = tables.open("attempts").rows("assignment_id", list(broker.runs))
    bad = [row for row in attempts if row.outcome and row.outcome not in {"finished", "undelivered"}]
    assert {(row.type, row.outcome): row.attempts for row in spark.sql(failures).collect()} == Counter(
        (row.type, row.outcome) for row in bad
    )
    lost = [row for row in bad if row.outcome in {"worker_died", "stalled", "outcome_unknown"}]
    workers = tables.open("workers").rows_of("worker_id", ["w1", "w2"])
    gone = {(row.worker_id, row.incarnation) for row in workers if row.end == "lost"}
    told = {(row.worker_id, row.incarnation): row.lost for row in spark.sql(losses).collect()}
    assert set(told) == gone
    assert sum(told.values()) == sum((row.worker_id, row.incarnation) in gone for row in lost)
    policies = tables.open("policies").rows_of("tenant", ["one"])
    assert {row.set_at.timestamp() for row in spark.sql(shares).collect()} <= {row.set_at / 1000 for row in policies}

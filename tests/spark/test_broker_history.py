"""A broker's log, read by Spark from real bookies, becomes the tables of its history."""

from __future__ import annotations


import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from broker.core.tables import BROKER_DESCRIPTION
from connectors.errors import DeltaSinkError, ForeignTableError
from connectors.history.columns import HISTORY_TABLES, from_arrow
from connectors.history.recorder import HistoryProgress, HistoryRecorder, HistorySummary
from connectors.history.settings import HistorySettings
from rsm_spark.core.records import Record
from tests.unit.connectors.history.recorded_broker import RecordedBroker, acted
from tests.unit.connectors.history.test_task_fold import check_attempts, check_tasks, check_waits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOB = Path(__file__).resolve().parents[2] / "jobs" / "broker_history.py"


def append(log: Any, broker: RecordedBroker, first: int, end: int) -> None:
    """Write records [first, end) of a broker to a real log, some to each entry."""
    rng = random.Random(first)
    batches: list[list[Record]] = []
    while first < end:
        size = min(rng.randrange(1, 30), end - first)
        batches.append([Record(kind, None, fields) for _, kind, fields in broker.log[first - 1 : first - 1 + size]])
        first += size
    log.append_all(batches)


def record(spark: SparkSession, log: Any, lake: Path, **more: Any) -> tuple[HistorySummary, list[HistoryProgress]]:
    seen: list[HistoryProgress] = []
    settings = HistorySettings(
        log=log.name, lake=str(lake), source={"metadataUri": log.metadata_uri}, **{"available_now": True, **more}
    )
    return HistoryRecorder(spark, settings, report=seen.append).run(), seen


def content(lake: Path) -> dict[str, list[Any]]:
    """Return all rows, by table, in order of their keys."""
    found = {}
    for name, table in HISTORY_TABLES.items():
        rows = from_arrow(DeltaTable(str(lake / name)).to_pyarrow_table(), table)
        found[name] = sorted(rows, key=lambda row: tuple(getattr(row, key) for key in table.keys))
    return found


def check(broker: RecordedBroker, lake: Path) -> dict[str, list[Any]]:
    rows = content(lake)
    purged = {row.task_id: row for row in rows["tasks"]}
    # Entries of a test have times of their own: those of purges are not the broker's.
    assert {task_id for task_id, row in purged.items() if row.purged_at} == set(broker.purged)
    for task_id, row in purged.items():
        row.purged_at = broker.purged.get(task_id)
    check_tasks(broker, purged)
    check_attempts(broker, {row.assignment_id: row for row in rows["attempts"]})
    check_waits(broker, {row.assignment_id: row for row in rows["waits"]})
    return rows


def test_the_history_goes_on_where_its_tables_are(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path
) -> None:
    broker = acted(3)
    log = make_log(machine=BROKER_DESCRIPTION)
    middle = broker.revision // 2
    append(log, broker, 2, middle)
    first, seen = record(spark, log, tmp_path / "lake", records_per_batch_max=60, optimize_every=2)
    assert first.revision == middle - 1
    assert len(seen) == first.batches > 1
    assert first.files_merged
    log.roll()
    append(log, broker, middle, broker.revision + 1)
    second, _ = record(spark, log, tmp_path / "lake", payloads=True)
    assert (second.revision, second.records) == (broker.revision, broker.revision - middle + 1)
    rows = check(broker, tmp_path / "lake")
    payloads = {row.task_id: row.payload for row in rows["tasks"]}
    assert all(value is None for task_id, value in payloads.items() if task_id < middle - 50)
    assert any(value and value.startswith(b"payload") for value in payloads.values())
    third, nothing = record(spark, log, tmp_path / "lake")
    assert (third.records, nothing, content(tmp_path / "lake")) == (0, [], content(tmp_path / "lake"))


def test_other_logs_and_other_histories_are_refused(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(DeltaSinkError, match="of the machine 'map', not of a task broker"):
        record(spark, make_log(), tmp_path / "lake")
    assert not (tmp_path / "lake").exists()
    broker = acted(3)
    log = make_log(machine=BROKER_DESCRIPTION)
    append(log, broker, 2, 40)
    record(spark, log, tmp_path / "lake")
    folder = tmp_path / "lake" / "tasks" / "_delta_log"
    commit = sorted(folder.glob("*.json"))[-1]
    commit.write_text(commit.read_text().replace(log.hash.hex(), "00" * 32))
    with pytest.raises(ForeignTableError, match="has another history"):
        record(spark, log, tmp_path / "lake")

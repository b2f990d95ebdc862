"""A broker's log, read by Spark from real bookies, becomes the tables of its history."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from deltalake import DeltaTable

from broker.machine.tables import BROKER_DESCRIPTION
from connectors.history.columns import HISTORY_TABLES, from_arrow
from connectors.history.recorder import HistoryProgress, HistoryRecorder, HistorySummary
from connectors.history.settings import HistorySettings
from ledger.dev import DevCluster
from rsm_spark.core.machine import TableDescription, encode_description
from rsm_spark.core.records import KernelRecord, Record
from tests.spark.broker_scenario import Told, played
from tests.unit.connectors.history.recorded_broker import RecordedBroker, acted
from tests.unit.connectors.history.test_task_fold import check_attempts, check_tasks, check_waits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TURNED = msgspec.structs.replace(
    BROKER_DESCRIPTION,
    tables=tuple(TableDescription(one.name, one.key, one.row[::-1]) for one in BROKER_DESCRIPTION.tables),
    records=tuple(msgspec.structs.replace(one, row=one.row[::-1]) for one in BROKER_DESCRIPTION.records),
)
_JOB = Path(__file__).resolve().parents[2] / "jobs" / "broker_history.py"


def append(log: Any, broker: RecordedBroker, first: int, end: int) -> None:
    """Write records [first, end) of a broker to a real log, some to each entry."""
    rng = random.Random(first)
    batches: list[list[Record]] = []
    while first < end:
        size = min(rng.randrange(1, 30), end - first)
        batches.append([as_logged(*one) for one in broker.log[first - 1 : first - 1 + size]])
        first += size
    log.append_all(batches)


def as_logged(_revision: int, kind: int, fields: tuple[Any, ...]) -> Record:
    """Return a record; of a description another one, in which the columns of the tables are in another order."""
    if kind == KernelRecord.MACHINE_DESCRIBED:
        fields = (encode_description(TURNED),)
    return Record(kind, None, fields)


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


@pytest.mark.timeout(900)
def test_the_history_goes_on_where_its_tables_are(
    spark: SparkSession, make_log: Callable[..., Any], tmp_path: Path
) -> None:
    broker = acted(3)
    log = make_log(machine=BROKER_DESCRIPTION)
    turn = next(revision for revision, kind, _ in broker.log[1:] if kind == KernelRecord.MACHINE_DESCRIBED)
    middle = turn - 30
    append(log, broker, 2, middle)
    first, seen = record(spark, log, tmp_path / "lake", records_per_batch_max=60, optimize_every=2)
    assert first.revision == middle - 1
    assert len(seen) == first.batches > 1
    assert first.files_merged
    append(log, broker, middle, turn)
    log.roll()
    append(log, broker, turn, broker.revision + 1)
    second, _ = record(spark, log, tmp_path / "lake", payloads=True)
    assert (second.revision, second.records) == (broker.revision, broker.revision - middle + 1)
    assert second.restarts >= 1, "the broker described its records anew"
    rows = check(broker, tmp_path / "lake")
    payloads = {row.task_id: row.payload for row in rows["tasks"]}
    assert all(value is None for task_id, value in payloads.items() if task_id < middle - 50)
    assert any(value and value.startswith(b"payload") for value in payloads.values())
    before = content(tmp_path / "lake")
    third, nothing = record(spark, log, tmp_path / "lake")
    assert (third.records, nothing, content(tmp_path / "lake")) == (0, [], before)


def job(log: str, lake: Path, cluster: DevCluster, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(_JOB), "--log", log, "--lake", str(lake), "--metadata-uri", cluster.metadata_uri]
    settings = "--master local[2] --conf spark.ui.enabled=false pyspark-shell"
    return subprocess.Popen(
        [*command, *more],
        cwd=lake.parent,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": settings},
        stdout=subprocess.PIPE,
        stderr=(lake.parent / "job.log").open("ab"),
        text=True,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_what_a_brokers_api_told_is_in_the_history_after_the_purge(
    spark: SparkSession, cluster: DevCluster, unique_name: str, tmp_path: Path
) -> None:
    """The same whether one run reads it, or one that is killed, and then two at once."""
    (tmp_path / "b").mkdir()
    lake = tmp_path / "b" / "lake"
    lines: list[dict[str, Any]] = []

    def follow() -> None:
        """Have a job follow the log, and kill it when it has changed the tables a few times."""
        with job(unique_name, lake, cluster, "--trigger", "200ms", "--max-records", "25") as following:
            assert following.stdout is not None
            lines.extend(json.loads(following.stdout.readline()) for _ in range(4))
            os.killpg(following.pid, signal.SIGKILL)

    follower = threading.Thread(target=follow)
    told = played(cluster, unique_name, tmp_path, follower.start)
    follower.join(300)
    revisions = [line["revision"] for line in lines]
    assert revisions == sorted(set(revisions))
    again = job(unique_name, lake, cluster, "--available-now", "--max-records", "40", "--payloads")
    source = {"metadataUri": cluster.metadata_uri}
    settings = HistorySettings(log=unique_name, lake=str(lake), source=source, available_now=True)
    HistoryRecorder(spark, msgspec.structs.replace(settings, records_per_batch_max=30)).run()
    out, _ = again.communicate(timeout=600)
    assert again.returncode == 0, (tmp_path / "b" / "job.log").read_text()[-4000:]
    assert json.loads(out.splitlines()[-1])["ok"] is True
    whole = HistoryRecorder(spark, msgspec.structs.replace(settings, lake=str(tmp_path / "a"))).run()
    assert whole.revision >= told.events[-1].revision
    rows = content(tmp_path / "a")
    both = content(lake)
    for row in both["tasks"]:
        row.payload = row.result = None  # kept by one of the runs, of what it read
    assert both == rows
    compare(told, rows, told.events[-1].revision)


def compare(told: Told, rows: dict[str, list[Any]], last: int) -> None:
    tasks = {row.task_id: row for row in rows["tasks"]}
    attempts = {row.assignment_id: row for row in rows["attempts"]}
    ended = {task_id: task for task_id, task in told.tasks.items() if task.has_ended}
    assert len(ended) > 30
    for task_id, task in ended.items():
        row = tasks[task_id]
        assert (row.tenant, row.type, row.status, row.attempts) == (task.tenant, task.type, task.status, task.attempts)
        assert (row.outcome or "", row.error or "") == (task.outcome, task.error)
        assert (row.created_at, row.ended_at, row.assigned_at or 0) == (
            task.created_ms, task.ended_ms, task.assigned_ms
        )  # fmt: skip
        assert (row.worker_id or "", row.assignment_id or 0) == (task.worker_id, task.assignment_id)
        assert (row.slot or "", row.at_most_once) == (task.slot, task.at_most_once)
    events = [event for event in told.events if event.revision <= last]
    purged = {event.fields["task_id"]: event.revision for event in events if event.name == "task_removed"}
    assert {task_id for task_id, row in tasks.items() if row.purged_at and row.revision <= last} == set(purged)
    assert len(purged) >= len(ended) - 1, "all but the last one were purged"
    assigned = {event.revision: event.fields for event in events if event.name == "task_assigned"}
    assert {number for number in attempts if number <= last} == set(assigned)
    assert set(attempts) == {row.assignment_id for row in rows["waits"]}
    for assignment_id, fields in assigned.items():
        row = attempts[assignment_id]
        assert (row.task_id, row.worker_id, row.attempt, row.assigned_at) == (
            fields["task_id"], fields["worker_id"], fields["attempts"], fields["assigned_ms"]
        )  # fmt: skip
        end = next(
            event
            for event in events
            if event.revision > assignment_id
            and event.name in {"task_ended", "task_requeued"}
            and event.fields["task_id"] == row.task_id
        )
        assert (row.ended_at, row.run_ms) == (end.fields["ended_ms"], end.fields["ended_ms"] - row.assigned_at)
    outcomes = {row.outcome for row in attempts.values()}
    assert {"finished", "failed", "cancelled", "timed_out", "worker_died", "outcome_unknown"} <= outcomes
    assert {row.outcome for row in tasks.values()} >= {"deadline_expired", "cancelled", "failed", "outcome_unknown"}
    assert "rolled_back" in {row.status for row in tasks.values()}
    waits = [row for row in rows["waits"] if row.tenant == "acme"]
    assert {row.group for row in waits} == {3}
    assert {row.priority for row in waits} == {1, 7}
    assert all(row.wait_ms is not None and row.wait_ms >= 0 for row in waits)
    (lost,) = [row for row in rows["workers"] if row.worker_id == told.killed]
    assert (lost.end, lost.status, lost.threads) == ("lost", "dead", 2)
    assert {row.incarnation for row in attempts.values() if row.worker_id == told.killed} == {lost.incarnation}
    (policy,) = rows["policies"]
    assert (policy.tenant, policy.weight, policy.group, policy.priority) == ("acme", 2.0, 3, 7)

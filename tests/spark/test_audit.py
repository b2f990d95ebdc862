"""The audit of a log becomes a Delta table, each line once."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from connectors.errors import ForeignTableError
from connectors.history.audit import AuditRecorder, AuditSettings, AuditSummary
from jobs import audit
from rsm_spark.core.records import KernelRecord, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def audited_record(number: int) -> Record:
    outcome = "asked" if number % 2 else "done"
    return Record(
        KernelRecord.AUDITED, None, ("ann", "operator", "10.0.0.7", "PUT /holds", f"tenant {number}", outcome)
    )


def _keep(spark: SparkSession, log: Any, table: Path, **more: Any) -> AuditSummary:
    settings = AuditSettings(
        log=log.name, table=str(table), source={"metadataUri": log.metadata_uri}, available_now=True, **more
    )
    return AuditRecorder(spark, settings).run()


def _rows(table: Path) -> list[dict[str, Any]]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().to_pylist(), key=lambda row: row["revision"])


def test_every_audited_record_is_one_row_however_often_the_job_runs(
    spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    table = tmp_path / "audit"
    rng = random.Random(1)
    expected: list[tuple[int, str]] = []
    for turn in range(3):
        for number in range(turn * 10, turn * 10 + 10):
            log.put({b"key-%d" % k: b"v" for k in range(rng.randrange(1, 5))})
            log.append([audited_record(number)])
            expected.append((log.revision, f"tenant {number}"))
        done = _keep(spark, log, table, records_per_batch_max=7)
        assert (done.rows, done.revision) == (10, log.revision)
    again = _keep(spark, log, table)
    assert (again.rows, again.revision) == (0, log.revision)
    rows = _rows(table)
    assert [(row["revision"], row["target"]) for row in rows] == expected
    assert {row["role"] for row in rows} == {"operator"}


def test_a_log_without_audits_makes_an_empty_table_that_says_how_far_it_is(
    spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    log.put({b"a": b"1"})
    done = _keep(spark, log, tmp_path / "audit")
    assert (done.rows, done.revision) == (0, log.revision)
    assert _rows(tmp_path / "audit") == []


def test_a_table_of_something_else_is_left_alone(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    log.append([audited_record(1)])
    spark.range(3).write.format("delta").save(str(tmp_path / "other"))
    with pytest.raises(ForeignTableError, match="follows no log.*audit of log"):
        _keep(spark, log, tmp_path / "other")


def test_the_job_tells_what_it_did(
    spark: SparkSession, log: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log.append([audited_record(1)])
    where = ["--metadata-uri", log.metadata_uri, "--log", log.name, "--table", str(tmp_path / "audit")]
    assert audit.main([*where, "--available-now"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said[0]["rows"] == said[-1]["rows"] == 1
    assert said[-1]["ok"] is True

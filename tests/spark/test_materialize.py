from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from connectors.delta.materialize import Materializer
from connectors.delta.settings import MaterializeSettings, Progress, Summary
from connectors.errors import DeltaSinkError, ForeignTableError
from rsm_spark.core.digest import DIGEST_MODULUS, digest_bytes, row_term, table_prefix
from rsm_spark.core.records import pack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).resolve().parents[2]


def settings_of(log: Any, folder: Path, **more: Any) -> MaterializeSettings:
    return MaterializeSettings(
        log=log.name,
        place=str(folder / "table"),
        source={"metadataUri": log.metadata_uri},
        **{"checkpoint": str(folder / "checkpoint"), "available_now": True, **more},
    )


def materialize(spark: SparkSession, log: Any, folder: Path, **more: Any) -> tuple[Summary, list[Progress]]:
    seen: list[Progress] = []
    return Materializer(spark, settings_of(log, folder, **more), report=seen.append).run(), seen


def content(folder: Path) -> dict[bytes, tuple[bytes, int]]:
    rows = DeltaTable(str(folder / "table")).to_pyarrow_table().to_pylist()
    return {row["key"]: (row["value"], row["_revision"]) for row in rows}


def digest_of(state: dict[bytes, tuple[bytes, int]]) -> str:
    terms = [row_term(table_prefix("map"), pack([key]), pack([value])) for key, (value, _) in state.items()]
    return digest_bytes(sum(terms) % DIGEST_MODULUS).hex()


def test_the_table_is_the_map_with_its_position_and_digest(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    log.fill(30)
    log.roll()
    log.delete(b"key-3", b"nobody")
    log.fill(3)
    summary, seen = materialize(spark, log, tmp_path, records_per_batch_max=100)
    assert content(tmp_path) == log.state
    assert [one.revision for one in seen] == [101, 201, 301, log.revision]
    assert summary.position.revision == log.revision
    assert summary.position.prefix_hash == log.hash.hex()
    assert summary.position.digest == digest_of(log.state)
    assert summary.position.row_count == len(log.state)


def test_materializing_again_changes_nothing(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    log.fill(5)
    materialize(spark, log, tmp_path)
    version = DeltaTable(str(tmp_path / "table")).version()
    summary, seen = materialize(spark, log, tmp_path)
    assert (summary.records, seen) == (0, [])
    assert DeltaTable(str(tmp_path / "table")).version() == version
    assert content(tmp_path) == log.state


def test_what_checkpoints_there_are_does_not_matter(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    log.fill(5)
    materialize(spark, log, tmp_path)
    assert list((tmp_path / "checkpoint").iterdir()) == [], "a run removes its own"
    left_over = tmp_path / "checkpoint" / ("ab" * 16) / "offsets"
    left_over.mkdir(parents=True)
    (left_over / "0").write_text("v1\n{}\nnonsense")
    log.fill(2)
    summary, seen = materialize(spark, log, tmp_path)
    assert (summary.records, len(seen)) == (20, 1), "only what is new was read"
    assert content(tmp_path) == log.state


def test_a_lost_table_is_made_anew_and_an_older_one_goes_on(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    log.fill(3)
    materialize(spark, log, tmp_path)
    shutil.copytree(tmp_path / "table", tmp_path / "older")
    log.fill(3)
    materialize(spark, log, tmp_path)
    shutil.rmtree(tmp_path / "table")
    materialize(spark, log, tmp_path)
    assert content(tmp_path) == log.state
    shutil.rmtree(tmp_path / "table")
    shutil.move(tmp_path / "older", tmp_path / "table")
    log.fill(1)
    summary, _ = materialize(spark, log, tmp_path)
    assert (summary.restarts, summary.records) == (0, 40)
    assert content(tmp_path) == log.state


def test_another_history_of_the_log_is_refused(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    log.fill(2)
    materialize(spark, log, tmp_path)
    commit = tmp_path / "table" / "_delta_log" / f"{1:020d}.json"
    commit.write_text(commit.read_text().replace(log.hash.hex(), "00" * 32))
    with pytest.raises(ForeignTableError, match="followed another history"):
        materialize(spark, log, tmp_path)


def test_a_table_that_the_machine_lacks_is_refused(spark: SparkSession, log: Any, tmp_path: Path) -> None:
    with pytest.raises(DeltaSinkError, match="has no table orders: it has map"):
        materialize(spark, log, tmp_path, machine_table="orders")


def job_of(log: Any, folder: Path, *more: str) -> list[str]:
    job = str(_ROOT / "jobs" / "materialize.py")
    place = str(folder / "table")
    return [job, "--log", log.name, "--table", place, "--metadata-uri", log.metadata_uri, "--available-now", *more]


@pytest.mark.slow
def test_the_job_killed_in_the_middle_and_started_again_ends_with_the_same_table(
    spark: SparkSession, log: Any, tmp_path: Path
) -> None:
    log.fill(60)
    settings = "--master local[2] --conf spark.ui.enabled=false pyspark-shell"
    with subprocess.Popen(
        [sys.executable, *job_of(log, tmp_path, "--max-records", "20")],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as job:
        assert job.stdout is not None
        lines = [json.loads(job.stdout.readline()) for _ in range(6)]  # read and committed, three times
        os.killpg(job.pid, signal.SIGKILL)
    applied = DeltaTable(str(tmp_path / "table")).transaction_version(f"rsm:{log.name}:{log.log_id.hex()}:map")
    assert applied is not None
    assert lines[-1]["revision"] <= applied < log.revision
    again = settings_of(log, tmp_path, checkpoint=str(tmp_path / "table" / "_rsm_checkpoint"))
    summary = Materializer(spark, again, report=lambda _progress: None).run()
    assert summary.position.revision == log.revision
    assert summary.position.digest == digest_of(log.state)
    assert content(tmp_path) == log.state


@pytest.mark.slow
def test_the_job_by_spark_submit_ends_with_a_summary_and_an_exit_code(log: Any, tmp_path: Path) -> None:
    log.fill(10)
    submit = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
    for name, code in ((log.name, 0), ("nobody", 1)):
        command = [name if part == log.name else part for part in job_of(log, tmp_path)]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            [*submit, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250, check=False
        )
        assert done.returncode == code, done.stderr
        summary = json.loads(done.stdout.splitlines()[-1])
        assert (summary["job"], summary["ok"]) == ("materialize", code == 0)
    assert content(tmp_path) == log.state

"""Statements of tasks in a shared session, as the pool's driver runs them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker.machine.worker_messages import AssignedRun
from broker.pool.statement_tasks import statement_function
from broker.worker.context import RunCancelledError, TaskContext, TaskError
from broker.worker.core.effects import StopReason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., Any]


def context(tenant: str = "acme", task_id: int = 1, assignment_id: int = 1) -> TaskContext:
    run = AssignedRun(
        task_id=task_id, assignment_id=assignment_id, tenant=tenant, type="spark_sql", attempt=1, payload=b""
    )
    return TaskContext(run, lambda *_: None)


@pytest.fixture
def run(spark: SparkSession) -> Run:
    from connectors.pool.statements import SharedSession

    function = statement_function(SharedSession(spark), "log")

    def call(sql: str, given: TaskContext | None = None, **fields: Any) -> Any:
        return json.loads(function(given or context(), json.dumps({"sql": sql, **fields}).encode()))

    return call


def test_rows_are_told_with_their_columns_and_parameters_are_values(run: Run) -> None:
    said = run("SELECT id, :name AS who FROM range(3) ORDER BY id", args={"name": "O'Hara"}, limit=2)
    assert said == {
        "columns": [{"name": "id", "type": "bigint"}, {"name": "who", "type": "string"}],
        "rows": [[0, "O'Hara"], [1, "O'Hara"]],
        "row_count": 2,
        "is_cut": True,
    }


def test_values_of_every_kind_of_type_are_told(run: Run) -> None:
    said = run(
        "SELECT 1.50BD, TIMESTAMP'2026-01-02 03:04:05Z', X'00FF', array(1, 2), map('a', 1), named_struct('b', NULL), "
        "parse_json('{\"c\": 1}'), INTERVAL '1-2' YEAR TO MONTH, double('nan')"
    )
    assert said["rows"] == [
        ["1.50", "2026-01-02T03:04:05Z", "AP8=", [1, 2], [["a", 1]], {"b": None}, '{"c":1}',
         "INTERVAL '1-2' YEAR TO MONTH", None]
    ]  # fmt: skip


def test_what_a_statement_sets_up_in_its_session_is_its_own(run: Run) -> None:
    assert run("CREATE TEMPORARY VIEW mine AS SELECT 1")["rows"] == []
    with pytest.raises(TaskError, match="TABLE_OR_VIEW_NOT_FOUND"):
        run("SELECT * FROM mine")


def test_errors_are_words_without_traces_wherever_they_come_from(run: Run) -> None:
    for sql, why in (("SELEC 1", "PARSE_SYNTAX_ERROR"), ("SELECT 1 / (id - 1) FROM range(3)", "DIVIDE_BY_ZERO")):
        with pytest.raises(TaskError, match=why) as caught:
            run(sql)
        assert "\tat " not in str(caught.value)
        assert "Traceback" not in str(caught.value)


def test_jobs_of_a_statement_run_in_a_pool_of_its_slot_whosever_they_are(spark: SparkSession, run: Run) -> None:
    sql = "SELECT count(*) FROM range(10)"
    for tenant in ("blue", "red"):
        run(sql, context(tenant))
        found = [spark.sparkContext.getLocalProperty(f"spark.{key}") for key in ("scheduler.pool", "job.description")]
        assert found == ["statement-1", f"{tenant}: {sql}"]


def test_a_cancelled_statement_is_broken_off(run: Run) -> None:
    one = context()
    threading.Timer(1.0, one.stop, (StopReason.CANCELLED,)).start()
    with pytest.raises(RunCancelledError):
        # Hours of work. Its tasks look often whether they are to end: a join would keep the cores from the next tests.
        run("SELECT sum(id % 7) FROM range(1000000000000)", one)


@pytest.mark.slow
def test_rows_go_to_a_place_instead_and_an_append_to_delta_that_is_run_again_is_done_once(
    spark: SparkSession, run: Run, tmp_path: Path
) -> None:
    place = str(tmp_path / "table")
    for assignment_id in (1, 2):
        said = run(
            "SELECT id FROM range(5)", context(assignment_id=assignment_id), path=place, format="delta", mode="append"
        )
        assert said == {"path": place}
    assert spark.read.format("delta").load(place).count() == 5
    run("SELECT id FROM range(5)", context(task_id=2), path=place, format="delta", mode="append")
    assert spark.read.format("delta").load(place).count() == 10
    with pytest.raises(TaskError, match="DELTA_PATH_EXISTS"):
        run("SELECT id FROM range(5)", path=place, format="delta")

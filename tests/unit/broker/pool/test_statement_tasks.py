from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from broker.machine.worker_messages import AssignedRun
from broker.pool.statement_tasks import StatementPayload, read_statement, statement_function
from broker.worker.context import RunCancelledError, TaskContext, TaskError
from broker.worker.core.effects import StopReason
from broker.worker.outcomes import failed


def context() -> TaskContext:
    run = AssignedRun(task_id=7, assignment_id=9, tenant="acme", type="spark_sql", attempt=1, payload=b"")
    return TaskContext(run, lambda *_: None)


class Runner:
    """Runs until it is cancelled, if the statement says so."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.cancelled = threading.Event()

    def run(self, statement: StatementPayload, **asked: Any) -> bytes:
        self.asked.append(asked)
        if statement.sql == "wait":
            assert self.cancelled.wait(60)
            raise ValueError("cancelled")
        if statement.sql == "fail":
            raise ValueError("line 1\n\tat org.apache")
        return statement.sql.encode()

    def cancel(self, group: str) -> None:
        assert group == "log-task-7-9"
        self.cancelled.set()

    def words(self, error: Exception) -> str:
        return f"ValueError: {str(error).splitlines()[0]}"


def test_a_statement_runs_under_its_tenant_and_a_group_of_its_run() -> None:
    runner = Runner()
    assert statement_function(runner, "log")(context(), b'{"sql":"SELECT 1"}') == b"SELECT 1"
    (asked,) = runner.asked
    assert (asked["group"], asked["tenant"]) == ("log-task-7-9", "acme")
    assert asked["effect"].startswith("log-task-7-")


def test_the_effect_of_a_statement_is_named_alike_in_each_attempt_and_unlike_for_another_statement() -> None:
    runner = Runner()
    run = statement_function(runner, "log")
    for payload in (b'{"sql":"a"}', b'{"sql":"a"}', b'{"sql":"b"}'):
        run(context(), payload)
    first, again, other = (asked["effect"] for asked in runner.asked)
    assert first == again != other


def test_an_error_of_a_statement_is_the_tasks_error_without_a_trace() -> None:
    with pytest.raises(TaskError) as caught:
        statement_function(Runner(), "log")(context(), b'{"sql":"fail"}')
    assert failed(7, 9, caught.value).error == "ValueError: line 1"


def test_a_run_that_is_to_end_breaks_its_statement_off() -> None:
    runner, one = Runner(), context()
    threading.Timer(0.05, one.stop, (StopReason.CANCELLED,)).start()
    with pytest.raises(RunCancelledError):
        statement_function(runner, "log")(one, b'{"sql":"wait"}')


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"SELECT 1", "no statement"),
        (b'{"sql": "  "}', "empty"),
        (b'{"sql": "SELECT 1", "limits": 3}', "limits"),
        (b'{"sql": "SELECT 1", "limit": -1}', "limit -1"),
        (b'{"sql": "SELECT 1", "table": "a", "path": "b"}', "not to both"),
        (b'{"sql": "SELECT 1", "format": "delta"}', "a format belongs to"),
        (b'{"sql": "SELECT 1", "path": "b", "mode": "replace"}', "replace"),
    ],
)
def test_a_payload_that_is_no_statement_is_refused_in_words(payload: bytes, why: str) -> None:
    with pytest.raises(TaskError, match=why):
        read_statement(payload)


def test_what_a_payload_says_is_read() -> None:
    given = {"sql": "SELECT :a", "args": {"a": 1}, "path": "/lake", "format": "delta", "mode": "append"}
    assert read_statement(json.dumps(given).encode()) == StatementPayload(**given)  # type: ignore[arg-type]

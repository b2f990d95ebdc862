"""A warm server's answers, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from connectors.pool.warm_server import AskedOfServer, answer


class _Server:
    """A server as far as its answers need one."""

    port = 4711
    environment = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": "secret"}

    def __init__(self) -> None:
        self.closed: list[tuple[int, int]] = []

    def open_session(self, task_id: int, assignment_id: int, *, settings: dict[str, str]) -> str:
        if settings:
            error: Any = RuntimeError()
            error.java_exception = SimpleNamespace(getMessage=lambda: "it is static " + "x" * 9000)
            raise error
        return "0-1"

    def close_sessions(self, task_id: int, assignment_id: int) -> None:
        self.closed.append((task_id, assignment_id))


def test_a_session_is_told_with_all_that_its_program_needs() -> None:
    server: Any = _Server()
    assert answer(server, AskedOfServer(1, open=(7, 12))) == {
        "number": 1,
        "remote": "sc://localhost:4711/;user_id=task-7-12;session_id=0-1",
        "token": "secret",
        "session_id": "0-1",
        "jobs": "SparkConnect_OperationTag_User_task-7-12_Session_",
    }
    assert answer(server, AskedOfServer(2, close=(7, 12))) == {"number": 2}
    assert server.closed == [(7, 12)]


def test_an_error_is_an_answer_of_one_line() -> None:
    server: Any = _Server()
    told = answer(server, AskedOfServer(1, open=(7, 12), conf={"spark.bad": "1"}))
    assert told["error"].startswith("it is static x")
    assert len(told["error"]) <= 500

"""A warm server's answers and its port, without Spark."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.pool.warm_server import AskedOfServer, answer, hold_loopback


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


def test_nobody_else_gets_the_port_of_the_other_loopback() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        held = hold_loopback(port)
        if held is None:
            pytest.skip("no loopback of IPv6")
        with held, socket.socket(socket.AF_INET6) as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(("::1", port))
            with pytest.raises(OSError, match="in use"):
                hold_loopback(port)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("::1", port), 5)

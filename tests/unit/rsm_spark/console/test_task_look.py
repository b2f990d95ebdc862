"""Tasks of a broker as the console sees them: whose types anybody runs, and what is said when it tells nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from rsm_spark.console import task_look
from rsm_spark.console.task_look import TasksLook, tasks_view


def _served(offer: dict[str, Any], status: str = "connected") -> bool:
    overview = task_look._Overview(
        {"waiting": 3}, [task_look._Type("mail", {"waiting": 3})], {"connected": 1}, threads=2, oldest_waiting_ms=5
    )
    worker = task_look._Worker(status, task_look._Offer(**offer))
    return tasks_view("broker", "http://a:1", overview, [worker]).types[0].is_served


@pytest.mark.parametrize(
    ("offer", "is_served"),
    [
        ({}, True),
        ({"threads_max": 0}, False),
        ({"threads_by_type": {"mail": 2}}, True),
        ({"threads_by_type": {"mail": 0}, "any_type_threads": 5}, False),
        ({"threads_by_type": {"fax": 2}}, False),
        ({"threads_by_type": {"fax": 2}, "any_type_threads": 1}, True),
        ({"any_type_threads": 0}, False),
    ],
)
def test_a_type_is_served_if_a_worker_has_threads_for_it(offer: dict[str, Any], is_served: bool) -> None:
    assert _served(offer) is is_served
    assert not _served(offer, "disconnected")


def _look(url: str) -> str:
    async def run() -> str:
        look = TasksLook()
        try:
            return (await look.look("broker", url)).problem
        finally:
            look.close()

    return asyncio.run(run())


def test_a_broker_without_http_or_without_an_answer_is_a_problem_in_words() -> None:
    assert _look("") == "no broker of this log serves HTTP"
    assert "http://127.0.0.1:1: " in _look("http://127.0.0.1:1")
    assert "expected http://host:port" in _look("ftp://x")


def test_the_token_is_not_sent_in_plain_text_beyond_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("s" * 40)
    file.chmod(0o600)
    monkeypatch.setenv("RSM_BROKER_TOKEN_FILE", str(file))
    assert "not sent in plain text" in _look("http://192.0.2.1:7364")


def test_an_answer_that_is_none_is_a_problem() -> None:
    async def run(status: str, body: bytes) -> str:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body))
            writer.close()

        look = TasksLook()
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        try:
            return (await look.look("broker", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")).problem
        finally:
            look.close()
            server.close()

    assert "RSM_BROKER_TOKEN_FILE" in asyncio.run(run("401 Unauthorized", b"{}"))
    assert "answered 503" in asyncio.run(run("503 Service Unavailable", b"{}"))
    assert asyncio.run(run("200 OK", b"<html>"))
    assert asyncio.run(run("200 OK", b'{"by_status": 3}'))

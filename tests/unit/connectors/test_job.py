"""What every job does alike."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from connectors.errors import ConnectorError, OptionError
from connectors.job import JobRun, job_parser, run_job

_DOC = """Count things.

    spark-submit jobs/count.py --log orders
"""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Leave signals as they were."""
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [(number, signal.getsignal(number)) for number, _ in before] == before


def run(work: Any, *argv: str, **more: Any) -> int:
    parser = job_parser("count", _DOC)
    parser.add_argument("--log", required=True)
    parser.add_argument("--count", type=int, default=1)
    return run_job(parser, work, argv, shown=("log",), **more)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_last_line_is_what_the_work_returned(capsys: pytest.CaptureFixture[str]) -> None:
    def work(arguments: Any, job: JobRun) -> dict[str, Any]:
        job.say(read=1)
        return {"count": arguments.count}

    assert run(work, "--log", "orders", "--count", "3") == 0
    assert lines(capsys) == [
        {"job": "count", "log": "orders", "read": 1},
        {"job": "count", "log": "orders", "ok": True, "count": 3},
    ]


def test_a_job_that_found_what_it_looked_for_may_fail_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda _arguments, _job: {"ok": False, "differences": 2}, "--log", "orders") == 1
    assert lines(capsys) == [{"job": "count", "log": "orders", "ok": False, "differences": 2}]


def test_a_failure_is_one_sentence_and_no_trace(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def work(*_: Any) -> dict[str, Any]:
        raise ConnectorError("the table is gone: make it anew")

    with caplog.at_level(logging.INFO):
        assert run(work, "--log", "orders") == 1
    assert lines(capsys) == [{"job": "count", "log": "orders", "ok": False, "error": "the table is gone: make it anew"}]
    assert caplog.records[-1].getMessage() == "count failed: the table is gone: make it anew"
    assert not any(record.exc_info for record in caplog.records)


def test_a_trace_that_helps_stands_before_the_sentence(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def work(*_: Any) -> dict[str, Any]:
        raise KeyError("tail")

    assert run(work, "--log", "orders") == 1
    assert lines(capsys)[-1]["error"] == "'tail'"
    assert any(record.exc_info for record in caplog.records[:-1])
    assert caplog.records[-1].getMessage() == "count failed: 'tail'"
    assert not caplog.records[-1].exc_info


@pytest.mark.parametrize(
    "argv", [(), ("--log",), ("--log", "a", "--count", "x"), ("--log", "a", "--nonsense"), ("--lo", "a")]
)
def test_wrong_arguments_are_one_line(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda *_: {}, *argv) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("count: ")


def test_an_option_that_only_the_work_can_judge_is_a_wrong_argument(capsys: pytest.CaptureFixture[str]) -> None:
    def work(*_: Any) -> dict[str, Any]:
        raise OptionError("--trigger soon: write it as 1s or 5m")

    assert run(work, "--log", "orders") == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "count: --trigger soon: write it as 1s or 5m (--help shows an example)\n")


def test_help_shows_the_example_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lambda *_: {}, "--help") == 0
    said = capsys.readouterr().out
    assert "spark-submit jobs/count.py --log orders" in said
    assert "exit codes: 0 = done, 1 = failed" in said


def test_a_signal_asks_a_job_that_listens_to_end(capsys: pytest.CaptureFixture[str]) -> None:
    def work(_arguments: Any, job: JobRun) -> dict[str, Any]:
        assert not job.should_stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert job.wait(60)
        return {"stopped": job.should_stop()}

    assert run(work, "--log", "orders", is_stoppable=True) == 0
    assert lines(capsys)[-1]["stopped"] is True


@pytest.mark.parametrize("is_stoppable", [False, True])
def test_a_signal_breaks_off_what_does_not_listen_and_the_second_one_breaks_off_all(
    is_stoppable: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*_: Any) -> dict[str, Any]:
        for _attempt in range(1 + is_stoppable):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(0)
        threading.Event().wait(60)
        return {}

    assert run(work, "--log", "orders", is_stoppable=is_stoppable) == 1
    assert lines(capsys)[-1]["error"] == "broken off by SIGINT: run it again, it goes on where it was"


def test_main_may_be_called_by_any_thread(capsys: pytest.CaptureFixture[str]) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run(lambda *_: {}, "--log", "orders", is_stoppable=True)))
    thread.start()
    thread.join(60)
    assert codes == [0]
    assert lines(capsys)[-1]["ok"] is True

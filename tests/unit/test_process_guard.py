"""A process whose event loop stands still ends, one that was stopped does not, and SIGTERM ends it in time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.errors import UsageError
from ledger.process_guard import EXIT_STALLED, ProcessGuard

_PROGRAM = """
import asyncio, ctypes, threading, time
from ledger.logs import configure_command_logs
from ledger.process_guard import ProcessGuard

configure_command_logs()

def stand_still():
    threading.Event().wait(60)

async def stand_away():
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        await asyncio.sleep(60)  # somebody who is away is waited for

async def main():
    with ProcessGuard("server", stall_s={stall_s}, stop_s={stop_s}) as guard:
        guard.ready()
        print("ready", flush=True)
        {body}
    {after}

asyncio.run(main())
"""


class Program:
    """A small server under the guard."""

    def __init__(self, body: str, *, stall_s: float = 0.0, stop_s: float | None = 1.0, after: str = "pass") -> None:
        code = _PROGRAM.format(body=body, stall_s=stall_s, stop_s=stop_s, after=after)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def ended(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for program in started:
        program.process.kill()
        program.process.communicate()


def test_a_loop_that_stands_still_ends_the_process_and_its_stack_is_told() -> None:
    code, errors = Program("stand_still()", stall_s=2.0).ended()
    assert code == EXIT_STALLED
    assert "the event loop has stood still for 1." in errors
    assert "server: the event loop has stood still for 2 s: this process ends now" in errors
    assert errors.count("in stand_still") == 2  # as it was noticed, and of all threads at the end


def test_a_loop_that_goes_on_is_left_alone() -> None:
    assert Program("time.sleep(2); await asyncio.sleep(1.5); time.sleep(2)", stall_s=3.0).ended()[0] == 0


def test_a_process_that_was_stopped_is_left_alone(programs: list[Program]) -> None:
    program = Program("await asyncio.sleep(4)", stall_s=2.0)
    programs.append(program)
    program.process.send_signal(signal.SIGSTOP)
    time.sleep(5)
    program.process.send_signal(signal.SIGCONT)
    assert program.ended() == (0, "")


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("await guard.unless_stopped(stand_away())", "pass"),
        ("stand_still()", "pass"),
        ("await guard.stopped.wait()", "await asyncio.to_thread(stand_still)"),  # the interpreter's own end
    ],
)
def test_sigterm_ends_it_whatever_it_waits_for(body: str, after: str) -> None:
    program = Program(body, after=after)
    program.process.terminate()
    code, errors = program.ended()
    assert code == 128 + signal.SIGTERM
    assert "server: SIGTERM came 1." in errors


def test_work_is_cancelled_by_the_first_signal() -> None:
    program = Program("assert await guard.unless_stopped(asyncio.sleep(60, 'done')) is None")
    program.process.terminate()
    assert program.ended() == (0, "")
    assert Program("assert await guard.unless_stopped(asyncio.sleep(0, 'done')) == 'done'").ended() == (0, "")


def test_a_signal_that_does_not_interrupt_the_wait_of_the_loop_is_heard() -> None:
    """It was taken by another thread; one that comes just before the loop begins to wait has the same effect."""
    kill = "lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)"
    body = f"import signal; threading.Timer(0.5, {kill}).start(); await guard.stopped.wait()"
    assert Program(body).ended() == (0, "")


def test_a_limit_below_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="--stall-s"):
        ProcessGuard("server", stall_s=-1)

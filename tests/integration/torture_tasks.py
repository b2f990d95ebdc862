"""Tasks of the torture test: every run notes itself in a file of its process, by one write each."""

from __future__ import annotations

import os
import time
from pathlib import Path

from broker.worker import TaskContext, task

RUNS_VARIABLE = "RSM_TEST_RUNS"


def _note(context: TaskContext, what: str) -> None:
    path = Path(os.environ[RUNS_VARIABLE]) / f"{os.getpid()}.runs"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{context.task_id} {context.assignment_id} {what}\n".encode())
    finally:
        os.close(file)


@task("work")
def work(context: TaskContext, payload: bytes) -> bytes:
    """Take as many milliseconds as the payload says."""
    _note(context, "begin")
    time.sleep(int(payload) / 1000)
    _note(context, "end")
    return payload


@task("fail")
def fail(context: TaskContext, payload: bytes) -> bytes:
    """Fail, always."""
    _note(context, "begin")
    raise ValueError(payload.decode())

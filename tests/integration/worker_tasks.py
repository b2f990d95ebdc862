"""Tasks of workers in tests: each payload names a file, to which a line is written when the run begins."""

from __future__ import annotations

import os
import time
from pathlib import Path

from broker.worker import TaskContext, task


def _begin(context: TaskContext, payload: bytes) -> Path:
    path = Path(payload.decode())
    with path.open("a") as file:
        file.write(f"{context.task_id} {context.assignment_id} {context.attempt} {os.getpid()}\n")
    return path


@task("note")
def note(context: TaskContext, payload: bytes) -> str:
    """Write the line, and that is all."""
    _begin(context, payload)
    return f"done by {os.getpid()}"


@task("wait")
def wait(context: TaskContext, payload: bytes) -> str:
    """Run until a file of this name with `.go` behind it is there, or until it is told to end."""
    path = _begin(context, payload)
    while not path.with_suffix(".go").exists():
        context.progress(0.5, "waiting")
        if context.cancelled.wait(0.05):
            context.check()
    return "went"


@task("hang")
def hang(context: TaskContext, payload: bytes) -> None:
    """Hear nothing."""
    _begin(context, payload)
    time.sleep(600)


@task("noop")
def noop(context: TaskContext, payload: bytes) -> None:
    """Do nothing."""

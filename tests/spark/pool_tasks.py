"""Tasks of pools in tests, shipped to executors by --py-files: every run notes itself in a file of its process."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from broker.worker import TaskContext, task


def _note(folder: str, context: TaskContext, what: str) -> None:
    file = os.open(Path(folder) / f"{os.getpid()}.runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{context.task_id} {time.monotonic_ns()} {what}\n".encode())
    finally:
        os.close(file)


@task("work")
def work(context: TaskContext, payload: bytes) -> str:
    """Take as many milliseconds as the payload says."""
    given = json.loads(payload)
    _note(given["folder"], context, "begin")
    time.sleep(given["ms"] / 1000)
    _note(given["folder"], context, "end")
    return f"{context.tenant} by {os.getpid()}"

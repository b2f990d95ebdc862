"""Functions that a test calls by name through the broker, and the worker's side of it."""

from __future__ import annotations

import os

from broker.client.functions import FUNCTION_TYPE, function_runner
from broker.worker import TaskContext, task

task(FUNCTION_TYPE)(function_runner(__name__))


def total(*numbers: int, times: int = 1) -> dict[str, int]:
    """Add up, in the worker's process."""
    return {"sum": sum(numbers) * times, "pid": os.getpid()}


def fail(text: str) -> None:
    """Raise."""
    raise ValueError(text)


@task("echo")
def echo(context: TaskContext, payload: bytes) -> bytes:
    """Return the payload and the attempt."""
    return payload + b" %d" % context.attempt

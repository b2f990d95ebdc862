"""What the worker of the dashboard's tests runs."""

from __future__ import annotations

import time

from broker.worker import TaskContext, task


@task("*")
def finish(context: TaskContext, payload: bytes) -> bytes:
    if context.type == "fail":
        raise ValueError(payload.decode())
    if context.type == "slow":
        context.progress(0.4, "half way, nearly")
        end = time.monotonic() + 60
        while not context.cancelled.wait(0.05) and time.monotonic() < end:
            pass
        context.check()
    return payload

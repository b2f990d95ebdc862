"""Tasks of a worker: `rsm worker run --tasks examples.greetings`."""

from __future__ import annotations

from broker.worker import TaskContext, task


@task("greet")
def greet(context: TaskContext, payload: bytes) -> str:
    """Greet whom the payload names."""
    return f"hello {payload.decode()}, from {context.tenant}"

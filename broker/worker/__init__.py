"""Workers: processes that run the broker's tasks, with functions, coroutines, processes or commands of the user's.

    from broker.worker import TaskContext, task

    @task("greet")
    def greet(context: TaskContext, payload: bytes) -> str:
        return f"hello {payload.decode()}"

run by `rsm worker run --tasks greetings`, or inside another program:

    async with Worker(WorkerSettings(worker_id="w1"), ThreadExecutor(load_registry("greetings")), brokers=[...]):
        ...
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from broker.worker.context import RunCancelledError, TaskContext, TaskError
from broker.worker.registry import Registry, load_registry, task

if TYPE_CHECKING:
    from broker.worker.app import run_worker
    from broker.worker.executors.coroutines import AsyncioExecutor
    from broker.worker.executors.processes import ProcessExecutor
    from broker.worker.executors.subprocesses import SubprocessExecutor
    from broker.worker.executors.threads import ThreadExecutor
    from broker.worker.settings import WorkerSettings
    from broker.worker.worker import Worker

__all__ = [
    "AsyncioExecutor",
    "ProcessExecutor",
    "Registry",
    "RunCancelledError",
    "SubprocessExecutor",
    "TaskContext",
    "TaskError",
    "ThreadExecutor",
    "Worker",
    "WorkerSettings",
    "load_registry",
    "run_worker",
    "task",
]

# Modules of tasks import this package in every child process: what they do not need is imported when it is asked for.
_LATER = {
    "AsyncioExecutor": "broker.worker.executors.coroutines",
    "ProcessExecutor": "broker.worker.executors.processes",
    "SubprocessExecutor": "broker.worker.executors.subprocesses",
    "ThreadExecutor": "broker.worker.executors.threads",
    "Worker": "broker.worker.worker",
    "WorkerSettings": "broker.worker.settings",
    "run_worker": "broker.worker.app",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

"""Executors by the names that options have for them."""

from __future__ import annotations

from broker.worker.executors.children import ChildLimits
from broker.worker.executors.coroutines import AsyncioExecutor
from broker.worker.executors.executor import Executor
from broker.worker.executors.processes import ProcessExecutor
from broker.worker.executors.subprocesses import SubprocessExecutor
from broker.worker.executors.threads import ThreadExecutor
from broker.worker.registry import Registry, load_registry
from ledger.errors import UsageError

EXECUTOR_KINDS = ("thread", "process", "subprocess", "asyncio")


def check_executor(kind: str, tasks: str, command: str) -> None:
    """Look at what is asked of `make_executor`, without importing anything of the user's.

    Raises:
        UsageError: It makes no sense.

    """
    if kind not in EXECUTOR_KINDS:
        raise UsageError(f"--executor {kind}: use one of {', '.join(EXECUTOR_KINDS)}")
    if (kind == "subprocess") != bool(command):
        raise UsageError("--command and --executor subprocess belong together: give both, or neither")
    if kind == "process" and not tasks:
        raise UsageError("--executor process needs --tasks: the modules that its child processes import")


def make_executor(kind: str, tasks: str, command: str, limits: ChildLimits) -> Executor:
    """Return an executor.

    Args:
        kind: One of `EXECUTOR_KINDS`.
        tasks: Modules of functions, as `load_registry` takes them; "" = none: it runs code pools only.
        command: Of a subprocess executor.
        limits: Of child processes.

    Raises:
        UsageError: They make no sense together, or the modules cannot be imported.

    """
    check_executor(kind, tasks, command)
    if kind == "subprocess":
        return SubprocessExecutor(command, cancel_s=limits.cancel_s)
    if kind == "process":
        return ProcessExecutor(tasks, limits=limits)
    registry = load_registry(tasks) if tasks else Registry()
    return AsyncioExecutor(registry) if kind == "asyncio" else ThreadExecutor(registry)

"""Runs functions in long-lived child processes: code that computes, blocks, leaks or crashes harms nothing but itself.

A run that takes too long is killed, and so is one that was cancelled and does not end. Each run costs a message each
way through a socket, some 100 µs of CPU in all.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.machine.worker_messages import AssignedRun
from broker.worker.core.effects import StopReason
from broker.worker.executors.child_messages import SetUp
from broker.worker.executors.children import ChildLimits, Children
from broker.worker.executors.executor import RunListener
from ledger.errors import UsageError


class ProcessExecutor:
    """See the module.

    Args:
        tasks: The functions, as `broker.worker.registry.load_registry` takes them; each child imports them.
        limits: How the children are treated.

    Attributes:
        is_killable: They are.

    """

    is_killable = True

    def __init__(self, tasks: str, *, limits: ChildLimits | None = None) -> None:
        self._tasks = tasks
        self._limits = limits if limits is not None else ChildLimits()
        self._children: Children | None = None

    @property
    def types(self) -> Sequence[str] | None:
        """Task types that the children have functions for; None before they have said so, and if one runs all."""
        if self._children is None or "*" in self._children.types:
            return None
        return self._children.types

    @property
    def pids(self) -> list[int]:
        """Process ids of the children."""
        return self._children.pids if self._children is not None else []

    async def start(self, listener: RunListener, threads_max: int) -> None:
        """Start a first child, which imports the functions; see `Executor`."""
        set_up = SetUp(self._tasks, memory_bytes_max=self._limits.memory_bytes_max)
        self._children = Children(set_up, listener, threads_max, self._limits)
        ready = await self._children.first_ready()
        if ready.error:
            await self._children.close()
            raise UsageError(f"the child process that runs tasks cannot start: {ready.error}")

    def run(self, runs: Sequence[AssignedRun]) -> None:
        """Begin runs; see `Executor`."""
        assert self._children is not None
        self._children.run(runs)

    def stop(self, assignment_id: int, reason: StopReason) -> None:
        """Ask a run to end, and kill its process if it does not; see `Executor`."""
        assert self._children is not None
        self._children.stop(assignment_id, reason)

    async def close(self) -> None:
        """Kill the children; see `Executor`."""
        if self._children is not None:
            await self._children.close()

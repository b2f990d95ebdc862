"""Interface of an executor, as a worker needs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.machine.commands import EndedRun, ProgressOf
from broker.machine.worker_messages import AssignedRun
from broker.worker.core.effects import StopReason


class RunListener(Protocol):
    """Hears of runs, on the loop. Nothing of it may raise."""

    def on_ended(self, ends: Sequence[EndedRun]) -> None:
        """Take ends: one for each run that was started, once."""
        ...

    def on_progress(self, progress: ProgressOf) -> None:
        """Take a sign of life."""
        ...

    def on_exhausted(self, why: str) -> None:
        """Hear that the executor has lost too much of what it runs tasks with, and should get no more."""
        ...


class Executor(Protocol):
    """Runs tasks. Used from one event loop.

    Attributes:
        is_killable: Whether a run can be stopped against its will.
        types: Task types that it can run, if it knows; None = whatever comes.

    """

    is_killable: bool

    @property
    def types(self) -> Sequence[str] | None:
        """Task types that it can run, if it knows; None = whatever comes."""
        ...

    async def start(self, listener: RunListener, threads_max: int) -> None:
        """Get ready.

        Args:
            listener: Hears of the runs.
            threads_max: Runs at once.

        Raises:
            UsageError: The user's functions cannot be used.

        """
        ...

    def run(self, runs: Sequence[AssignedRun]) -> None:
        """Begin runs; more than `threads_max` wait for their turn."""
        ...

    def stop(self, assignment_id: int, reason: StopReason) -> None:
        """Ask a run to end, and force it where that is possible; its end is told as any other."""
        ...

    async def close(self) -> None:
        """End: what still runs is killed, or left alone where that is not possible. No end is told any more."""
        ...

"""What the desk needs of a worker's stream; `broker.grpc.served_worker` has the real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.core.commands import HeldRun
from broker.core.worker_messages import AssignedRun, WorkerWelcome

__all__ = ["WorkerLink"]


class WorkerLink(Protocol):
    """One stream of one worker. Nothing blocks: what is handed over leaves as soon as the stream takes it."""

    def welcome(self, welcome: WorkerWelcome) -> None:
        """Serve it."""
        ...

    def assign(self, run: AssignedRun) -> None:
        """Hand over a run."""
        ...

    def cancel(self, run: HeldRun) -> None:
        """Ask it to end a run."""
        ...

    def acknowledge(self, assignment_ids: Sequence[int]) -> None:
        """Say that these ends are in the log."""
        ...

    def change_work(self, size: int) -> None:
        """Take note that so much more of what it said, or less, is on its way into the log."""
        ...

    def pong(self, number: int) -> None:
        """Answer its ping."""
        ...

    def end(self, *, leader: str = "", refused: str = "") -> None:
        """End the stream, in words or without; nothing else is handed over. May be called again."""
        ...

"""Port to a worker's stream, as the registry needs it; `broker.server.served_worker` has the real one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.machine.commands import HeldRun
from broker.machine.worker_messages import AssignedRun, WorkerWelcome


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

    def pong(self, number: int) -> None: ...

    def end(self, *, leader: str = "", refused: str = "", is_replaced: bool = False) -> None:
        """End the stream, in words or without; nothing else is handed over. May be called again.

        Args:
            leader: "host:port" of who leads instead.
            refused: Why the worker is not served.
            is_replaced: It is not served because another process works by its id.

        """
        ...

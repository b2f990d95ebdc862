"""Ends and signs of life on their way from the user's threads to the worker's loop: one wake-up for all that wait."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence

from broker.machine.commands import EndedRun, ProgressOf


class RunReports:
    """Gathers; every method but `collect` and `close` may be called from any thread.

    Args:
        on_ended: Hears of ends, on the loop.
        on_progress: Hears of the newest sign of life of each run, on the loop.

    """

    def __init__(
        self, on_ended: Callable[[Sequence[EndedRun]], None], on_progress: Callable[[ProgressOf], None]
    ) -> None:
        self._on_ended = on_ended
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._ended: deque[EndedRun] = deque()
        self._progress: deque[ProgressOf] = deque()
        self._is_notified = False
        self._is_closed = False

    def end(self, end: EndedRun) -> None:
        self._ended.append(end)
        # Set before the loop is woken and cleared before it looks: what is appended meanwhile is seen or notified.
        if not self._is_notified:
            self._notify()

    def progress(self, task_id: int, assignment_id: int, fraction: float, message: str) -> None:
        """Report a sign of life."""
        self._progress.append(ProgressOf(task_id, assignment_id, fraction, message))
        if not self._is_notified:
            self._notify()

    def collect(self) -> None:
        """Hand on what has gathered."""
        self._is_notified = False
        if self._is_closed:
            return
        newest: dict[int, ProgressOf] = {}
        while self._progress:
            one = self._progress.popleft()
            newest[one.assignment_id] = one
        for one in newest.values():
            self._on_progress(one)
        ends: list[EndedRun] = []
        while self._ended:
            ends.append(self._ended.popleft())
        if ends:
            self._on_ended(ends)

    def close(self) -> None:
        """Hand nothing on any more."""
        self._is_closed = True

    def _notify(self) -> None:
        self._is_notified = True
        # The loop is closed: the worker is gone, and nobody wants to hear of it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.collect)

"""Notices that somebody has been waiting for answers for a while."""

from __future__ import annotations

import asyncio
from typing import Protocol, Self


class Wakeable(Protocol):
    """Queue on which somebody waits for answers."""

    def wake(self) -> None:
        """Have the wait end, with nothing if nothing has come."""
        ...


class SilenceTimer:
    """Wakes a queue every `interval_s` while somebody waits for its answers.

    What has come by then is handled first, so that only those count as silent that are: whoever was busy for longer
    than the interval finds the answers of that time in the queue.
    """

    def __init__(self, queue: Wakeable, interval_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue = queue
        self._interval_s = interval_s
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False

    def __enter__(self) -> Self:
        """Return the timer; it runs from the first `start` on."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        if self._timer is not None:
            self._timer.cancel()

    def start(self) -> None:
        """Let it run, before a wait, unless it does."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._interval_s, self._tick)

    def take(self) -> bool:
        """Return whether the interval has passed since the last call that returned True."""
        is_over, self._is_over = self._is_over, False
        return is_over

    def _tick(self) -> None:
        self._timer = None
        self._is_over = True
        self._queue.wake()

"""Work beside an event loop that shares the interpreter with it: short slices, and a pause after each."""

from __future__ import annotations

import time

_PAUSE_S_MIN = 0.000_05


class Pace:
    """Called between small steps of work; sleeps a little once a slice is used up.

    A thread that only computes gives the interpreter away after 5 ms, and an event loop that needs it every
    millisecond is slowed down five times. One that sleeps every millisecond costs it a millisecond at most.

    Args:
        slice_s: Work between two pauses.
        share: Of one core, at most: 1 = pauses are as short as they can be.

    """

    def __init__(self, slice_s: float = 0.001, share: float = 1.0) -> None:
        self._slice_s = slice_s
        self._rest = 1.0 / share - 1.0
        self._began_s = time.perf_counter()

    def __call__(self) -> None:
        """Pause if the slice is used up. Never on an event loop: it blocks the thread."""
        worked_s = time.perf_counter() - self._began_s
        if worked_s >= self._slice_s:
            time.sleep(max(_PAUSE_S_MIN, worked_s * self._rest))
            self._began_s = time.perf_counter()


def no_pace() -> None:
    """Go on at once: for processes that have nothing else to do."""

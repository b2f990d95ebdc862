"""Keeps the garbage collector's pauses short in a process that holds a large state.

A full collection walks through every entry of every list, set and queue, and of dicts unless what they hold is none of
its business: tens of milliseconds at a hundred thousand tasks, in which nothing is confirmed, and in the end another
replica is elected. What has been walked through for long is put out of the collector's sight. It is still freed when
nothing refers to it any more: only cycles among it stay, so this is done seldom: after a boot, and when a state
has grown.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_OLDEST = 2
_PAUSE_S_MAX = 0.005
_BETWEEN_S = 60.0


class ShortPauses:
    """Listener to `gc.callbacks`, which keeps pauses of the collector short.

    Args:
        cpu_s: Seconds that this thread has computed: a pause is none of the collector's while others have the core.
        clock_s: Monotonic seconds.
        freeze: Puts everything that is there out of the collector's sight.

    Attributes:
        freeze_count: How often that was done.

    """

    def __init__(
        self,
        cpu_s: Callable[[], float] = time.thread_time,
        clock_s: Callable[[], float] = time.monotonic,
        freeze: Callable[[], None] = gc.freeze,
    ) -> None:
        self._cpu_s = cpu_s
        self._clock_s = clock_s
        self._freeze = freeze
        self._began_s = 0.0
        self._not_before_s = clock_s()
        self.freeze_count = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Hear of the begin or the end of a collection."""
        if info["generation"] != _OLDEST:
            return
        now_s = self._cpu_s()
        if phase == "start":
            self._began_s = now_s
        elif now_s - self._began_s > _PAUSE_S_MAX and self._clock_s() >= self._not_before_s:
            self._not_before_s = self._clock_s() + _BETWEEN_S
            self.freeze_count += 1
            self._freeze()


@contextmanager
def short_pauses() -> Iterator[None]:
    """Keep pauses short while the block runs, for the whole process; what there is by now is out of sight at once."""
    gc.collect()
    gc.freeze()
    watching = ShortPauses()
    gc.callbacks.append(watching)
    try:
        yield
    finally:
        gc.callbacks.remove(watching)

"""Time limits of runs: one timer of the loop for all of them."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

_STALE_MAX = 256
"""Entries of runs that are over, beyond twice those that are not, before they are swept out."""


class RunTimers:
    """Calls back once for each key whose time is up. Used on the loop.

    Args:
        on_over: Called with the key.

    """

    def __init__(self, on_over: Callable[[int], None]) -> None:
        self._on_over = on_over
        self._loop = asyncio.get_running_loop()
        # Key -> its time. The heap may hold older entries of a key: only the one with this time counts.
        self._at_s: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, key: int, after_s: float) -> None:
        """Call back for this key after so long, instead of what was said of it before."""
        at_s = self._loop.time() + after_s
        self._at_s[key] = at_s
        heapq.heappush(self._heap, (at_s, key))
        if self._timer is None or self._heap[0][0] < self._timer.when():
            self._arm()

    def forget(self, key: int) -> None:
        """Do not call back for this key."""
        self._at_s.pop(key, None)
        if len(self._heap) > 2 * len(self._at_s) + _STALE_MAX:
            self._heap = [entry for entry in self._heap if self._at_s.get(entry[1]) == entry[0]]
            heapq.heapify(self._heap)

    def close(self) -> None:
        """Call back no more."""
        self._at_s.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._heap[0][0], self._on_timer) if self._heap else None

    def _on_timer(self) -> None:
        self._timer = None
        now_s = self._loop.time()
        while self._heap and self._heap[0][0] <= now_s:
            at_s, key = heapq.heappop(self._heap)
            if self._at_s.get(key) == at_s:
                del self._at_s[key]
                self._on_over(key)
        if self._timer is None:
            self._arm()

"""Fencing reads whose answers wait: the bookie has promised a writer that nobody hears of a fence before a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ledger.core.lease_promises import LeasePromises

_LOOK_S_MIN: Final = 0.001
"""A timer may fire a little early by another clock."""


class FenceWaits:
    """Answers to fences, which wait for promises to be over; see `ledger.core.lease_promises`.

    Args:
        promises: Of the bookie.
        clock: Seconds; never goes back. Not the event loop's, which may stand still while a wake-up is handled: a
            promise would begin before it was asked for.
        count_max: More than this do not wait.

    Attributes:
        waited_count: Answers that have waited.

    """

    def __init__(self, promises: LeasePromises, clock: Callable[[], float], *, count_max: int) -> None:
        self.promises = promises
        self.clock = clock
        self.waited_count = 0
        self._count_max = count_max
        # Each wait's timer.
        self._timers: dict[object, asyncio.TimerHandle] = {}

    def is_over(self, ledger_id: int) -> bool:
        """Return whether a fence of this ledger may be told now."""
        return self.promises.wait_s(ledger_id, self.clock()) <= 0

    def wait(self, ledger_id: int, answer: Callable[[], None]) -> bool:
        """Have a fence told when that may be; False if too many wait."""
        if len(self._timers) >= self._count_max:
            return False
        self.waited_count += 1
        self._look(object(), ledger_id, answer)
        return True

    def _look(self, wait: object, ledger_id: int, answer: Callable[[], None]) -> None:
        self._timers.pop(wait, None)
        wait_s = self.promises.wait_s(ledger_id, self.clock())
        if wait_s <= 0:
            answer()
            return
        loop = asyncio.get_running_loop()
        self._timers[wait] = loop.call_later(max(wait_s, _LOOK_S_MIN), self._look, wait, ledger_id, answer)

    def close(self) -> None:
        """Tell nobody any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

"""Reaction of a replica to memory that is nearly used up: it warns, and gives freed memory back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rsm_spark.runtime.memory import MARK, MemoryGauge, return_free_memory

_LOGGER = logging.getLogger(__name__)
_ALARM = "memory"
_OTHERS_ALARM = "memory_of_others"
_TRIM_S = 5.0
_MIB = 1024 * 1024


class MemoryWatch:
    """See the module. Looked at with every entry, on leader and follower; a leader with nothing to do writes some too.

    Args:
        gauge: Of this process.
        alarms: Of the replica.
        run_blocking: Runs a function elsewhere.

    """

    def __init__(
        self,
        gauge: MemoryGauge,
        alarms: dict[str, str],
        run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self.gauge = gauge
        self._alarms = alarms
        self._run_blocking = run_blocking
        self._trimmed_s = float("-inf")
        self._trimming: asyncio.Task[None] | None = None
        self._others: list[str] = []

    @property
    def is_full(self) -> bool:
        """True if no command that makes the state grow is to be taken: no room here, or on a replica that follows."""
        return self.gauge.is_full or bool(self._others)

    def heed(self, others: Sequence[str]) -> None:
        """Take note of the other replicas whose memory is nearly used up."""
        names = sorted(others)
        if names == self._others:
            return
        self._others = names
        if not names:
            self._alarms.pop(_OTHERS_ALARM, None)
            _LOGGER.warning("memory: no other replica is near its limit any more")
            return
        text = (
            f"memory of {', '.join(names)} is nearly used up: commands that make the state grow are refused, for every "
            "replica holds the whole state. Give all replicas the same memory, or keep less"
        )
        _LOGGER.warning("memory: %s", text)
        self._alarms[_OTHERS_ALARM] = text

    def look(self) -> None:
        """Look at the memory; say what is to be said."""
        was_full = self.gauge.is_full
        use = self.gauge.look()
        if not self.gauge.is_full:
            if was_full:
                self._alarms.pop(_ALARM, None)
                _LOGGER.warning(
                    "memory: %d of %d MiB are used: all is taken again", use.used // _MIB, use.limit // _MIB
                )
            return
        text = (
            f"{use.used // _MIB:,} of {use.limit // _MIB:,} MiB of memory are used: above {MARK:.0%} a leader takes "
            "only commands that make the state smaller. Give it more memory, or keep less"
        )
        if not was_full:
            _LOGGER.warning("memory: %s", text)
        self._alarms[_ALARM] = text
        self._give_back()

    def _give_back(self) -> None:
        loop = asyncio.get_running_loop()
        if self._trimming is None and loop.time() - self._trimmed_s >= _TRIM_S:
            self._trimmed_s = loop.time()
            self._trimming = loop.create_task(self._trim())

    async def _trim(self) -> None:
        try:
            await self._run_blocking(return_free_memory)
        finally:
            self._trimming = None

"""A leader tells followers what it has confirmed: the asyncio shell around `rsm_spark.core.confirmed_tail`.

The leader never waits for a follower. Whoever asks waits here; what it is told is made when it asks.
"""

from __future__ import annotations

import asyncio

from rsm_spark.core.confirmed_tail import ConfirmedTail, TailStatus, ToldEntries
from rsm_spark.core.position import LogPosition

TELL_S_MAX = 0.75
"""A question is answered by then; an idle leader writes an entry more often."""


class EntryTelling:
    """Confirmed entries of one leadership, and those who wait for the next.

    Args:
        leader_epoch: Of the leadership.
        after: Last confirmed entry before its first one; None = the log is empty.

    """

    def __init__(self, leader_epoch: int, after: LogPosition | None) -> None:
        self._leader_epoch = leader_epoch
        self._tail = ConfirmedTail(after)
        self._waiting: list[asyncio.Future[None]] = []
        self._is_over = False

    def add(self, position: LogPosition, payload: bytes) -> None:
        """Tell the next entry, which the writer has just counted as confirmed."""
        self._tail.add(position, payload)
        self._wake()

    def end(self) -> None:
        """Tell nothing more."""
        self._is_over = True
        self._wake()

    async def after(self, position: LogPosition) -> ToldEntries:
        """Return what follows an entry; wait for a while if nothing does yet."""
        found = self._tail.after(position)
        if found == () and not self._is_over:
            loop = asyncio.get_running_loop()
            grown: asyncio.Future[None] = loop.create_future()
            self._waiting.append(grown)
            timer = loop.call_later(TELL_S_MAX, _resolve, grown)
            try:
                await grown
            finally:
                timer.cancel()
                if grown in self._waiting:
                    self._waiting.remove(grown)
            found = self._tail.after(position)
        if self._is_over:
            return ToldEntries(TailStatus.NOT_LEADER)
        if found is None:
            return ToldEntries(TailStatus.NOT_HELD)
        return ToldEntries(TailStatus.TOLD, self._leader_epoch, found)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for grown in waiting:
            _resolve(grown)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

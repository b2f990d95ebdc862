"""The futures that a writer's callers hold: one per call of append, however many entries it has."""

from __future__ import annotations

import asyncio
from collections import deque

from ledger.errors import LedgerError

__all__ = ["confirm_appends", "fail_append", "wake_all"]


def confirm_appends(futures: deque[tuple[int, asyncio.Future[int]]], last_entry_id: int) -> None:
    """Resolve, and take off the front, the appends whose last entry is at or below `last_entry_id`."""
    while futures and futures[0][0] <= last_entry_id:
        entry_id, future = futures.popleft()
        if not future.done():
            future.set_result(entry_id)


def fail_append(future: asyncio.Future[int], error: LedgerError) -> None:
    """Fail an append that is still waiting."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # the handle keeps the failure: a future that nobody awaits is no news


def wake_all(waiters: list[asyncio.Future[None]]) -> None:
    """Resolve those that still wait, and empty the list: who has to wait on adds itself again."""
    woken = list(waiters)
    waiters.clear()
    for waiter in woken:
        if not waiter.done():
            waiter.set_result(None)

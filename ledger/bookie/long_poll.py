"""Reads that wait until a ledger's LAC moves: answered by an add, an explicit LAC, a fence, or their timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ledger.storage.bookie_ledger import BookieLedger
from ledger.wire.packets import ReadRequest

if TYPE_CHECKING:
    # A connection holds its long polls, and each one its connection: two halves of one list.
    from ledger.bookie.responder import Responder


_TIMEOUT_MS_MAX = 60_000
"""A client that asks for longer asks again; so a vanished one is forgotten."""


class Waiter:
    """One long poll. Invariant: in its ledger's and its connection's lists until it is answered or dropped."""

    __slots__ = ("connection", "ledger", "request", "timer")

    def __init__(self, connection: Responder, ledger: BookieLedger, request: ReadRequest) -> None:
        self.connection = connection
        self.ledger = ledger
        self.request = request
        self.timer: asyncio.TimerHandle | None = None


class LongPolls:
    """All long polls of a bookie.

    Args:
        answer: Answers a waiter; the flag says whether the LAC moved beyond what it knew.
        count_max: More than this are refused.

    """

    def __init__(self, answer: Callable[[Waiter, bool], None], *, count_max: int) -> None:
        self._answer = answer
        self._count_max = count_max
        self.count = 0

    def has_room(self) -> bool:
        """Return whether one more long poll may wait."""
        return self.count < self._count_max

    def wait(self, connection: Responder, ledger: BookieLedger, request: ReadRequest) -> None:
        """Let a request wait; `previous_lac` is at or above the ledger's LAC."""
        waiter = Waiter(connection, ledger, request)
        timeout_ms = min(max(0, request.timeout_ms or 0), _TIMEOUT_MS_MAX)
        loop = asyncio.get_running_loop()
        waiter.timer = loop.call_later(timeout_ms / 1000, self._finish, waiter)
        ledger.waiters.append(waiter)
        connection.waiters[waiter] = None
        self.count += 1

    def wake(self, ledger: BookieLedger, *, all_of_them: bool = False) -> None:
        """Answer those whose LAC was passed; a fence answers all."""
        for waiter in list(ledger.waiters):
            assert isinstance(waiter, Waiter)
            previous = waiter.request.previous_lac
            if all_of_them or (previous is not None and ledger.last_add_confirmed > previous):
                self._finish(waiter)

    def _finish(self, waiter: Waiter) -> None:
        self.drop(waiter)
        previous = waiter.request.previous_lac
        self._answer(waiter, previous is not None and waiter.ledger.last_add_confirmed > previous)

    def drop(self, waiter: Waiter) -> None:
        """Forget a waiter without an answer."""
        if waiter.timer is not None:
            waiter.timer.cancel()
            waiter.timer = None
            waiter.ledger.waiters.remove(waiter)
            waiter.connection.waiters.pop(waiter, None)
            self.count -= 1

"""Requests wait for their turn: the event loop's side of `ledger.http.turns`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ledger.http.problems import HttpProblem, retry_after
from ledger.http.turns import FairTurns, Work


class _Turn:
    """Waits for one's turn, and has it while the block runs; `Work.cost_s` may be set to what was seen.

    Args:
        queue: Where it waits.
        work: What is done in it.

    """

    __slots__ = ("_estimate_s", "_queue", "_work")

    def __init__(self, queue: TurnQueue, work: Work) -> None:
        self._queue = queue
        self._work = work
        self._estimate_s = work.cost_s

    async def __aenter__(self) -> Work:
        """Wait for it; raises what `TurnQueue.begin` raises."""
        await self._queue.begin(self._work)
        return self._work

    async def __aexit__(self, *_: object) -> None:
        work, seen_s = self._work, self._work.cost_s
        work.cost_s = self._estimate_s
        self._queue.end(work, None if seen_s == self._estimate_s else seen_s)


class TurnQueue:
    """See the module. For one event loop.

    Args:
        bytes_max: Of bodies that wait.
        weight_of: See `FairTurns`.

    """

    def __init__(self, bytes_max: int, weight_of: Callable[[str], float] = lambda _: 1.0) -> None:
        self._turns = FairTurns(bytes_max, weight_of)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Number of requests that wait for their turn."""
        return self._turns.waiting

    def turn(self, key: str, cost_s: float, size: int = 0) -> _Turn:
        """Return a turn to be had with `async with`.

        Args:
            key: Whose: a tenant; "" = an operator's.
            cost_s: Estimated seconds of the event loop.
            size: Bytes that are held meanwhile.

        """
        return _Turn(self, Work(key, cost_s, size))

    async def begin(self, work: Work) -> None:
        """Wait for a turn.

        Raises:
            Problem: 429: too much waits already.

        """
        loop, turns = asyncio.get_running_loop(), self._turns
        if not turns.has_room(work.key, work.bytes):
            raise HttpProblem(
                429, "too-much-at-once", "the waiting requests of this tenant fill the room of one tenant: send less "
                "at once", headers=retry_after(1),
            )  # fmt: skip
        if not turns.ask(work, loop.time()):
            await self._wait(work, loop)

    def end(self, work: Work, cost_s: float | None) -> None:
        """End a turn; `cost_s`: what it has cost after all, if that is not what was estimated."""
        self._turns.end(work, asyncio.get_running_loop().time(), cost_s=cost_s)
        self._go_on()

    async def _wait(self, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        woken: asyncio.Future[None] = loop.create_future()
        work.ticket = woken
        self._plan(loop)
        try:
            await woken
        except asyncio.CancelledError:
            # It stays in its line: when its turn comes, it is over at once.
            if woken.done() and not woken.cancelled():
                self._turns.end(work, loop.time(), cost_s=0.0)
                self._go_on()
            raise

    def _go_on(self) -> None:
        """Wake those whose turn it is."""
        if not self._turns.waiting:
            return
        loop = asyncio.get_running_loop()
        while taken := self._turns.next(loop.time()):
            gone = [work for work in taken if not _wake(work)]
            for work in gone:
                self._turns.end(work, loop.time(), cost_s=0.0)
            if not gone:
                break
        self._plan(loop)

    def _plan(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at_s = self._turns.next_s(loop.time())
        if at_s is not None:
            self._timer = loop.call_at(at_s + 0.001, self._go_on)


def _wake(work: Work) -> bool:
    """Wake who waits; return whether anybody does."""
    woken = work.ticket
    assert isinstance(woken, asyncio.Future)
    if woken.done():
        return False
    woken.set_result(None)
    return True

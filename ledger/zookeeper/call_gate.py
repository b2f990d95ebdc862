"""Bounds on calls to ZooKeeper: how many may be on their way at once, and how many may wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class CallGate:
    """Lets calls through while it is open, a bounded number at once; the others wait in order.

    Args:
        loop: The event loop that all calls are made on.
        let_through_max: Calls that have been let through and have not ended.
        waiting_max: Calls that wait; one more is refused at once.

    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, let_through_max: int, waiting_max: int) -> None:
        self._loop = loop
        self._let_through_max = let_through_max
        self._waiting_max = waiting_max
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_open = False
        self._let_through = 0

    @property
    def let_through(self) -> int:
        """Calls that have been let through and have not ended."""
        return self._let_through

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def enter(self, refusal: Callable[[], Exception]) -> None:
        """Wait until the call may be made; `leave` must follow.

        Args:
            refusal: Makes what is raised when too many wait already.

        """
        if self._is_open and self._let_through < self._let_through_max and not self._waiting:
            self._let_through += 1
            return
        if len(self._waiting) >= self._waiting_max:
            raise refusal()
        place = self._loop.create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self.leave()  # It was let through at the same moment.
            raise
        finally:
            if not place.done() or place.cancelled():
                self._forget(place)

    def leave(self) -> None:
        """Take note that a call that was let through has ended."""
        self._let_through -= 1
        self._let_in()

    def open(self) -> None:
        """Let calls through from now on."""
        self._is_open = True
        self._let_in()

    def shut(self) -> None:
        """Let no further call through."""
        self._is_open = False

    def restart(self) -> None:
        """Shut, and forget about the calls that were let through: nobody will say that they ended."""
        self.shut()
        self._let_through = 0

    def refuse_all(self, error: Callable[[], Exception]) -> None:
        """Shut, and fail whatever waits."""
        self.shut()
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_exception(error())

    def _let_in(self) -> None:
        while self._is_open and self._waiting and self._let_through < self._let_through_max:
            place = self._waiting.popleft()
            if not place.done():
                self._let_through += 1
                place.set_result(None)

    def _forget(self, place: asyncio.Future[None]) -> None:
        if place in self._waiting:
            self._waiting.remove(place)

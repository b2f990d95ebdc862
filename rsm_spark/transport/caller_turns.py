"""Turns of callers at work that keeps the event loop busy: one at a time, callers in turns, all else in between."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CallerTurns:
    """See the module. Who waits with much waits behind its own: others have every second turn."""

    def __init__(self) -> None:
        self._is_taken = False
        # Callers that wait, the one whose turn is next first; no queue is empty.
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def of(self, owner: str) -> AsyncIterator[None]:
        """Have a turn."""
        if self._is_taken:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(owner, deque()).append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._pass_on()
                raise
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn to the next caller; it begins when all that is ready now has run."""
        while self._waiting:
            owner, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            if turns:
                self._waiting.move_to_end(owner)
            else:
                del self._waiting[owner]
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False

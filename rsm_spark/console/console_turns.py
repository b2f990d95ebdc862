"""Turns of callers at what costs others something: few at once, and of one caller fewer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from ledger.http.problems import HttpProblem, retry_after


class ConsoleTurns:
    """See the module.

    Args:
        what: That is done, in the plural, for messages: "looks into logs".
        at_once: So many at once; the next ones wait.
        of_caller: So many of one caller, under way or waiting; the next ones are refused.
        answer_s: Longest time, waiting and all.

    """

    def __init__(self, what: str, *, at_once: int, of_caller: int, answer_s: float) -> None:
        self._what = what
        self._of_caller = of_caller
        self._answer_s = answer_s
        self._turns = asyncio.Semaphore(at_once)
        self._running: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Enter when it is the caller's turn.

        Args:
            owner: Name of the caller.

        Raises:
            HttpProblem: 429: the caller has as many under way as it may.
            TimeoutError: It takes too long.

        """
        if self._running.get(owner, 0) >= self._of_caller:
            said = f"{self._of_caller} {self._what} are under way for you: wait for them"
            raise HttpProblem(429, "too-many-at-once", said, headers=retry_after(1))
        self._running[owner] = self._running.get(owner, 0) + 1
        try:
            async with asyncio.timeout(self._answer_s), self._turns:
                yield
        finally:
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]

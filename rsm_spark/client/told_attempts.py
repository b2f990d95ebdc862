"""Attempts to be told of changes without end: by which replica next, after which pause, and when to give up."""

from __future__ import annotations

import asyncio

from rsm_spark.client.watched_replicas import WatchedReplicas
from rsm_spark.errors import AccessDeniedError, ConnectionLostError, NoLeaderError

_PAUSE_FIRST_S = 0.05
_PAUSE_GROWTH = 1.6
_PAUSE_MAX_S = 1.0
_DENIED_S_MAX = 5.0
"""Replicas read tokens and roles anew within seconds: one that knows less than others may refuse for as long."""


class ToldAttempts:
    """Counts what one watch or feed tries.

    Args:
        replicas: Where to look for one.
        log: Name of the log.
        patience_s: Give up when no replica has said anything for so long; None = never.

    Attributes:
        number: Of the attempt: another replica is picked for each.

    """

    def __init__(self, replicas: WatchedReplicas, log: str, patience_s: float | None) -> None:
        self.number = 0
        self._replicas = replicas
        self._log = log
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._pause_s = _PAUSE_FIRST_S
        self._trouble = ""
        self._heard_at = self._loop.time()
        self._denied_at: float | None = None

    async def pick(self) -> str | None:
        """Return the address of the replica to try; None = none is known now."""
        return await self._replicas.pick(self.number)

    def heard(self, *, is_of_use: bool = True) -> None:
        """Take note of a message; after one that is of no use the next pause is as long as it would have been."""
        self.number, self._heard_at, self._denied_at = 0, self._loop.time(), None
        if is_of_use:
            self._pause_s = _PAUSE_FIRST_S

    def failed(self, error: ConnectionLostError) -> None:
        """Take note of how an attempt ended.

        Raises:
            AccessDeniedError: Replicas have refused this caller for some seconds, and none has told it anything.

        """
        self._trouble = str(error)
        if not isinstance(error, AccessDeniedError):
            return
        if self._denied_at is None:
            self._denied_at = self._loop.time()
        elif self._loop.time() - self._denied_at > _DENIED_S_MAX:
            raise error

    async def pause(self) -> None:
        """Wait before the next attempt.

        Raises:
            NoLeaderError: No replica has said anything for `patience_s`.

        """
        if self._patience_s is not None and self._loop.time() - self._heard_at > self._patience_s:
            why = self._trouble or self._replicas.trouble or "no replica is known"
            raise NoLeaderError(f"log {self._log}: no replica tells of changes ({why})")
        self.number += 1
        await asyncio.sleep(self._pause_s)
        self._pause_s = min(self._pause_s * _PAUSE_GROWTH, _PAUSE_MAX_S)

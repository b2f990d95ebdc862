"""Keeper of a port's connections: looks after each of them once a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

_LOOK_S: Final = 1.0
_PAUSE_S: Final = 2.0


class KeptConnection(Protocol):
    """A connection that has time limits."""

    def awake(self, paused_s: float) -> None:
        """Take note that this process stood still: what was said meanwhile is not read yet."""
        ...

    def look(self, now_s: float) -> None:
        """Cut it if it is late."""
        ...


class ConnectionKeeper:
    """See the module.

    Args:
        connections: Returns the open ones.

    """

    def __init__(self, connections: Callable[[], Iterable[KeptConnection]]) -> None:
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        self._looked_s = 0.0

    def start(self) -> None:
        """Begin; on the running loop."""
        self._looked_s = asyncio.get_running_loop().time()
        self._look()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        paused_s, self._looked_s = now_s - self._looked_s, now_s
        for connection in list(self._connections()):
            if paused_s > _PAUSE_S:
                connection.awake(paused_s)
            connection.look(now_s)
        self._timer = loop.call_later(_LOOK_S, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

"""Watches on the metadata store for a loop that looks now and then anyway, and sooner when something has changed."""

from __future__ import annotations

import asyncio
import contextlib

from ledger.ports import Watcher


class Hints:
    """Leaves one watch a path at a time, however often the path is read."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        # Paths with a watch that has not fired yet.
        self._watched: dict[str, None] = {}

    def on(self, path: str) -> Watcher | None:
        """Return the watch to read a path with; None if one is left there already."""
        if path in self._watched:
            return None
        self._watched[path] = None

        def fire() -> None:
            self._watched.pop(path, None)
            self._changed.set()

        return fire

    def forget(self, path: str) -> None:
        """Take note that reading a path failed and left no watch."""
        self._watched.pop(path, None)

    def forget_all(self) -> None:
        """Take note that reads have failed, so that nobody knows which watches were left."""
        self._watched.clear()

    def wake(self) -> None:
        """End the present or the next `wait`."""
        self._changed.set()

    async def wait(self, limit_s: float) -> None:
        """Wait for a change since the last call, at most `limit_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._changed.wait()
        self._changed.clear()

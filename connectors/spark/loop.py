"""An event loop on a thread of its own, for callers that block: Spark's driver hooks and tasks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["LoopThread"]

_T = TypeVar("_T")


class LoopThread:
    """Runs coroutines from any thread. The thread is a daemon: a process that ends does not wait for it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine and wait for its result."""
        return self.start(work).result()

    def start(self, work: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
        """Start a coroutine; its result can be waited for."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[[], object]) -> None:
        """Have a function called soon on the thread."""
        self._loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        """End the thread; what still runs on it is abandoned."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

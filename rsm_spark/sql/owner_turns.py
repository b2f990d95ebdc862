"""Threads for work of many owners: owners in turns, one has at most half of the threads."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class WaitingWork(Generic[T]):
    """Work that has no thread yet.

    Args:
        owner: Whose it is.
        future: Of what it returns.
        begin: Called on the event loop when its turn comes; returns what the thread is to call.

    """

    __slots__ = ("begin", "future", "owner")

    def __init__(self, owner: str, future: asyncio.Future[T], begin: Callable[[], Callable[[], T]]) -> None:
        self.owner = owner
        self.future = future
        self.begin = begin


class OwnerTurns(Generic[T]):
    """See the module. For one event loop.

    Args:
        count: Threads.
        waiting_max: Work that may wait, of one owner half of it.
        name: Of the threads.

    """

    def __init__(self, count: int, waiting_max: int, name: str) -> None:
        self._count = count
        self._waiting_max = waiting_max
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=name)
        # In order of turns. Invariant: no line is empty.
        self._waiting: dict[str, deque[WaitingWork[T]]] = {}
        self._running: dict[str, int] = {}
        self._is_closed = False

    @property
    def waiting_count(self) -> int:
        """Work without a thread."""
        return sum(map(len, self._waiting.values()))

    def run(self, owner: str, begin: Callable[[], Callable[[], T]]) -> asyncio.Future[T]:
        """Return the future of what a thread is going to return; work that is cancelled before its turn never begins.

        Args:
            owner: Whose work it is.
            begin: See `WaitingWork`.

        Raises:
            asyncio.QueueFull: Too much waits.

        """
        line = self._waiting.get(owner, deque())
        if self.waiting_count >= self._waiting_max or len(line) >= max(1, self._waiting_max // 2):
            raise asyncio.QueueFull
        waiting = WaitingWork(owner, asyncio.get_running_loop().create_future(), begin)
        line.append(waiting)
        self._waiting[owner] = line
        waiting.future.add_done_callback(functools.partial(self._on_done, waiting))
        self._start()
        return waiting.future

    def _on_done(self, waiting: WaitingWork[T], _future: asyncio.Future[T]) -> None:
        """Leave the line, if it was given up there."""
        line = self._waiting.get(waiting.owner)
        if line is not None and waiting in line:
            line.remove(waiting)
            if not line:
                del self._waiting[waiting.owner]

    def _start(self) -> None:
        """Give idle threads to owners in turns."""
        most = max(1, self._count // 2)
        for owner in list(self._waiting):
            if self._is_closed or sum(self._running.values()) >= self._count:
                return
            if self._running.get(owner, 0) >= most:
                continue
            line = self._waiting.pop(owner)
            waiting = line.popleft()
            if line:
                self._waiting[owner] = line  # Behind the others.
            if not waiting.future.done():
                self._run(waiting)

    def _run(self, waiting: WaitingWork[T]) -> None:
        self._running[waiting.owner] = self._running.get(waiting.owner, 0) + 1
        ended = asyncio.get_running_loop().run_in_executor(self._threads, waiting.begin())
        ended.add_done_callback(functools.partial(self._on_end, waiting))

    def _on_end(self, waiting: WaitingWork[T], ended: asyncio.Future[T]) -> None:
        left = self._running[waiting.owner] - 1
        if left:
            self._running[waiting.owner] = left
        else:
            del self._running[waiting.owner]
        error = None if ended.cancelled() else ended.exception()
        if not waiting.future.done() and not ended.cancelled():
            if error is None:
                waiting.future.set_result(ended.result())
            else:
                waiting.future.set_exception(error)
        self._start()

    def close(self) -> None:
        """Give up what waits, and wait for what runs."""
        self._is_closed = True
        for line in list(self._waiting.values()):
            for waiting in list(line):
                waiting.future.cancel()
        self._waiting.clear()
        self._threads.shutdown(wait=True)

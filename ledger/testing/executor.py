"""The twin of a thread that waits for a disk: blocking functions take virtual time.

A function runs as a whole at the end of its delay, which is a schedule that threads allow. So that a crash may
fall between any two of its disk operations, the functions that were under way when their process ended are run up
to an operation drawn at random; the disk refuses the rest, and nobody hears of the outcome.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, TypeVar

import msgspec

from ledger.testing.disk import SimDisk, SimPowerCut
from ledger.testing.loop import SimLoop

T = TypeVar("T")

_OPERATIONS_BEFORE_END = (0, 1, 1, 2, 2, 3, 4, 6, 10, 30)


class _Job(msgspec.Struct):
    function: Callable[[], Any]
    future: asyncio.Future[Any]
    context: Context


class SimExecutor:
    """Runs functions in the order of their submission, at most `worker_count` at a time.

    Attributes:
        delay_s: (least, most) time of one function on a healthy disk; `SimDisk.slowness` multiplies it.

    """

    def __init__(self, loop: SimLoop, disk: SimDisk, *, worker_count: int = 1) -> None:
        self.delay_s = (0.000_2, 0.004)
        self._loop = loop
        self._disk = disk
        self._idle_count = worker_count
        self._waiting: deque[_Job] = deque()
        # Ordered by start. Invariant: `_idle_count + len(_running)` is the number of workers.
        self._running: list[_Job] = []
        self._is_closed = False
        self._ended: asyncio.Future[None] = loop.create_future()

    def submit(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Run `fn` later; see `ledger.storage.disk.DiskExecutor`."""
        future: asyncio.Future[T] = self._loop.create_future()
        if self._is_closed:
            raise RuntimeError("the executor is closed")
        self._waiting.append(_Job(fn, future, copy_context()))
        self._start_next()
        return future

    def close(self) -> asyncio.Future[None]:
        """Take no more work; see `ledger.storage.disk.DiskExecutor`."""
        self._is_closed = True
        self._end()
        return self._ended

    def _end(self) -> None:
        if self._is_closed and not self._waiting and not self._running and not self._ended.done():
            self._ended.set_result(None)

    def process_ended(self) -> None:
        """Leave the functions that are under way half done."""
        self._is_closed = True
        self._waiting.clear()
        for job in self._running:
            self._disk.operations_left = self._disk.rng.choice(_OPERATIONS_BEFORE_END)
            try:
                job.context.run(job.function)
            except (SimPowerCut, Exception):  # noqa: BLE001, S112  the process is gone, nobody hears of it
                continue
            finally:
                self._disk.operations_left = None
        self._running.clear()

    def _start_next(self) -> None:
        while self._waiting and self._idle_count:
            job = self._waiting.popleft()
            self._idle_count -= 1
            self._running.append(job)
            delay_s = self._disk.rng.uniform(*self.delay_s) * self._disk.slowness
            self._loop.call_later(delay_s, self._run, job, context=job.context)

    def _run(self, job: _Job) -> None:
        self._running.remove(job)
        self._idle_count += 1
        try:
            result = job.function()
        except Exception as error:  # noqa: BLE001  the waiter decides
            if not job.future.done():
                job.future.set_exception(error)
        else:
            if not job.future.done():
                job.future.set_result(result)
        self._start_next()
        self._end()

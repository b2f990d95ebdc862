"""Runs functions in threads of this process: the quickest way, for code that is trusted and waits or is short.

A batch of short runs is handed to one thread, which does them one after the other: waking a thread costs more than
such a run. What it has not begun after a millisecond is everybody's. Nothing can kill a thread: a run that takes too
long is told to end; if it does not, it is reported, and its thread is written off and replaced. A worker that has
written off too many drains itself.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from broker.machine.commands import EndedRun
from broker.machine.worker_messages import AssignedRun
from broker.worker.context import RunCancelledError, TaskContext
from broker.worker.core.effects import StopReason
from broker.worker.executors.executor import RunListener
from broker.worker.executors.reports import RunReports
from broker.worker.executors.time_limits import RunTimers
from broker.worker.outcomes import failed, finished, refused, stopped, timed_out
from broker.worker.registry import Registry
from ledger.errors import UsageError

GRACE_S = 0.5
"""Time that a run may take to end after its time limit."""
_LAG_S = 0.001
"""Runs that nobody has begun for so long are given to every thread that is free."""
_SHORT_S = 0.0002
"""Runs that take less on average are handed to one thread."""
_NEWEST_WEIGHT = 0.1


class _Job:
    """A run in the hands of this executor."""

    __slots__ = ("context", "function", "is_over", "is_timed_out", "lane", "run")

    def __init__(self, run: AssignedRun, function: Callable[..., Any], context: TaskContext) -> None:
        self.run = run
        self.function = function
        self.context = context
        # The thread that has begun it.
        self.lane: _Lane | None = None
        # Under the executor's lock: its end is reported, or about to be; whoever sets it reports it.
        self.is_over = False
        self.is_timed_out = False


class _Lane:
    """A thread and what wakes it."""

    __slots__ = ("is_written_off", "wake")

    def __init__(self) -> None:
        self.is_written_off = False
        self.wake = threading.Lock()
        self.wake.acquire()


class ThreadExecutor:
    """See the module.

    Args:
        registry: The functions.
        written_off_max: Threads that may be written off at a time; None = as many as run at once, at least 4.

    Attributes:
        is_killable: Threads are not.
        written_off: Threads that were written off and have not ended since.

    """

    is_killable = False

    def __init__(self, registry: Registry, *, written_off_max: int | None = None) -> None:
        self._registry = registry
        self._written_off_max = written_off_max
        self._threads_max = 1
        self.written_off = 0
        self._lock = threading.Lock()
        self._queue: deque[_Job] = deque()
        self._jobs: dict[int, _Job] = {}
        self._idle: deque[_Lane] = deque()
        self._lane_count = 0
        self._took_s = 0.0
        self._is_closed = False
        self._lag: asyncio.TimerHandle | None = None

    @property
    def types(self) -> Sequence[str] | None:
        """Task types with a function of their own; None if one runs every type."""
        types = self._registry.types
        return None if "*" in types else types

    async def start(self, listener: RunListener, threads_max: int) -> None:
        """Get ready; see `Executor`."""
        for task_type in self._registry.types:
            if inspect.iscoroutinefunction(self._registry.find(task_type)):
                raise UsageError(
                    f"task type {task_type!r} is run by a coroutine function: use the asyncio executor "
                    "(--executor asyncio)"
                )
        self._threads_max = threads_max
        if self._written_off_max is None:
            self._written_off_max = max(4, threads_max)
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._reports = RunReports(self._on_ended, listener.on_progress)
        self._limits = RunTimers(self._on_time_over)

    def run(self, runs: Sequence[AssignedRun]) -> None:
        """Begin runs; see `Executor`."""
        on_progress = self._reports.progress
        count = 0
        for run in runs:
            function = self._registry.find(run.type)
            if function is None:
                types = ", ".join(self._registry.types)
                why = f"this worker has no function for tasks of type {run.type!r}; it has: {types}"
                self._reports.end(refused(run.task_id, run.assignment_id, why))
                continue
            job = _Job(run, function, TaskContext(run, on_progress))
            self._jobs[run.assignment_id] = job
            if run.timeout_ms:
                self._limits.watch(run.assignment_id, run.timeout_ms / 1000)
            self._queue.append(job)
            count += 1
        if not count:
            return
        if count > 1 and self._took_s < _SHORT_S:
            self._wake(1)
            if self._lag is None:
                self._lag = self._loop.call_later(_LAG_S, self._on_lag)
        else:
            self._wake(count)

    def stop(self, assignment_id: int, reason: StopReason) -> None:
        """Ask a run to end; one that has not begun never does."""
        job = self._jobs.get(assignment_id)
        if job is None:
            return
        job.context.stop(reason)
        with self._lock:
            if job.is_over or job.lane is not None:
                return
            job.is_over = True
        self._reports.end(stopped(job.run.task_id, assignment_id, reason))

    async def close(self) -> None:
        """End the threads that are free; those that run something end when it does, or with the process."""
        self._is_closed = True
        self._reports.close()
        self._limits.close()
        if self._lag is not None:
            self._lag.cancel()
        for job in list(self._jobs.values()):
            job.context.stop(StopReason.LEAVING)
            with self._lock:
                job.is_over = True
        self._queue.clear()
        while self._idle:
            self._idle.pop().wake.release()

    # ---- on the loop

    def _wake(self, count: int) -> None:
        """Have so many more threads look at the queue, as far as there are any."""
        for _ in range(count):
            try:
                self._idle.pop().wake.release()
            except IndexError:
                if self._lane_count >= self._threads_max:
                    return
                self._lane_count += 1
                threading.Thread(
                    target=self._work, args=(_Lane(),), name=f"rsm-task-{self._lane_count}", daemon=True
                ).start()

    def _on_lag(self) -> None:
        self._lag = None
        if self._queue:
            self._wake(len(self._queue))

    def _on_time_over(self, assignment_id: int) -> None:
        job = self._jobs.get(assignment_id)
        if job is None:
            return
        if not job.is_timed_out:
            job.is_timed_out = True
            job.context.stop(None)
            self._limits.watch(assignment_id, GRACE_S)
            return
        with self._lock:
            if job.is_over:
                return
            job.is_over = True
            if job.lane is not None:
                job.lane.is_written_off = True
                self.written_off += 1
                self._lane_count -= 1
        what = "it never began" if job.lane is None else "it did not end when told to, and its thread was written off"
        self._reports.end(timed_out(job.run.task_id, assignment_id, job.run.timeout_ms, what))
        self._wake(1)
        assert self._written_off_max is not None
        if self.written_off >= self._written_off_max:
            self._listener.on_exhausted(
                f"{self.written_off} runs took longer than their time limit and did not end when told to: as many "
                "threads are lost. Use the process executor for such tasks, or have them look at context.cancelled"
            )

    def _on_ended(self, ends: Sequence[EndedRun]) -> None:
        for end in ends:
            self._jobs.pop(end.assignment_id, None)
            self._limits.forget(end.assignment_id)
        self._listener.on_ended(ends)

    # ---- in the threads

    def _work(self, lane: _Lane) -> None:
        queue, lock = self._queue, self._lock
        while not self._is_closed:
            try:
                job = queue.popleft()
            except IndexError:
                self._rest(lane)
                continue
            with lock:
                if job.is_over:
                    continue
                job.lane = lane
            began_s = time.monotonic()
            end = self._call(job)
            self._took_s += (time.monotonic() - began_s - self._took_s) * _NEWEST_WEIGHT
            with lock:
                is_over, job.is_over = job.is_over, True
                if lane.is_written_off:
                    self.written_off -= 1
                    return
            if not is_over:
                self._reports.end(end)

    def _rest(self, lane: _Lane) -> None:
        """Wait to be woken, unless something has come since the queue was seen empty."""
        self._idle.append(lane)
        if self._queue or self._is_closed:
            try:
                self._idle.remove(lane)
            except ValueError:
                pass  # Somebody has just taken it from there to wake it.
            else:
                return
        lane.wake.acquire()

    @staticmethod
    def _call(job: _Job) -> Any:
        run = job.run
        try:
            result = job.function(job.context, run.payload)
        except BaseException as error:  # noqa: BLE001 - whatever a user's function raises is its end, exits included
            if job.is_timed_out:
                return timed_out(run.task_id, run.assignment_id, run.timeout_ms, "it ended when it was told to")
            reason = job.context.stop_reason
            if reason is not None and isinstance(error, RunCancelledError):
                return stopped(run.task_id, run.assignment_id, reason)
            return failed(run.task_id, run.assignment_id, error)
        if job.is_timed_out:
            return timed_out(run.task_id, run.assignment_id, run.timeout_ms, "it ended when it was told to")
        return finished(run.task_id, run.assignment_id, result)

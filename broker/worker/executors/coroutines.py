"""Runs coroutine functions on an event loop of their own, in one thread: thousands at once, for code that waits.

The worker's own loop stays free of it: a coroutine that blocks delays its fellows, never the worker's word to the
broker. Plain functions among the registered ones run in threads. A run that is to end is cancelled, which reaches it
at its next `await`; one that has taken too long and does not end is reported all the same, and counts as lost.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from broker.machine.commands import EndedRun, ProgressOf
from broker.machine.worker_messages import AssignedRun
from broker.worker.context import RunCancelledError, TaskContext
from broker.worker.core.effects import StopReason
from broker.worker.executors.executor import RunListener
from broker.worker.executors.reports import RunReports
from broker.worker.executors.threads import GRACE_S, ThreadExecutor
from broker.worker.executors.time_limits import RunTimers
from broker.worker.outcomes import failed, finished, stopped, timed_out
from broker.worker.registry import Registry

_CLOSE_S = 2.0
"""Time that runs may take to end when the executor is closed."""


class _Job:
    """A run in the hands of this executor."""

    __slots__ = ("context", "function", "is_over", "is_timed_out", "run", "task")

    def __init__(self, run: AssignedRun, function: Any, context: TaskContext) -> None:
        self.run = run
        self.function = function
        self.context = context
        self.task: asyncio.Task[None] | None = None
        # Read and written on the worker's loop: its end has been told.
        self.is_over = False
        self.is_timed_out = False


class AsyncioExecutor:
    """See the module.

    Args:
        registry: The functions.
        lost_max: Runs that may be lost at a time; None = as many as run at once, at least 4.

    Attributes:
        is_killable: Runs end when they are cancelled, unless they mean not to.

    """

    is_killable = True

    def __init__(self, registry: Registry, *, lost_max: int | None = None) -> None:
        self._registry = registry
        self._lost_max = lost_max
        self._threads = ThreadExecutor(_plain_functions(registry), written_off_max=lost_max)
        self._threads_max = 1
        self._lost: dict[int, None] = {}
        self._jobs: dict[int, _Job] = {}
        self._waiting: deque[_Job] = deque()
        self._active_count = 0
        self._is_closing = False

    @property
    def types(self) -> Sequence[str] | None:
        """Task types with a function of their own; None if one runs every type."""
        types = self._registry.types
        return None if "*" in types else types

    async def start(self, listener: RunListener, threads_max: int) -> None:
        """Get ready; see `Executor`."""
        self._listener = listener
        self._threads_max = threads_max
        if self._lost_max is None:
            self._lost_max = max(4, threads_max)
        self._reports = RunReports(self._on_ended, self._on_progress)
        self._limits = RunTimers(self._on_time_over)
        await self._threads.start(listener, threads_max)
        self._users_loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="rsm-task-loop", daemon=True)
        self._thread.start()

    def run(self, runs: Sequence[AssignedRun]) -> None:
        """Begin runs; see `Executor`."""
        jobs: list[_Job] = []
        plain: list[AssignedRun] = []
        on_progress = self._reports.progress
        for run in runs:
            function = self._registry.find(run.type)
            if function is None or not _is_coroutine_function(function):
                plain.append(run)
                continue
            job = _Job(run, function, TaskContext(run, on_progress))
            self._jobs[run.assignment_id] = job
            if run.timeout_ms:
                self._limits.watch(run.assignment_id, run.timeout_ms / 1000)
            if self._active_count < self._threads_max:
                self._active_count += 1
                jobs.append(job)
            else:
                self._waiting.append(job)
        if jobs:
            self._users_loop.call_soon_threadsafe(self._begin, jobs)
        if plain:
            self._threads.run(plain)

    def stop(self, assignment_id: int, reason: StopReason) -> None:
        """Cancel a run; it is told why by its context."""
        job = self._jobs.get(assignment_id)
        if job is None:
            self._threads.stop(assignment_id, reason)
            return
        job.context.stop(reason)
        if job in self._waiting:
            self._waiting.remove(job)
            self._reports.end(stopped(job.run.task_id, assignment_id, reason))
            self._active_count += 1  # Its end takes this away again.
        else:
            self._users_loop.call_soon_threadsafe(_cancel, job)

    async def close(self) -> None:
        """Cancel what runs, wait a little, and leave the rest to the end of the process."""
        self._is_closing = True
        self._reports.close()
        self._limits.close()
        self._waiting.clear()
        await self._threads.close()
        jobs = list(self._jobs.values())
        for job in jobs:
            job.context.stop(StopReason.LEAVING)
        self._users_loop.call_soon_threadsafe(self._cancel_all, jobs)
        await asyncio.to_thread(self._thread.join, 2 * _CLOSE_S)
        if not self._thread.is_alive():
            self._users_loop.close()

    # ---- on the worker's loop

    def _on_ended(self, ends: Sequence[EndedRun]) -> None:
        told: list[EndedRun] = []
        for end in ends:
            self._limits.forget(end.assignment_id)
            if end.assignment_id in self._lost:
                del self._lost[end.assignment_id]
            else:
                self._active_count -= 1
            job = self._jobs.pop(end.assignment_id, None)
            if job is not None and not job.is_over:
                told.append(end)
        self._begin_waiting()
        if told:
            self._listener.on_ended(told)

    def _begin_waiting(self) -> None:
        jobs: list[_Job] = []
        while self._waiting and self._active_count < self._threads_max:
            self._active_count += 1
            jobs.append(self._waiting.popleft())
        if jobs:
            self._users_loop.call_soon_threadsafe(self._begin, jobs)

    def _on_progress(self, progress: ProgressOf) -> None:
        self._listener.on_progress(progress)

    def _on_time_over(self, assignment_id: int) -> None:
        job = self._jobs.get(assignment_id)
        if job is None:
            return
        if not job.is_timed_out:
            job.is_timed_out = True
            job.context.stop(None)
            self._users_loop.call_soon_threadsafe(_cancel, job)
            self._limits.watch(assignment_id, GRACE_S)
            return
        if job in self._waiting:
            self._waiting.remove(job)
            del self._jobs[assignment_id]
        else:
            # Another run takes its place; this one goes on taking up memory, and perhaps the loop.
            job.is_over = True
            self._lost[assignment_id] = None
            self._active_count -= 1
            self._begin_waiting()
        what = "it was cancelled and did not end, or another run blocks the event loop"
        self._listener.on_ended([timed_out(job.run.task_id, assignment_id, job.run.timeout_ms, what)])
        assert self._lost_max is not None
        if len(self._lost) >= self._lost_max:
            self._listener.on_exhausted(
                f"{len(self._lost)} runs took longer than their time limit and did not end when cancelled. Use the "
                "process executor for tasks that block"
            )

    # ---- on the user's loop

    def _turn(self) -> None:
        asyncio.set_event_loop(self._users_loop)
        self._users_loop.run_forever()

    def _begin(self, jobs: list[_Job]) -> None:
        for job in jobs:
            job.task = self._users_loop.create_task(self._call(job))
            if job.context.is_cancelled:
                job.task.cancel()

    async def _call(self, job: _Job) -> None:
        run = job.run
        try:
            result = await job.function(job.context, run.payload)
        except BaseException as error:  # noqa: BLE001 - whatever a user's function raises is its end
            if job.is_timed_out:
                end = timed_out(run.task_id, run.assignment_id, run.timeout_ms, "it was cancelled")
            elif job.context.stop_reason is not None and _is_cancellation(error):
                end = stopped(run.task_id, run.assignment_id, job.context.stop_reason)
            else:
                end = failed(run.task_id, run.assignment_id, error)
        else:
            if job.is_timed_out:
                end = timed_out(run.task_id, run.assignment_id, run.timeout_ms, "it ended when it was cancelled")
            else:
                end = finished(run.task_id, run.assignment_id, result)
        self._reports.end(end)

    def _cancel_all(self, jobs: list[_Job]) -> None:
        tasks = [job.task for job in jobs if job.task is not None]
        for task in tasks:
            task.cancel()

        async def wait() -> None:
            if tasks:
                await asyncio.wait(tasks, timeout=_CLOSE_S)
            self._users_loop.stop()

        self._last = self._users_loop.create_task(wait())


def _plain_functions(registry: Registry) -> Registry:
    plain = Registry()
    for task_type in registry.types:
        function = registry.find(task_type)
        if function is not None and not _is_coroutine_function(function):
            plain.add(task_type, function)
    return plain


def _is_coroutine_function(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _is_cancellation(error: BaseException) -> bool:
    return isinstance(error, asyncio.CancelledError | RunCancelledError)


def _cancel(job: _Job) -> None:
    # A run that has not begun yet is cancelled when it does: its context says so.
    if job.task is not None:
        job.task.cancel()

"""Runs a command for each task: any language, payload on its standard input, result from its standard output.

    rsm worker run --executor subprocess --command "convert {type} --task {task_id}"

The template is split as a shell splits words, and then each word is filled in: what a tenant typed stays one argument
whatever is in it, and no shell sees it. The environment carries the same: RSM_TASK_ID, RSM_ASSIGNMENT_ID, RSM_TENANT,
RSM_TYPE, RSM_ATTEMPT, RSM_SLOT, RSM_KEY. Exit code 0 is success; the end of standard error is the text of an error.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections import deque
from collections.abc import Sequence

from broker.machine.commands import EndedRun, ProgressOf
from broker.machine.limits import RESULT_BYTES_MAX
from broker.machine.worker_messages import AssignedRun
from broker.worker.core.effects import StopReason
from broker.worker.executors.child_process import exit_words
from broker.worker.executors.command import CommandProcess
from broker.worker.executors.executor import RunListener
from broker.worker.outcomes import failed, finished, stopped, timed_out
from ledger.errors import UsageError

_ERROR_BYTES = 3_000
_FIELDS = ("task_id", "assignment_id", "tenant", "type", "attempt", "slot", "key")


class _Job:
    __slots__ = ("command", "is_timed_out", "reason", "run", "task")

    def __init__(self, run: AssignedRun) -> None:
        self.run = run
        self.command: CommandProcess | None = None
        self.task: asyncio.Task[None] | None = None
        self.reason: StopReason | None = None
        self.is_timed_out = False


class SubprocessExecutor:
    """See the module.

    Args:
        command: Template.
        cancel_s: How long a command that was asked to end by SIGTERM may take to do so, before it is killed.

    Attributes:
        is_killable: They are.
        types: Whatever comes.

    Raises:
        UsageError: The template cannot be used.

    """

    is_killable = True

    def __init__(self, command: str, *, cancel_s: float = 5.0) -> None:
        self._words = _checked(command)
        self._cancel_s = cancel_s
        self._threads_max = 1
        self._jobs: dict[int, _Job] = {}
        self._waiting: deque[_Job] = deque()
        self._active_count = 0
        self._is_closed = False

    @property
    def types(self) -> Sequence[str] | None:
        """Task types that it can run: whatever comes."""
        return None

    async def start(self, listener: RunListener, threads_max: int) -> None:
        """Get ready; see `Executor`."""
        self._listener = listener
        self._threads_max = threads_max
        self._loop = asyncio.get_running_loop()

    def run(self, runs: Sequence[AssignedRun]) -> None:
        """Begin runs; see `Executor`."""
        for run in runs:
            job = self._jobs[run.assignment_id] = _Job(run)
            self._waiting.append(job)
        self._hand_out()

    def stop(self, assignment_id: int, reason: StopReason) -> None:
        """Ask a command to end, and kill it if it does not, or if there is no time to ask."""
        job = self._jobs.get(assignment_id)
        if job is None:
            return
        job.reason = reason
        if job in self._waiting:
            self._waiting.remove(job)
            self._tell(job, stopped(job.run.task_id, assignment_id, reason))
        elif reason is StopReason.CANCELLED:
            _signal(job, signal.SIGTERM)
            self._loop.call_later(self._cancel_s, _signal, job, signal.SIGKILL)
        else:
            _signal(job, signal.SIGKILL)

    async def close(self) -> None:
        """Kill what runs."""
        self._is_closed = True
        self._waiting.clear()
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        for job in self._jobs.values():
            _signal(job, signal.SIGKILL)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _hand_out(self) -> None:
        while self._waiting and self._active_count < self._threads_max and not self._is_closed:
            job = self._waiting.popleft()
            self._active_count += 1
            job.task = self._loop.create_task(self._run(job), name=f"rsm-command-{job.run.task_id}")

    async def _run(self, job: _Job) -> None:
        try:
            end = await self._end_of(job)
        except OSError as error:
            end = failed(
                job.run.task_id, job.run.assignment_id, f"CommandError: cannot run {self._words[0]!r}: {error}"
            )
        finally:
            self._active_count -= 1
        self._tell(job, end)
        self._hand_out()

    async def _end_of(self, job: _Job) -> EndedRun:
        run = job.run
        words = [_filled(word, run) for word in self._words]
        job.command = command = await CommandProcess.start(words, {**os.environ, **_variables(run)})
        if job.reason is not None:
            command.signal(signal.SIGKILL)
        timer = self._loop.call_later(run.timeout_ms / 1000, _time_over, job) if run.timeout_ms else None
        beat = self._loop.create_task(self._beat(run)) if run.heartbeat_ms else None
        try:
            code, result, errors = await command.talk(
                run.payload, output_bytes_max=RESULT_BYTES_MAX, error_bytes=_ERROR_BYTES
            )
        finally:
            if timer is not None:
                timer.cancel()
            if beat is not None:
                beat.cancel()
        return _end(job, result, errors, code)

    async def _beat(self, run: AssignedRun) -> None:
        """Tell that the command is alive as long as it is: nobody else can."""
        while True:
            self._listener.on_progress(ProgressOf(run.task_id, run.assignment_id))
            await asyncio.sleep(run.heartbeat_ms / 3000)

    def _tell(self, job: _Job, end: EndedRun) -> None:
        self._jobs.pop(job.run.assignment_id, None)
        if not self._is_closed:
            self._listener.on_ended([end])


def _checked(command: str) -> list[str]:
    try:
        words = shlex.split(command)
        for word in words:
            _filled(word, AssignedRun(1, 1, "tenant", "type", b"", 1))
    except (ValueError, LookupError) as error:
        known = ", ".join(f"{{{field}}}" for field in _FIELDS)
        raise UsageError(f"--command {command!r}: {error}; it may hold {known}") from None
    if not words:
        raise UsageError("--command is empty: give the command that runs a task")
    return words


def _filled(word: str, run: AssignedRun) -> str:
    return word.format_map({field: _plain(getattr(run, field)) for field in _FIELDS})


def _plain(value: object) -> str:
    # No argument and no variable can hold a zero byte.
    return str(value).replace("\0", "")


def _variables(run: AssignedRun) -> dict[str, str]:
    return {f"RSM_{field.upper()}": _plain(getattr(run, field)) for field in _FIELDS}


def _time_over(job: _Job) -> None:
    job.is_timed_out = True
    _signal(job, signal.SIGKILL)


def _signal(job: _Job, number: signal.Signals) -> None:
    if job.command is not None:
        job.command.signal(number)


def _end(job: _Job, result: bytes | None, errors: bytes, code: int) -> EndedRun:
    run = job.run
    if job.is_timed_out:
        return timed_out(run.task_id, run.assignment_id, run.timeout_ms, "it was killed")
    if job.reason is not None and code != 0:
        return stopped(run.task_id, run.assignment_id, job.reason)
    if result is None:
        words = f"ResultTooLarge: it wrote more than {RESULT_BYTES_MAX:,} bytes to its standard output, and was killed"
        return failed(run.task_id, run.assignment_id, words)
    if code != 0:
        said = errors.decode(errors="replace").strip()
        words = f"ExitCode: {code}" if code > 0 else f"ExitSignal: the command {exit_words(code)}"
        return failed(run.task_id, run.assignment_id, f"{words}\n{said}" if said else words)
    return finished(run.task_id, run.assignment_id, result)

"""Child processes that run tasks, one each at a time: as many as run at once, kept while there is work for them.

Where a run is:

    waiting    no child is free                                  `_waiting`
    given      to a child, which imports its function or runs it  `_runs`, `_Slot.run`
    over       its end was told

A child ends because it was killed - for a time limit, a stop that it did not follow, an import that takes too long, or
because nothing was to do - or by itself. Its run, if it had one, is told when the process is gone: never while it may
still be doing something. Whatever it did to itself, the worker goes on with another one.
"""

# Longer than 400 lines: where a run is, and for what its child ends, is one set of cases.
from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from broker.machine.commands import EndedRun
from broker.machine.worker_messages import AssignedRun
from broker.worker.core.effects import StopReason
from broker.worker.executors.child_messages import (
    ChildMessage,
    FunctionLoaded,
    Ready,
    RunEnded,
    RunMade,
    RunProgress,
    SetUp,
    StopRun,
)
from broker.worker.executors.child_process import ChildProcess, exit_words
from broker.worker.executors.executor import RunListener
from broker.worker.executors.time_limits import RunTimers
from broker.worker.jail.jails import Jails
from broker.worker.outcomes import failed, refused, stopped, timed_out
from ledger.options import MIB, Option

_LOGGER = logging.getLogger(__name__)
_TOLD_PER_S_MAX = 50
"""Signs of life of one run; a child sends ten a second at most."""


class ChildLimits(msgspec.Struct, frozen=True):
    """Bounds on child processes.

    Attributes:
        idle_s: A child without work is ended after so long.

    """

    load_s: Annotated[float, Option("Longest time for the import of task code in a child process.", ge=0.1)] = 60.0
    cancel_s: Annotated[float, Option("A cancelled run has this time to end. Then its process is killed.", ge=0)] = 5.0
    idle_s: float = 60.0
    memory_bytes_max: Annotated[
        int, Option("Most MiB of address space of a child process; 0 = no limit.", name="memory_mb", unit=MIB, ge=0)
    ] = 0


class _Doom(StrEnum):
    """Reasons why a child was killed."""

    TIME_LIMIT = "time limit"
    IMPORT = "import"
    STOP = "stop"
    IDLE = "idle"
    FLOOD = "flood"


class _Slot:
    """A child and what it does."""

    __slots__ = (
        "doom",
        "given_s",
        "is_loaded",
        "is_ready",
        "leave",
        "number",
        "process",
        "reason",
        "run",
        "setup_error",
        "told_count",
    )

    def __init__(self, number: int, process: ChildProcess, leave: Callable[[], None]) -> None:
        self.number = number
        self.process = process
        # Called when it is gone.
        self.leave = leave
        self.run: AssignedRun | None = None
        self.is_ready = False
        # The function of its run is imported: it may have begun.
        self.is_loaded = False
        # When its run was given to it, and how often it has told its progress since.
        self.given_s = 0.0
        self.told_count = 0
        self.setup_error = ""
        self.doom: _Doom | None = None
        self.reason: StopReason | None = None


class Children:
    """See the module. Used on one loop.

    Args:
        set_up: What each child is told first.
        listener: Hears of the runs.
        children_max: Processes at once.
        limits: How they are treated.
        environment: Of the children; None = this process's.
        folder: Their working directory; None = this process's.
        jails: Each goes to one; None = they may do what this process may.

    Attributes:
        types: Task types that a child has functions for, once one is ready.

    """

    def __init__(
        self,
        set_up: SetUp,
        listener: RunListener,
        children_max: int,
        limits: ChildLimits,
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        jails: Jails | None = None,
    ) -> None:
        self.types: list[str] = []
        self._set_up = set_up
        self._listener = listener
        self._children_max = children_max
        self._limits = limits
        self._environment = environment
        self._folder = folder
        self._jails = jails
        self._loop = asyncio.get_running_loop()
        self._slots: dict[ChildProcess, _Slot] = {}
        self._idle: deque[_Slot] = deque()
        self._waiting: deque[AssignedRun] = deque()
        self._runs: dict[int, _Slot] = {}
        # Runs whose first child died before it had begun them.
        self._again: set[int] = set()
        self._last_number = 0
        self._starting: set[asyncio.Task[None]] = set()
        self._first_ready: asyncio.Future[Ready] | None = None
        self._is_closed = False
        self._time_limits = RunTimers(self._killer(_Doom.TIME_LIMIT))
        self._stop_limits = RunTimers(self._killer(_Doom.STOP))
        self._load_limits = RunTimers(self._on_load_over)
        self._idle_limits = RunTimers(self._on_idle_over)

    @property
    def is_busy(self) -> bool:
        """True if anything runs or waits here."""
        return bool(self._runs or self._waiting)

    @property
    def pids(self) -> list[int]:
        """Process ids of the children."""
        return [process.pid for process in self._slots if process.pid]

    async def first_ready(self) -> Ready:
        """Start a child, and return what it says when its set-up is done; with an error if it never was."""
        self._first_ready = self._loop.create_future()
        self._spawn()
        return await self._first_ready

    def run(self, runs: Sequence[AssignedRun]) -> None:
        """Begin runs, or have them wait for a child."""
        for run in runs:
            if run.timeout_ms:
                self._time_limits.watch(run.assignment_id, run.timeout_ms / 1000)
            self._waiting.append(run)
        self._hand_out()

    def stop(self, assignment_id: int, reason: StopReason) -> bool:
        """Ask a run to end, and kill its process if it does not; return whether the run is here."""
        slot = self._runs.get(assignment_id)
        if slot is None:
            waiting = next((run for run in self._waiting if run.assignment_id == assignment_id), None)
            if waiting is None:
                return False
            self._waiting.remove(waiting)
            self._tell(stopped(waiting.task_id, assignment_id, reason))
            return True
        slot.reason = reason
        if reason is StopReason.CANCELLED:
            slot.process.send(StopRun(assignment_id, reason.value))
            self._stop_limits.watch(assignment_id, self._limits.cancel_s)
        else:
            self._doom(slot, _Doom.STOP)
        return True

    async def close(self) -> None:
        """Kill all children; no end is told any more."""
        self._is_closed = True
        self._waiting.clear()
        for limits in (self._time_limits, self._stop_limits, self._load_limits, self._idle_limits):
            limits.close()
        processes = list(self._slots)
        for process in processes:
            process.kill()
        if self._starting:
            await asyncio.wait(self._starting)
        for process in processes:
            process.kill()
            await process.wait_gone()

    # ---- children

    def _hand_out(self) -> None:
        while self._waiting and not self._is_closed:
            if self._idle:
                self._give(self._idle.pop(), self._waiting.popleft())
            elif len(self._slots) < self._children_max:
                self._give(self._spawn(), self._waiting.popleft())
            else:
                return

    def _spawn(self) -> _Slot:
        self._last_number += 1
        plan, leave = self._jails.enter() if self._jails is not None else (None, lambda: None)
        process = ChildProcess(self._on_message, self._on_gone, plan)
        slot = self._slots[process] = _Slot(self._last_number, process, leave)
        process.send(self._set_up)
        self._load_limits.watch(slot.number, self._limits.load_s)
        task = self._loop.create_task(self._start(slot), name=f"rsm-child-start-{slot.number}")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        return slot

    async def _start(self, slot: _Slot) -> None:
        try:
            await slot.process.start(self._environment, self._folder)
        except OSError as error:
            slot.setup_error = f"ProcessError: no child process can be started: {error}"
            slot.doom = _Doom.IMPORT
            self._on_gone(slot.process)

    def _give(self, slot: _Slot, run: AssignedRun) -> None:
        slot.run = run
        slot.is_loaded = False
        slot.given_s = self._loop.time()
        slot.told_count = 0
        self._runs[run.assignment_id] = slot
        self._idle_limits.forget(slot.number)
        self._load_limits.watch(slot.number, self._limits.load_s)
        slot.process.send(RunMade(run))

    def _doom(self, slot: _Slot, doom: _Doom) -> None:
        if slot.doom is None:
            slot.doom = doom
            slot.process.kill()

    def _killer(self, doom: _Doom) -> Callable[[int], None]:
        def _on_over(assignment_id: int) -> None:
            slot = self._runs.get(assignment_id)
            if slot is not None:
                self._doom(slot, doom)
                return
            run = next((one for one in self._waiting if one.assignment_id == assignment_id), None)
            if run is not None:
                self._waiting.remove(run)
                self._tell(timed_out(run.task_id, assignment_id, run.timeout_ms, "it never began"))

        return _on_over

    def _on_load_over(self, number: int) -> None:
        slot = next((one for one in self._slots.values() if one.number == number), None)
        if slot is not None:
            slot.setup_error = (
                f"ImportTimeout: importing the code of the task took longer than {self._limits.load_s:g} s; its "
                "process was killed"
            )
            self._doom(slot, _Doom.IMPORT)

    def _on_idle_over(self, number: int) -> None:
        slot = next((one for one in self._idle if one.number == number), None)
        if slot is not None:
            self._idle.remove(slot)
            self._doom(slot, _Doom.IDLE)

    # ---- what children say

    def _on_message(self, process: ChildProcess, message: ChildMessage) -> None:
        slot = self._slots.get(process)
        if slot is None or slot.doom is not None:
            return  # Its end is told when it is gone, by the reason for which it was killed.
        run = slot.run
        match message:
            case Ready():
                self._on_ready(slot, message)
            case FunctionLoaded():
                if run is not None and message.assignment_id == run.assignment_id:
                    slot.is_loaded = True
                    self._load_limits.forget(slot.number)
            case RunProgress():
                self._on_progress(slot, message)
            case RunEnded():
                # The child runs a stranger's code perhaps: it may speak of its own run only.
                if run is not None and (message.end.assignment_id, message.end.task_id) == (
                    run.assignment_id,
                    run.task_id,
                ):
                    self._free(slot)
                    if self._jails is not None and 0 < self._jails.cpu_s <= message.cpu_s:
                        self._idle.remove(slot)  # What is left would not do for a whole run.
                        self._doom(slot, _Doom.IDLE)
                    self._tell(message.end)
                    self._hand_out()

    def _on_progress(self, slot: _Slot, message: RunProgress) -> None:
        if slot.run is None or message.progress.assignment_id != slot.run.assignment_id:
            return
        slot.told_count += 1
        # Our own children are far below it: somebody's code speaks for them, and would keep this loop busy.
        if slot.told_count > _TOLD_PER_S_MAX * (1 + self._loop.time() - slot.given_s):
            self._doom(slot, _Doom.FLOOD)
            return
        self._listener.on_progress(message.progress)

    def _on_ready(self, slot: _Slot, message: Ready) -> None:
        if message.error:
            slot.setup_error = message.error
            self._doom(slot, _Doom.IMPORT)
            return
        slot.is_ready = True
        self.types = message.types
        if self._first_ready is not None and not self._first_ready.done():
            self._first_ready.set_result(message)
        if slot.run is None and slot not in self._idle:
            self._free(slot)
            self._hand_out()

    def _free(self, slot: _Slot) -> None:
        slot.run = None
        slot.reason = None
        self._load_limits.forget(slot.number)
        self._idle.append(slot)
        self._idle_limits.watch(slot.number, self._limits.idle_s)

    def _on_gone(self, process: ChildProcess) -> None:
        slot = self._slots.pop(process, None)
        if slot is not None:
            slot.leave()
        if slot is None or self._is_closed:
            return
        self._load_limits.forget(slot.number)
        self._idle_limits.forget(slot.number)
        if slot in self._idle:
            self._idle.remove(slot)
        if self._first_ready is not None and not self._first_ready.done():
            self._first_ready.set_result(
                Ready(error=slot.setup_error or f"the child process {exit_words(process.exit_code)}")
            )
        run, slot.run = slot.run, None
        if run is not None and self._is_unbegun(slot, run):
            self._runs.pop(run.assignment_id, None)
            self._waiting.appendleft(run)
        elif run is not None:
            self._tell(self._end_of(slot, run))
        self._hand_out()

    def _is_unbegun(self, slot: _Slot, run: AssignedRun) -> bool:
        """Return whether a child was dead when it was given this run; another one does it. But not a third one."""
        if slot.doom is not None or slot.is_loaded or run.assignment_id in self._again:
            return False
        self._again.add(run.assignment_id)
        return True

    def _end_of(self, slot: _Slot, run: AssignedRun) -> EndedRun:
        """Return the end of the run of a child that is gone."""
        match slot.doom:
            case _Doom.TIME_LIMIT:
                return timed_out(run.task_id, run.assignment_id, run.timeout_ms, "its process was killed")
            case _Doom.STOP if slot.reason is not None:
                return stopped(run.task_id, run.assignment_id, slot.reason)
            case _Doom.IMPORT if slot.is_ready or not self._set_up.tasks:
                return failed(run.task_id, run.assignment_id, slot.setup_error)
            case _Doom.IMPORT:
                return refused(run.task_id, run.assignment_id, slot.setup_error)
            case _Doom.FLOOD:
                words = "ProcessKilled: it flooded the worker with messages"
                return failed(run.task_id, run.assignment_id, words)
            case _:
                words = exit_words(slot.process.exit_code)
                extra = {"task": run.task_id, "tenant": run.tenant}
                _LOGGER.warning("a child process %s while it ran task %d", words, run.task_id, extra=extra)
                return failed(run.task_id, run.assignment_id, f"ProcessDied: the process that ran it {words}")

    def _tell(self, end: EndedRun) -> None:
        self._runs.pop(end.assignment_id, None)
        self._again.discard(end.assignment_id)
        self._time_limits.forget(end.assignment_id)
        self._stop_limits.forget(end.assignment_id)
        self._listener.on_ended([end])

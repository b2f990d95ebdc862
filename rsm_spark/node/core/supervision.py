"""Decides which process of a machine is started, started again and ended, and when.

1. Processes start in the order of the file. The next one starts when the one before is ready, or has had some time to
   become so: what it waits for may be on another machine.
2. One that ends on its own is started again, after a pause that doubles from 1 s to 30 s and begins anew once it has
   stayed for a minute. Nobody gives up: what is away may be back tomorrow.
3. They are ended in the opposite order, one after the other, each with time to end in good order; then it is killed.

Times are in milliseconds of a clock that only goes forward.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

PAUSE_MS_MIN = 1_000
PAUSE_MS_MAX = 30_000
STAYED_MS = 60_000
PATIENCE_MS = 15_000
"""Time that a process has to become ready before the next one starts anyway."""
FAULT_CODES = (1, 70, 74)
"""Exit codes of processes that end by themselves: state or log is wrong, the event loop stands still, a disk failed."""


class ChildPhase(StrEnum):
    """Phase of one process."""

    WAITING = "waits for others"
    STARTING = "starting"
    READY = "ready"
    PAUSED = "starts again soon"
    ENDING = "ending"
    ENDED = "ended"


class StartChild(NamedTuple):
    """Start this process; report `started`, then `ready`, then `ended`."""

    name: str


class EndChild(NamedTuple):
    """Send this process a signal."""

    name: str
    is_kill: bool


class SayLine(NamedTuple):
    """Write a line: something has changed."""

    words: str


Effect = StartChild | EndChild | SayLine


@dataclass
class ChildState:
    """State of one process.

    Attributes:
        name: Its name among those of the machine.
        grace_ms: Time that it may take to end.
        phase: Phase.
        pid: Of the process that runs; 0 = none does.
        since_ms: Begin of the phase.
        restarts: Times that it was started again.
        pause_ms: Pause before its next start, or the last one.
        due_ms: Time of its next start in PAUSED, of its end by force in ENDING.
        last_end: How it ended last; "" = it has not.
        faults: Times that it ended with each of `FAULT_CODES`.

    """

    name: str
    grace_ms: int
    phase: ChildPhase = ChildPhase.WAITING
    pid: int = 0
    since_ms: int = 0
    restarts: int = 0
    pause_ms: int = 0
    due_ms: int = 0
    last_end: str = ""
    faults: dict[int, int] = field(default_factory=lambda: dict.fromkeys(FAULT_CODES, 0))
    _first_start_ms: int | None = None

    def has_had_time(self, now_ms: int) -> bool:
        """Tell whether the next process may start."""
        return self.phase is ChildPhase.READY or (
            self._first_start_ms is not None and now_ms - self._first_start_ms >= PATIENCE_MS
        )

    def begin(self, now_ms: int) -> None:
        """Note a start."""
        if self._first_start_ms is None:
            self._first_start_ms = now_ms
        self.move(ChildPhase.STARTING, now_ms)

    def move(self, phase: ChildPhase, now_ms: int) -> None:
        """Enter a phase."""
        self.phase = phase
        self.since_ms = now_ms

    def patience_ends_ms(self) -> int | None:
        """Return when the next process may start, if this one is not ready by then; None = it has not been started."""
        return None if self._first_start_ms is None else self._first_start_ms + PATIENCE_MS


class Supervision:
    """State of all processes of a machine.

    Args:
        graces_ms: Name of each process, in the order of their start, and the time that it may take to end.

    """

    def __init__(self, graces_ms: Mapping[str, int]) -> None:
        self.children = {name: ChildState(name, grace_ms) for name, grace_ms in graces_ms.items()}
        self.is_ending = False

    @property
    def is_over(self) -> bool:
        """True once the end was asked for, and nothing runs."""
        return self.is_ending and all(child.phase is ChildPhase.ENDED for child in self.children.values())

    def due_ms(self) -> int | None:
        """Return when `on_time` has something to do at the latest; None = only an event brings it."""
        timed = (ChildPhase.PAUSED, ChildPhase.ENDING)
        due = [child.due_ms for child in self.children.values() if child.phase in timed]
        if not self.is_ending:
            due += [ends_ms for before, _ in self._next_start() if (ends_ms := before.patience_ends_ms()) is not None]
        return min(due, default=None)

    def on_time(self, now_ms: int) -> list[Effect]:
        """Do what is due; the first call starts the first process."""
        effects: list[Effect] = []
        for child in self.children.values():
            if child.phase is ChildPhase.PAUSED and now_ms >= child.due_ms:
                child.restarts += 1
                child.begin(now_ms)
                effects.append(StartChild(child.name))
            elif child.phase is ChildPhase.ENDING and now_ms >= child.due_ms:
                child.due_ms = now_ms + child.grace_ms
                effects += [
                    SayLine(f"{child.name} has not ended within {child.grace_ms / 1000:g} s: killed"),
                    EndChild(child.name, is_kill=True),
                ]
        return effects + ([] if self.is_ending else self._start_next(now_ms))

    def on_started(self, name: str, pid: int, now_ms: int) -> list[Effect]:
        """Note that a process runs."""
        child = self.children[name]
        child.pid = pid
        child.since_ms = now_ms
        return [SayLine(f"{name} started, pid {pid}")]

    def on_ready(self, name: str, now_ms: int) -> list[Effect]:
        """Note that a process says that it serves."""
        child = self.children[name]
        if child.phase is not ChildPhase.STARTING:
            return []
        line = SayLine(f"{name} is ready after {(now_ms - child.since_ms) / 1000:.1f} s")
        child.move(ChildPhase.READY, now_ms)
        return [line, *self._start_next(now_ms)]

    def on_ended(self, name: str, how: str, now_ms: int, *, code: int | None = None) -> list[Effect]:
        """Note that a process has ended, or could not be started.

        Args:
            name: Of the process.
            how: "ended with exit code 1", "was killed by SIGKILL", "cannot be started: …".
            now_ms: Time.
            code: Its exit code; below 0 = a signal ended it, None = it did not start.

        """
        child = self.children[name]
        stayed_ms = now_ms - child.since_ms if child.phase is ChildPhase.READY else 0
        child.pid, child.last_end = 0, how
        if code in child.faults:
            child.faults[code] += 1
        if self.is_ending:
            child.move(ChildPhase.ENDED, now_ms)
            return [SayLine(f"{name} {how}"), *self._end_next(now_ms)]
        is_new = stayed_ms >= STAYED_MS or not child.pause_ms
        child.pause_ms = PAUSE_MS_MIN if is_new else min(2 * child.pause_ms, PAUSE_MS_MAX)
        child.due_ms = now_ms + child.pause_ms
        child.move(ChildPhase.PAUSED, now_ms)
        return [SayLine(f"{name} {how}; starts again in {child.pause_ms / 1000:g} s")]

    def end(self, why: str, now_ms: int) -> list[Effect]:
        """Begin to end all of them; the second time, kill those that run."""
        running = [child for child in self.children.values() if child.phase not in _IDLE]
        if self.is_ending:
            kills = [EndChild(child.name, is_kill=True) for child in running]
            return [SayLine(f"{why} again: kills what runs"), *kills]
        self.is_ending = True
        for child in self.children.values():
            if child.phase in _IDLE:
                child.move(ChildPhase.ENDED, now_ms)
        names = ", ".join(child.name for child in reversed(running))
        return [SayLine(f"{why}: ends {names or 'nothing, since nothing runs'}"), *self._end_next(now_ms)]

    def _end_next(self, now_ms: int) -> list[Effect]:
        running = [child for child in self.children.values() if child.phase is not ChildPhase.ENDED]
        if not running or any(child.phase is ChildPhase.ENDING for child in running):
            return []
        last = running[-1]
        last.move(ChildPhase.ENDING, now_ms)
        last.due_ms = now_ms + last.grace_ms
        return [EndChild(last.name, is_kill=False)]

    def _next_start(self) -> Iterator[tuple[ChildState, ChildState]]:
        """Yield the first process that waits, and the one before it; nothing if none waits or it is the first."""
        for before, child in pairwise(self.children.values()):
            if child.phase is ChildPhase.WAITING:
                yield before, child
                return

    def _start_next(self, now_ms: int) -> list[Effect]:
        first = next(iter(self.children.values()))
        if first.phase is ChildPhase.WAITING:
            first.begin(now_ms)
            return [StartChild(first.name)]
        for before, child in self._next_start():
            if before.has_had_time(now_ms):
                child.begin(now_ms)
                start = StartChild(child.name)
                if before.phase is ChildPhase.READY:
                    return [start]
                words = f"{before.name} is not ready after {PATIENCE_MS / 1000:g} s: {child.name} starts anyway"
                return [SayLine(words), start]
        return []


_IDLE = (ChildPhase.WAITING, ChildPhase.PAUSED, ChildPhase.ENDED)

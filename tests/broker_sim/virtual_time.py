"""Virtual time, and processes that can be paused and killed in it.

One heap of events, in the order of their times; those of the same time in an order that the seed draws. A process that
is paused does nothing: what happens to it meanwhile waits, in order, until it goes on. One that was killed has never
heard of what was to happen to it.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

__all__ = ["SimProcess", "VirtualTime"]

Action = Callable[[], None]


class VirtualTime:
    """Events in virtual time.

    Args:
        rng: Draws the order of what happens at the same time.

    Attributes:
        now_ms: Milliseconds since the simulation began.
        event_count: Events so far.
        on_event: Called after every event.

    """

    def __init__(self, rng: random.Random) -> None:
        self.now_ms = 0
        self.event_count = 0
        self.on_event: Action = lambda: None
        self._rng = rng
        self._heap: list[tuple[int, float, int, Action]] = []
        self._number = 0
        self._trace = hashlib.sha256()

    def after(self, delay_ms: float, action: Action) -> None:
        """Do something after so long."""
        self._number += 1
        heappush(self._heap, (self.now_ms + max(0, int(delay_ms)), self._rng.random(), self._number, action))

    def run(self, until_ms: int, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass to this moment, or until something holds."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms and not until():
            at_ms, _, number, action = heappop(heap)
            self.now_ms = at_ms
            self.event_count += 1
            self._trace.update(b"%d %d;" % (at_ms, number))
            action()
            self.on_event()
        if not heap or heap[0][0] > until_ms:
            self.now_ms = max(self.now_ms, until_ms)

    def note(self, what: bytes) -> None:
        """Add something to the trace."""
        self._trace.update(what)

    @property
    def signature(self) -> str:
        """Return a hash of all that happened, and in which order."""
        return self._trace.hexdigest()


class SimProcess:
    """One process.

    Args:
        time: In which it lives.
        name: Of it.

    Attributes:
        is_up: It was started and not killed since.
        is_paused: It is stopped, as by SIGSTOP.
        life: How often it was started.

    """

    def __init__(self, time: VirtualTime, name: str) -> None:
        self.time = time
        self.name = name
        self.is_up = False
        self.is_paused = False
        self.life = 0
        self._backlog: deque[tuple[int, Action]] = deque()

    def start(self) -> None:
        """Start it, with all that it does at its start."""
        self.begin_life()

    def begin_life(self) -> None:
        """Note that it lives."""
        assert not self.is_up
        self.is_up = True
        self.life += 1

    def after(self, delay_ms: float, action: Action) -> None:
        """Let something happen to it after so long: if it lives on, and when it is not paused."""
        life = self.life
        self.time.after(delay_ms, lambda: self.happen(life, action))

    def happen(self, life: int, action: Action) -> None:
        """Let something happen to one life of it, now."""
        if life != self.life or not self.is_up:
            return
        if self.is_paused:
            self._backlog.append((life, action))
        else:
            action()

    def pause(self) -> None:
        """Stop it."""
        self.is_paused = True

    def go_on(self) -> None:
        """Let it go on, with what has gathered meanwhile."""
        if not self.is_paused:
            return
        self.is_paused = False
        while self._backlog and not self.is_paused:
            life, action = self._backlog.popleft()
            self.happen(life, action)

    def end_life(self) -> None:
        """Kill it: nothing of it is left but what it has on disk."""
        self.is_up = False
        self.is_paused = False
        self._backlog.clear()

"""Membership of a pool: wanted numbers and reports go in; starts, orders and cancellations come out.

1. A place (0, 1, 2, …) has one worker at a time, and its name: a worker that is started again replaces what may be left
   of the one before, at the broker too.
2. A worker begins to work when it is told to, and it is told once. Whoever is not expected is told to stop.
3. The lowest free places are filled first. Those that have not begun end first, then those that run least.
4. Nobody is cancelled who can still drain: until its time is up.
5. Workers that fail before any of them works are started again after a pause, and not for ever.

Where a worker is:

    launched   started, nothing heard of it (any more)    `_Slot.link` is None
    heard      connected, perhaps not served by a broker  `link`, `report`
    leaving    was told to drain or to stop               `is_leaving`
    gone       its start is over                          no slot

Synchronous; the clock is the caller's.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

import msgspec

from broker.pool.core.messages import Hello, Left, Order, Report

Link: TypeAlias = Hashable
"""A connection, whatever that is."""

FAILURES_MAX = 8
"""Failures of one place in a row, while no worker of the pool works."""
_PAUSE_S = (0.5, 30.0)
_MARGIN_S = 15.0
"""A worker ends a drain by itself when its time is up; so much later it is cancelled."""


class Launch(msgspec.Struct, frozen=True):
    """Start a worker at this place."""

    index: int
    launch: int


class Cancel(msgspec.Struct, frozen=True):
    """End a start by force; it is over some time later."""

    index: int
    launch: int


class Tell(msgspec.Struct, frozen=True):
    """Give a worker an order."""

    link: Link
    order: Order


class Fail(msgspec.Struct, frozen=True):
    """The pool can never work; why."""

    why: str


Effect = Launch | Cancel | Tell | Fail


class _Slot:
    __slots__ = ("attempt", "cancelled_at_s", "index", "is_leaving", "launch", "leave_by_s", "left", "link", "member",
                 "report")  # fmt: skip

    def __init__(self, index: int, launch: int) -> None:
        self.index = index
        self.launch = launch
        self.attempt = -1
        self.member = ""
        self.link: Link | None = None
        self.report = Report()
        self.left: Left | None = None
        self.is_leaving = False
        self.cancelled_at_s: float | None = None
        self.leave_by_s = float("inf")

    @property
    def is_cancelled(self) -> bool:
        return self.cancelled_at_s is not None


class PoolMembership:
    """See the module.

    Args:
        drain_s: What a worker that is told to drain may take.

    Attributes:
        launched_count: Starts, ever.
        lost_count: Workers that were lost, or have ended without being told to.
        cancelled_count: Workers that did not end in time and were cancelled.
        ended_count: Tasks that workers have run to an end.

    """

    def __init__(self, *, drain_s: float) -> None:
        self._drain_s = drain_s
        self._wanted = 0
        self._is_stopping = False
        # By place, in order of their starts; a place is here until its start is over.
        self._slots: dict[int, _Slot] = {}
        self._links: dict[Link, _Slot] = {}
        # Failures in a row by place, since any worker has worked: many may be lost at once, and all come again.
        self._failures: dict[int, int] = {}
        self._not_before_s = 0.0
        self.launched_count = 0
        self.lost_count = 0
        self.cancelled_count = 0
        self.ended_count = 0

    # ---- how it is

    @property
    def is_empty(self) -> bool:
        """True if every start is over."""
        return not self._slots

    @property
    def running(self) -> int:
        """Tasks that run."""
        return sum(slot.report.running for slot in self._slots.values() if slot.link is not None)

    @property
    def running_to_stay(self) -> int:
        """Tasks that run on workers that are to stay."""
        return sum(slot.report.running for slot in self._slots.values() if slot.link and not slot.is_leaving)

    @property
    def served(self) -> int:
        """Workers that a broker serves and that are to stay."""
        return sum(slot.report.is_served and not slot.is_leaving for slot in self._slots.values())

    @property
    def starting(self) -> int:
        """Workers that are to stay, and that no broker serves yet (any more)."""
        return sum(not slot.is_leaving for slot in self._slots.values()) - self.served

    @property
    def leaving(self) -> int:
        """Workers that are about to end."""
        return sum(slot.is_leaving for slot in self._slots.values())

    @property
    def types(self) -> list[str] | None:
        """Task types that the workers run; None = any, or not known yet."""
        known = [slot.report.types for slot in self._slots.values() if slot.report.is_served]
        if not known or any(types is None for types in known):
            return None
        return sorted({name for types in known for name in types or ()})

    @property
    def trouble(self) -> str:
        """Reason why a worker does not work, in words; "" = none that is known."""
        return next((slot.report.trouble for slot in self._slots.values() if slot.link and slot.report.trouble), "")

    @property
    def next_due_s(self) -> float | None:
        """Time at which `plan` has something to do though nothing has happened."""
        times = [slot.leave_by_s for slot in self._slots.values() if not slot.is_cancelled]
        if self._missing:
            times.append(self._not_before_s)
        soonest = min(times, default=float("inf"))
        return None if soonest == float("inf") else soonest

    @property
    def _missing(self) -> int:
        return max(0, self._wanted - sum(not slot.is_leaving for slot in self._slots.values()))

    def cancelled_for_s(self, now_s: float) -> float:
        """Return for how long nobody has been left but who was cancelled; 0 = there is somebody else, or nobody."""
        times = [slot.cancelled_at_s for slot in self._slots.values()]
        if not times or None in times:
            return 0.0
        return now_s - max(at_s for at_s in times if at_s is not None)

    # ---- what is wanted

    def want(self, count: int) -> None:
        """Have so many workers; `plan` says what to do for it."""
        if not self._is_stopping:
            self._wanted = count

    def stop(self) -> None:
        """Have none, for good."""
        self._wanted = 0
        self._is_stopping = True

    def hurry(self, now_s: float) -> None:
        """Wait for nobody any longer."""
        for slot in self._slots.values():
            slot.leave_by_s = min(slot.leave_by_s, now_s)

    def plan(self, now_s: float) -> list[Effect]:
        """Return what is to be done now."""
        effects: list[Effect] = []
        surplus = -self._wanted + sum(not slot.is_leaving for slot in self._slots.values())
        if surplus > 0:
            for slot in self._by_use()[:surplus]:
                effects += self._let_go(slot, now_s)
        if self._missing and now_s >= self._not_before_s:
            free = (index for index in range(len(self._slots) + self._missing) if index not in self._slots)
            for index in [next(free) for _ in range(self._missing)]:
                self.launched_count += 1
                self._slots[index] = _Slot(index, self.launched_count)
                effects.append(Launch(index, self.launched_count))
        for slot in self._slots.values():
            if now_s >= slot.leave_by_s and not slot.is_cancelled:
                effects += self._cancel(slot, now_s)
        return effects

    def _by_use(self) -> list[_Slot]:
        staying = [slot for slot in self._slots.values() if not slot.is_leaving]
        return sorted(staying, key=lambda slot: (slot.link is not None, slot.report.running, -slot.index))

    def _let_go(self, slot: _Slot, now_s: float) -> list[Effect]:
        slot.is_leaving = True
        if slot.link is None:
            return self._cancel(slot, now_s, is_late=False)
        slot.leave_by_s = now_s + self._drain_s + _MARGIN_S
        return [Tell(slot.link, Order.DRAIN)]

    def _cancel(self, slot: _Slot, now_s: float, *, is_late: bool = True) -> list[Effect]:
        slot.is_leaving = True
        slot.cancelled_at_s = now_s
        self.cancelled_count += is_late
        effects: list[Effect] = [] if slot.link is None else [Tell(slot.link, Order.STOP)]
        return [*effects, Cancel(slot.index, slot.launch)]

    # ---- what is heard

    def heard(self, link: Link, hello: Hello) -> list[Effect]:
        """Take a worker in, or send it away."""
        slot = self._slots.get(hello.index)
        if slot is None or slot.launch != hello.launch or slot.is_cancelled:
            return [Tell(link, Order.STOP)]
        is_same = slot.member == hello.member
        if not is_same and hello.attempt <= slot.attempt:
            return [Tell(link, Order.STOP)]  # Of an attempt that was given up: it lives on for a while.
        effects: list[Effect] = []
        if slot.link is not None:
            self._links.pop(slot.link, None)
            effects.append(Tell(slot.link, Order.STOP))
        if not is_same and slot.attempt >= 0:
            self._fail(slot.index)
            slot.report = Report()
        slot.attempt, slot.member, slot.link, slot.left = hello.attempt, hello.member, link, None
        self._links[link] = slot
        if slot.is_leaving:
            return [*effects, Tell(link, Order.DRAIN if is_same else Order.STOP)]
        if self._failures.get(slot.index, 0) > FAILURES_MAX:
            return [*effects, Fail(f"worker {slot.index} was lost again and again before any worker could work")]
        return [*effects, Tell(link, Order.WORK)]

    def reported(self, link: Link, report: Report) -> None:
        """Take note of how a worker is."""
        slot = self._links.get(link)
        if slot is None:
            return
        self.ended_count += max(0, report.ended - slot.report.ended)
        slot.report = report
        if report.is_served:
            self._failures.clear()

    def left(self, link: Link, left: Left) -> list[Effect]:
        """Take note that a worker leaves."""
        slot = self._links.get(link)
        if slot is None:
            return []
        slot.left = left
        slot.report = msgspec.structs.replace(slot.report, is_served=False, running=0)
        return [Fail(left.why)] if left.is_fault and not slot.is_leaving else []

    def lost(self, link: Link) -> None:
        """Take note that a connection is down: the worker, or Spark with another one, may come again."""
        slot = self._links.pop(link, None)
        if slot is not None:
            slot.link = None
            slot.report = msgspec.structs.replace(slot.report, is_served=False, running=0)

    def over(self, index: int, launch: int, error: str, now_s: float) -> list[Effect]:
        """Take note that a start is over; `error` says why if not in good order."""
        slot = self._slots.get(index)
        if slot is None or slot.launch != launch:
            return []
        del self._slots[index]
        if slot.link is not None:
            self._links.pop(slot.link, None)
        if slot.is_leaving:
            return []
        failures = self._fail(index)
        pause_s = min(_PAUSE_S[0] * 2 ** (failures - 1), _PAUSE_S[1])
        self._not_before_s = now_s + pause_s
        why = (slot.left.why if slot.left is not None else "") or error or "it ended"
        if failures > FAILURES_MAX:
            return [Fail(f"worker {index} ended {failures} times before any worker could work; the last time: {why}")]
        return []

    def _fail(self, index: int) -> int:
        """Take note that the worker at a place was lost; return how often in a row."""
        self.lost_count += 1
        self._failures[index] = self._failures.get(index, 0) + 1
        return self._failures[index]

    def validate(self) -> None:
        """Check the invariants; tests call this after every event."""
        for index, slot in self._slots.items():
            assert slot.index == index, "a slot is at its place"
            assert slot.link is None or self._links[slot.link] is slot, "a connection belongs to its slot"
            assert not slot.is_cancelled or slot.is_leaving, "who is cancelled leaves"
        assert all(slot.link == link for link, slot in self._links.items()), "a slot has one connection"
        staying = sum(not slot.is_leaving for slot in self._slots.values())
        assert not self._is_stopping or self._wanted == 0, "a pool that stops wants nobody"
        assert staying + self._missing >= self._wanted, "who is missing is known"

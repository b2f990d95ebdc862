"""Timers: one heap for everything that time makes due.

A plan says only that something has to be looked at by then; whoever looks finds out what is due, if anything. Plans
that were overtaken are passed over, and dropped when there are more of them than of the others.
"""

from __future__ import annotations

from enum import IntEnum
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

_HEAP_SLACK = 1_024


class PlanKind(IntEnum):
    """Kinds of plans; each with its key."""

    TASK = 0  # id
    TRANSACTION = 1  # id
    HOLD = 2  # (tenant, type, key)
    CODE = 3  # code
    WORKER = 4  # worker_id


class Plan(NamedTuple):
    """Something to look at."""

    at_ms: int
    kind: PlanKind
    key: Any


class Timers:
    """Plans, at most one of each thing."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Any]] = []
        self._planned: dict[tuple[int, Any], int] = {}

    def __len__(self) -> int:
        """Return how many things are planned."""
        return len(self._planned)

    def plan(self, kind: PlanKind, key: Any, at_ms: int) -> None:
        """Look at something at this time, and not at the time planned before."""
        thing = (int(kind), key)
        if self._planned.get(thing) == at_ms:
            return
        self._planned[thing] = at_ms
        heappush(self._heap, (at_ms, int(kind), key))
        if len(self._heap) > 2 * len(self._planned) + _HEAP_SLACK:
            self._heap = [(when, kind, key) for (kind, key), when in self._planned.items()]
            heapify(self._heap)

    def forget(self, kind: PlanKind, key: Any) -> None:
        """Do not look at something any more."""
        self._planned.pop((int(kind), key), None)

    def planned_ms(self, kind: PlanKind, key: Any) -> int | None:
        """Return when something is looked at, or None."""
        return self._planned.get((int(kind), key))

    def first(self) -> Plan | None:
        """Return the first plan, or None."""
        heap, planned = self._heap, self._planned
        while heap:
            at_ms, kind, key = heap[0]
            if planned.get((kind, key)) == at_ms:
                return Plan(at_ms, PlanKind(kind), key)
            heappop(heap)
        return None

    def validate(self) -> None:
        """Check that nothing planned is missed."""
        entries = {((kind, key), at_ms) for at_ms, kind, key in self._heap}
        assert entries >= set(self._planned.items())

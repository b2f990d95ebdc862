"""Classes: waiting tasks that are alike to every worker, whoever submitted them."""

from __future__ import annotations

from heapq import heapify
from typing import TYPE_CHECKING

from broker.core.scheduling.gates import Gate

if TYPE_CHECKING:
    from broker.core.scheduling.accounts import Arena
    from broker.core.scheduling.lines import Line
    from broker.core.scheduling.workers import Worker

__all__ = ["TaskClass", "TaskType"]

_NEWEST = 0.125
_SLACK = 64


class TaskType:
    """A type of task.

    Attributes:
        hold: Closed while the type is held for all tenants.
        running: Tasks of it that run.
        duration: Expected of a task, in ms: the mean of the last ones, of all tenants.

    """

    __slots__ = ("duration", "hold", "name", "running")

    def __init__(self, name: str) -> None:
        self.name = name
        self.hold = Gate("held", task_type=name)
        self.running = 0
        self.duration = -1.0

    def learn(self, took_ms: int) -> None:
        """Take note of the duration of a task."""
        known = self.duration
        self.duration = took_ms if known < 0 else known + (took_ms - known) * _NEWEST


class TaskClass:
    """Tasks of one group, type and set of resources.

    Attributes:
        gates: (gate, amount) that every task of it has to pass.
        uses: (gate, amount) of these that a running task of it uses.
        heap: Entries (virtual time, running, tenant, serial, line) of its lines that have tasks and are not parked:
            the line served next is at the top. Entries are lower bounds, put right at the top; one that is not
            its line's `entry` is void.
        line_count: Lines that exist.
        waiting: Tasks that wait in its lines.
        running: Tasks of it that run.
        parked_on: The gate on whose opening it waits, or None.
        room: Entries (load, last use, worker) of workers that may have room for one more of it, least loaded first;
            loads are put right at the top, an entry that is not the worker's in `room_entries` is void. A worker
            found to have none is taken out, and brought back by its `missed` when something on it ends.

    """

    __slots__ = (
        "arena", "gates", "group", "heap", "limits", "line_count", "parked_on", "resources", "room", "room_entries",
        "running", "type", "uses", "version", "waiting",
    )  # fmt: skip

    def __init__(self, group: int, task_type: TaskType, resources: tuple[tuple[str, int], ...], arena: Arena) -> None:
        self.group = group
        self.type = task_type
        self.resources = resources
        self.arena = arena
        self.gates: list[tuple[Gate, int]] = []
        self.uses: list[tuple[Gate, int]] = []
        # Those of `gates` that have a limit, as of the board's `version`.
        self.limits: list[tuple[Gate, int]] = []
        self.version = -1
        self.heap: list[tuple[float, int, str, int, Line]] = []
        self.line_count = 0
        self.waiting = 0
        self.running = 0
        self.parked_on: Gate | None = None
        self.room: list[tuple[float, int, Worker]] = []
        self.room_entries: dict[Worker, tuple[float, int, Worker]] = {}

    def closed_gate(self, version: int) -> Gate | None:
        """Return a gate that lets none of its tasks pass now; `version` is the board's."""
        if self.version != version:
            self.version = version
            self.limits = [(gate, amount) for gate, amount in self.gates if gate.limit is not None]
        for gate, amount in self.limits:
            if not gate.admits(amount):
                return gate
        return None

    def compact(self) -> None:
        """Drop void entries if there are too many."""
        if len(self.heap) > 2 * self.line_count + _SLACK:
            self.heap = [entry for entry in self.heap if entry[4].entry is entry]
            heapify(self.heap)

    def compact_room(self) -> None:
        """Drop void entries of `room` if there are too many."""
        if len(self.room) > 2 * len(self.room_entries) + _SLACK:
            self.room = [entry for entry in self.room if self.room_entries.get(entry[2]) is entry]
            heapify(self.room)

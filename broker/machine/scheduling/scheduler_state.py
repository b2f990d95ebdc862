"""State of the scheduler: all that waits and runs, and what is parked where.

A pair (line, worker) is feasible if the line has a task, no gate of the line or its class is closed, and the worker
has room for it. Which pairs are feasible changes by few events only, and each of them is noted:

line gets its first task, is woken by a gate, has a key let go   -> its class is in `dirty`
class is woken by a gate                                         -> it is in `dirty`
something on a worker ends, or it offers something else          -> the worker is in `freed`

Workers that may run the tasks of some tenants alone do not stand in the way while those have none: see
`TaskClass.benched`.

Invariant: a feasible pair has its class in `dirty`, or its worker in `freed`. So nothing else has to be looked at,
however much waits.
"""

from __future__ import annotations

from heapq import heappush

import msgspec

from broker.machine.scheduling.demand import Demand
from broker.machine.scheduling.model import (
    DEFAULT_POLICY,
    Account,
    Limit,
    Line,
    Profile,
    TaskClass,
    TaskType,
    TenantState,
    VirtualClock,
    Waiting,
    WorkerState,
)


class Running(msgspec.Struct, gc=False):
    """A running task: where, since when, and for how long it was expected to run. As `Waiting`: in no cycle."""

    line: Line
    worker: WorkerState
    since_ms: int
    expected_ms: int


class SchedulerState:
    """See the module.

    Attributes:
        now_ms: Latest logged time seen.
        clock_ms: Logged time, in steps, by which virtual times are compared.
        version: Rises when a limit that concerns all tenants is set: classes then look at their gates anew.
        active: Classes that have entries in their heaps and are not parked.
        dirty: Those of `active` that may be part of a feasible pair.
        freed: Workers that may be part of a feasible pair.
        gates: Of resources, by (resource, tenant, type).
        line_count: Lines that exist.

    """

    def __init__(self) -> None:
        self.now_ms = 0
        self.clock_ms = 0
        self.version = 0
        self.waiting: dict[int, Waiting] = {}
        self.running: dict[int, Running] = {}
        self.tenants: dict[str, TenantState] = {}
        self.types: dict[str, TaskType] = {}
        self.classes: dict[tuple[str, int, tuple[tuple[str, int], ...]], TaskClass] = {}
        self.workers: dict[str, WorkerState] = {}
        self.profiles: dict[bytes, Profile] = {}
        self.active: dict[TaskClass, None] = {}
        self.dirty: dict[TaskClass, None] = {}
        self.freed: dict[WorkerState, None] = {}
        self.gates: dict[tuple[str, str, str], Limit] = {}
        self.hold = Limit("held")
        self.line_count = 0
        self._virtual_clock = VirtualClock()
        self._serial = 0

    def next_serial(self) -> int:
        """Return a number that rises."""
        self._serial += 1
        return self._serial

    # ---- what there is, made when it is first named

    def tenant(self, name: str) -> TenantState:
        tenant = self.tenants.get(name)
        if tenant is None:
            account = Account(name, DEFAULT_POLICY.weight, self._virtual_clock)
            tenant = self.tenants[name] = TenantState(name, account)
        return tenant

    def task_type(self, name: str) -> TaskType:
        found = self.types.get(name)
        if found is None:
            found = self.types[name] = TaskType(name)
        return found

    def gate(self, resource: str, tenant: str, task_type: str) -> Limit:
        """Return the gate of a resource."""
        gate = self.gates.get((resource, tenant, task_type))
        if gate is None:
            gate = Limit("resource", resource=resource, tenant=tenant, task_type=task_type)
            self.gates[resource, tenant, task_type] = gate
        return gate

    def worker(self, worker_id: str) -> WorkerState:
        worker = self.workers.get(worker_id)
        if worker is None:
            worker = self.workers[worker_id] = WorkerState(worker_id, self.next_serial())
        return worker

    def line(self, demand: Demand) -> Line:
        """Return the line in which a task belongs."""
        tenant = self.tenants.get(demand.tenant) or self.tenant(demand.tenant)
        kind = (demand.type, demand.group, demand.resources)
        return tenant.lines.get(kind) or self._new_line(tenant, kind)

    def _new_line(self, tenant: TenantState, kind: tuple[str, int, tuple[tuple[str, int], ...]]) -> Line:
        task_class = self.classes.get(kind) or self._new_class(kind)
        task_type, _, resources = kind
        line = Line(tenant, task_class, tenant.account, self.next_serial())
        cap, type_cap = tenant.cap, tenant.type_cap(task_type)
        line.uses = [(cap, 1), (type_cap, 1)]
        for resource, amount in resources:
            line.uses.append((self.gate(resource, tenant.name, ""), amount))
            line.uses.append((self.gate(resource, tenant.name, task_type), amount))
        line.gates = [(tenant.hold, 1), (tenant.type_hold(task_type), 1), *line.uses]
        line.held = {key for held_type, key in tenant.held_keys if held_type in {"", task_type}}
        tenant.lines[kind] = line
        line.account.lines[line] = None
        task_class.line_count += 1
        self.line_count += 1
        return line

    def _new_class(self, kind: tuple[str, int, tuple[tuple[str, int], ...]]) -> TaskClass:
        name, group, resources = kind
        task_type = self.task_type(name)
        task_class = self.classes[kind] = TaskClass(group, task_type, resources, self._virtual_clock)
        for resource, amount in resources:
            task_class.uses.append((self.gate(resource, "", ""), amount))
            task_class.uses.append((self.gate(resource, "", name), amount))
        task_class.gates = [(self.hold, 1), (task_type.hold, 1), *task_class.uses]
        for worker in self.workers.values():
            self.offer_room(worker, task_class)
        return task_class

    # ---- what is noted

    def line_ready(self, line: Line) -> None:
        """Note that a line that is not parked has a task that it had not."""
        task_class = line.task_class
        if line.entry is None:
            account = line.account
            virtual_time = account.virtual_time(self.clock_ms)
            line.entry = (virtual_time, account.running, account.tenant, line.serial, line)
            heappush(task_class.heap, line.entry)
            account.queued += 1
        if task_class.benched:
            for worker in task_class.benched.pop(line.tenant.name, ()):
                self.offer_room(worker, task_class)
        if task_class.parked_on is None:
            self.active[task_class] = None
            self.dirty[task_class] = None

    def line_leaves(self, line: Line) -> None:
        """Note that a line has nothing to give, or is about to be parked: its entry is void."""
        line.entry = None
        line.account.queued -= 1

    def start_at_floor(self, line: Line) -> None:
        """Have the account of a line that becomes ready after a while start no lower than those it competes with."""
        account = line.account
        floor = account.virtual_clock.floor
        heap = line.task_class.heap
        if heap and heap[0][0] < floor:
            floor = heap[0][0]
        account.raise_to(floor, self.clock_ms)

    def refresh(self, account: Account) -> None:
        """Put right the entries of an account whose virtual time or running tasks have become less."""
        if not account.queued:
            return
        place = (account.virtual_time(self.clock_ms), account.running)
        for line in account.lines:
            if line.entry is not None and line.entry[:2] > place:
                line.entry = (*place, account.tenant, line.serial, line)
                heappush(line.task_class.heap, line.entry)
                line.task_class.compact()

    def wake(self, gate: Limit) -> None:
        """Have what is parked on a gate look again."""
        parked, gate.parked = gate.parked, {}
        for item in parked:
            item.parked_on = None
            if isinstance(item, Line):
                if item.count:
                    if not item.account.queued:
                        self.start_at_floor(item)
                    self.line_ready(item)
            elif item.heap:
                self.active[item] = None
                self.dirty[item] = None

    def offer_room(self, worker: WorkerState, task_class: TaskClass) -> None:
        """Note that a worker has room for a class, if it has; else that the class has missed it."""
        seat = worker.seat(task_class)
        if seat is None:
            return
        if not worker.has_room(seat, task_class.type.name):
            worker.missed[task_class] = None
            return
        load = worker.load
        entry = task_class.room_entries.get(worker)
        if entry is None or load < entry[0]:
            entry = task_class.room_entries[worker] = (load, worker.last_use, worker)
            heappush(task_class.room, entry)
            task_class.compact_room()
        if task_class in self.active:
            self.dirty[task_class] = None

    def admit_freed(self) -> None:
        """Offer the room on freed workers to the classes that missed it."""
        freed, self.freed = self.freed, {}
        for worker in freed:
            if worker.profile is None:
                continue
            missed, worker.missed = worker.missed, {}
            for task_class in missed:
                self.offer_room(worker, task_class)

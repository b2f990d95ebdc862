"""State of the scheduler: all that waits and runs, and what is blocked where.

A pair (queue, worker) is feasible if the queue has a task, no limit of the queue or its class is closed, and the worker
has room for it. Which pairs are feasible changes by few events only, and each of them is noted:

queue gets its first task, is woken by a limit, has a key let go   -> its class is in `dirty`
class is woken by a limit                                         -> it is in `dirty`
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
    FairShare,
    Limit,
    Profile,
    TaskClass,
    TaskQueue,
    TaskType,
    TenantState,
    VirtualClock,
    Waiting,
    WorkerState,
)


class Running(msgspec.Struct, gc=False):
    """A running task: where, since when, and for how long it was expected to run. As `Waiting`: in no cycle."""

    queue: TaskQueue
    worker: WorkerState
    since_ms: int
    expected_ms: int


class SchedulerState:
    """See the module.

    Attributes:
        now_ms: Latest logged time seen.
        clock_ms: Logged time, in steps, by which virtual times are compared.
        version: Rises when a limit that concerns all tenants is set: classes then look at their limits anew.
        active: Classes that have entries in their heaps and are not blocked.
        dirty: Those of `active` that may be part of a feasible pair.
        freed: Workers that may be part of a feasible pair.
        limits: Of resources, by (resource, tenant, type).
        queue_count: Queues that exist.

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
        self.limits: dict[tuple[str, str, str], Limit] = {}
        self.hold = Limit("held")
        self.queue_count = 0
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
            share = FairShare(name, DEFAULT_POLICY.weight, self._virtual_clock)
            tenant = self.tenants[name] = TenantState(name, share)
        return tenant

    def task_type(self, name: str) -> TaskType:
        found = self.types.get(name)
        if found is None:
            found = self.types[name] = TaskType(name)
        return found

    def limit(self, resource: str, tenant: str, task_type: str) -> Limit:
        """Return the limit of a resource."""
        limit = self.limits.get((resource, tenant, task_type))
        if limit is None:
            limit = Limit("resource", resource=resource, tenant=tenant, task_type=task_type)
            self.limits[resource, tenant, task_type] = limit
        return limit

    def worker(self, worker_id: str) -> WorkerState:
        worker = self.workers.get(worker_id)
        if worker is None:
            worker = self.workers[worker_id] = WorkerState(worker_id, self.next_serial())
        return worker

    def queue(self, demand: Demand) -> TaskQueue:
        """Return the queue in which a task belongs."""
        tenant = self.tenants.get(demand.tenant) or self.tenant(demand.tenant)
        kind = (demand.type, demand.group, demand.resources)
        return tenant.queues.get(kind) or self._new_queue(tenant, kind)

    def _new_queue(self, tenant: TenantState, kind: tuple[str, int, tuple[tuple[str, int], ...]]) -> TaskQueue:
        task_class = self.classes.get(kind) or self._new_class(kind)
        task_type, _, resources = kind
        queue = TaskQueue(tenant, task_class, tenant.share, self.next_serial())
        cap, type_cap = tenant.cap, tenant.type_cap(task_type)
        queue.uses = [(cap, 1), (type_cap, 1)]
        for resource, amount in resources:
            queue.uses.append((self.limit(resource, tenant.name, ""), amount))
            queue.uses.append((self.limit(resource, tenant.name, task_type), amount))
        queue.limits = [(tenant.hold, 1), (tenant.type_hold(task_type), 1), *queue.uses]
        queue.held = {key for held_type, key in tenant.held_keys if held_type in {"", task_type}}
        tenant.queues[kind] = queue
        queue.share.queues[queue] = None
        task_class.queue_count += 1
        self.queue_count += 1
        return queue

    def _new_class(self, kind: tuple[str, int, tuple[tuple[str, int], ...]]) -> TaskClass:
        name, group, resources = kind
        task_type = self.task_type(name)
        task_class = self.classes[kind] = TaskClass(group, task_type, resources, self._virtual_clock)
        for resource, amount in resources:
            task_class.uses.append((self.limit(resource, "", ""), amount))
            task_class.uses.append((self.limit(resource, "", name), amount))
        task_class.limits = [(self.hold, 1), (task_type.hold, 1), *task_class.uses]
        for worker in self.workers.values():
            self.offer_room(worker, task_class)
        return task_class

    # ---- what is noted

    def queue_ready(self, queue: TaskQueue) -> None:
        """Note that a queue that is not blocked has a task that it had not."""
        task_class = queue.task_class
        if queue.entry is None:
            share = queue.share
            virtual_time = share.virtual_time(self.clock_ms)
            queue.entry = (virtual_time, share.running, share.tenant, queue.serial, queue)
            heappush(task_class.heap, queue.entry)
            share.ready += 1
        if task_class.benched:
            for worker in task_class.benched.pop(queue.tenant.name, ()):
                self.offer_room(worker, task_class)
        if task_class.blocked_on is None:
            self.active[task_class] = None
            self.dirty[task_class] = None

    def queue_leaves(self, queue: TaskQueue) -> None:
        """Note that a queue has nothing to give, or is about to be blocked: its entry is void."""
        queue.entry = None
        queue.share.ready -= 1

    def start_at_floor(self, queue: TaskQueue) -> None:
        """Have the share of a queue that becomes ready after a while start no lower than those it competes with."""
        share = queue.share
        floor = share.virtual_clock.floor
        heap = queue.task_class.heap
        if heap and heap[0][0] < floor:
            floor = heap[0][0]
        share.raise_to(floor, self.clock_ms)

    def refresh(self, share: FairShare) -> None:
        """Put right the entries of a share whose virtual time or running tasks have become less."""
        if not share.ready:
            return
        place = (share.virtual_time(self.clock_ms), share.running)
        for queue in share.queues:
            if queue.entry is not None and queue.entry[:2] > place:
                queue.entry = (*place, share.tenant, queue.serial, queue)
                heappush(queue.task_class.heap, queue.entry)
                queue.task_class.compact()

    def wake(self, limit: Limit) -> None:
        """Have what is blocked on a limit look again."""
        blocked, limit.blocked = limit.blocked, {}
        for item in blocked:
            item.blocked_on = None
            if isinstance(item, TaskQueue):
                if item.count:
                    if not item.share.ready:
                        self.start_at_floor(item)
                    self.queue_ready(item)
            elif item.heap:
                self.active[item] = None
                self.dirty[item] = None

    def offer_room(self, worker: WorkerState, task_class: TaskClass) -> None:
        """Note that a worker has room for a class, if it has; else that the class has missed it."""
        fit = worker.fit(task_class)
        if fit is None:
            return
        if not worker.has_room(fit, task_class.type.name):
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

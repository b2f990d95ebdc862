"""The objects of the scheduler: limits, shares, classes, queues, tenants and workers, each linked to others.

A queue belongs to a tenant, a class and a share. A class keeps a heap of its queues, and a heap of the workers that
may have room. A limit keeps the queues and classes that are blocked on it.
"""

# Longer than 400 lines: each of these objects refers to the others; apart, their files would import one another.

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Literal, NamedTuple

import msgspec

from broker.machine.policies import TenantPolicy, WorkerOffer

LimitKind = Literal["tenant-limit", "tenant-type-limit", "resource", "held"]

DEFAULT_POLICY = TenantPolicy()

CREDIT_MS_MAX = 60_000
"""Virtual time by which a share may lag behind the clock's floor when it is served."""
QUANTUM_MS = 1
"""Charged per dispatch: tasks that take no time are shared out by count."""
WAITS_KEPT = 128
"""Last waits of a tenant that are remembered, a power of two."""
_ID_BITS = 63
ID_MASK = (1 << _ID_BITS) - 1
"""Mask for the bits of an order that hold the id of its task."""
_WEIGHT_MIN = 1e-6
"""Lower weights count as this: virtual times stay numbers that can be added up."""
_NEWEST = 0.125
"""Share of the newest duration in the expected one."""
_SLACK = 64
"""Entries that are void, beside as many as are valid, before a queue is compacted."""


class Limit:
    """An amount that may be in use at once.

    Attributes:
        kind: The word of `Explanation.reason` for what waits here.
        resource: Its name, for a limit of that kind.
        tenant: Only this tenant's use counts; "" = any.
        type: Only this type's use counts; "" = any.
        used_max: Most in use at once; None = none. A hold is a limit of 0 of which nothing is ever in use.
        used: In use. Invariant: the sum over what runs, never below 0; it exceeds the limit only if that was lowered.
        blocked: What waits for it to open, in the order of its coming. A queue or class is in one limit's `blocked` at
            most: that of its `blocked_on`.

    """

    __slots__ = ("blocked", "kind", "resource", "tenant", "type", "used", "used_max")

    def __init__(self, kind: LimitKind, *, resource: str = "", tenant: str = "", task_type: str = "") -> None:
        self.kind: LimitKind = kind
        self.resource = resource
        self.tenant = tenant
        self.type = task_type
        self.used_max: int | None = None
        self.used = 0
        self.blocked: dict[TaskQueue | TaskClass, None] = {}

    def admits(self, amount: int) -> bool:
        """Tell whether so much more may be in use."""
        return self.used_max is None or self.used + amount <= self.used_max


class VirtualClock:
    """System virtual time, as in fair queueing: of all tenants over all workers, wherever one is served.

    Attributes:
        floor: Virtual time of the share served last; it never falls. Newcomers start here.

    """

    __slots__ = ("floor",)

    def __init__(self) -> None:
        self.floor = 0.0


class FairShare:
    """Service of one tenant by one virtual clock; the package says how it is counted.

    Attributes:
        weight: Of the tenant.
        settled: Virtual time up to `at_ms`, without what is expected.
        at_ms: Logged time up to which service is settled; 0 = nothing has happened yet.
        version: Rises when anything of it changes.
        running: Tasks that run.
        expected_ms: Sum of the durations expected of them.
        started_ms: Sum of their starts.
        waiting: Tasks that wait, whether they may run or not.
        ready: Queues that have an entry in their class. Invariant: the number of `queues` with one.
        queues: Queues of the tenant.
        durations: Expected duration by task type.

    """

    __slots__ = (
        "at_ms", "durations", "expected_ms", "queues", "ready", "running", "settled", "started_ms", "tenant",
        "version", "virtual_clock", "waiting", "weight",
    )  # fmt: skip

    def __init__(self, tenant: str, weight: float, virtual_clock: VirtualClock) -> None:
        self.tenant = tenant
        self.weight = max(weight, _WEIGHT_MIN)
        self.virtual_clock = virtual_clock
        self.settled = 0.0
        self.at_ms = 0
        self.version = 0
        self.running = 0
        self.expected_ms = 0
        self.started_ms = 0
        self.waiting = 0
        self.ready = 0
        self.queues: dict[TaskQueue, None] = {}
        self.durations: dict[str, float] = {}

    def virtual_time(self, now_ms: int) -> float:
        """Return it as of a logged time, or of the last event if that is later."""
        running = self.running
        at_ms = self.at_ms
        if not running or not at_ms:
            return self.settled
        if now_ms < at_ms:  # noqa: PLR1730 - twice as fast as a call
            now_ms = at_ms
        left = self.expected_ms + self.started_ms - running * now_ms
        used = running * (now_ms - at_ms)
        return self.settled + (used + left if left > 0 else used) / self.weight

    def settle(self, now_ms: int) -> None:
        """Count the service up to now."""
        at_ms = self.at_ms
        if now_ms > at_ms:
            if at_ms and self.running:
                self.settled += self.running * (now_ms - at_ms) / self.weight
            self.at_ms = now_ms

    def raise_to(self, virtual_time: float, now_ms: int) -> None:
        """Have it start no lower than this."""
        behind = virtual_time - self.virtual_time(now_ms)
        if behind > 0:
            self.settled += behind
            self.version += 1

    def start(self, expected_ms: int, now_ms: int) -> None:
        """Count a dispatch."""
        self.settle(now_ms)
        self.settled += QUANTUM_MS / self.weight
        self.version += 1
        self.running += 1
        self.expected_ms += expected_ms
        self.started_ms += now_ms

    def resume(self, since_ms: int) -> None:
        """Count a task that runs already: its service is counted from the next event on."""
        self.version += 1
        self.running += 1
        self.started_ms += since_ms

    def end(self, task_type: str, expected_ms: int, since_ms: int, now_ms: int) -> None:
        """Count an end."""
        self.settle(now_ms)
        self.version += 1
        self.running -= 1
        self.expected_ms -= expected_ms
        self.started_ms -= since_ms
        took_ms = max(now_ms - since_ms, 0)
        known = self.durations.get(task_type)
        self.durations[task_type] = took_ms if known is None else known + (took_ms - known) * _NEWEST

    def set_weight(self, weight: float, now_ms: int) -> None:
        """Have service count by another weight from now on."""
        self.settle(now_ms)
        self.version += 1
        self.weight = max(weight, _WEIGHT_MIN)


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
        self.hold = Limit("held", task_type=name)
        self.running = 0
        self.duration = -1.0

    def learn(self, took_ms: int) -> None:
        """Take note of the duration of a task."""
        known = self.duration
        self.duration = took_ms if known < 0 else known + (took_ms - known) * _NEWEST


class TaskClass:
    """Tasks of one group, type and set of resources: alike to every worker, whoever submitted them.

    Attributes:
        limits: (limit, amount) that every task of it has to pass.
        uses: (limit, amount) of these that a running task of it uses.
        heap: Entries (virtual time, running, tenant, serial, queue) of its queues that have tasks and are not blocked:
            the queue served next is at the top. Entries are lower bounds, put right at the top; one that is not
            its queue's `entry` is void.
        queue_count: Queues that exist.
        waiting: Tasks that wait in its queues.
        running: Tasks of it that run.
        blocked_on: The limit on whose opening it waits, or None.
        room: Entries (load, last use, worker) of workers that may have room for one more of it, least loaded first;
            loads are put right at the top, an entry that is not the worker's in `room_entries` is void. A worker
            found to have none is taken out, and brought back by its `missed` when something on it ends.
        benched: Workers that have room but may run the tasks of some tenants alone, none of whom had anything here, by
            each of those tenants: taken out of `room`, and brought back when a queue of one of them is ready.

    """

    __slots__ = (
        "benched", "blocked_on", "group", "heap", "limits", "queue_count", "resources", "room", "room_entries",
        "running", "set_limits", "type", "uses", "version", "virtual_clock", "waiting",
    )  # fmt: skip

    def __init__(
        self, group: int, task_type: TaskType, resources: tuple[tuple[str, int], ...], virtual_clock: VirtualClock
    ) -> None:
        self.group = group
        self.type = task_type
        self.resources = resources
        self.virtual_clock = virtual_clock
        self.limits: list[tuple[Limit, int]] = []
        self.uses: list[tuple[Limit, int]] = []
        # Those of `limits` that have a limit, as of the state's `version`.
        self.set_limits: list[tuple[Limit, int]] = []
        self.version = -1
        self.heap: list[tuple[float, int, str, int, TaskQueue]] = []
        self.queue_count = 0
        self.waiting = 0
        self.running = 0
        self.blocked_on: Limit | None = None
        self.room: list[tuple[float, int, WorkerState]] = []
        self.room_entries: dict[WorkerState, tuple[float, int, WorkerState]] = {}
        self.benched: dict[str, dict[WorkerState, None]] = {}

    def closed_limit(self, version: int) -> Limit | None:
        """Return a limit that lets none of its tasks pass now; `version` is the state's."""
        if self.version != version:
            self.version = version
            self.set_limits = [(limit, amount) for limit, amount in self.limits if limit.used_max is not None]
        for limit, amount in self.set_limits:
            if not limit.admits(amount):
                return limit
        return None

    @property
    def kind(self) -> tuple[str, int, tuple[tuple[str, int], ...]]:
        """Name of the class among the queues of a tenant."""
        return self.type.name, self.group, self.resources

    def bench(self, worker: WorkerState, tenants: Iterable[str]) -> None:
        """Take a worker out of `room` until one of its tenants has something here."""
        del self.room_entries[worker]
        for tenant in tenants:
            self.benched.setdefault(tenant, {})[worker] = None

    def unbench(self, worker: WorkerState, tenants: Iterable[str]) -> None:
        """Forget that a worker was taken out for want of tasks of these tenants."""
        for tenant in tenants:
            benched = self.benched.get(tenant)
            if benched is not None:
                benched.pop(worker, None)
                if not benched:
                    del self.benched[tenant]

    def compact(self) -> None:
        """Drop void entries if there are too many."""
        if len(self.heap) > 2 * self.queue_count + _SLACK:
            self.heap = [entry for entry in self.heap if entry[4].entry is entry]
            heapify(self.heap)

    def compact_room(self) -> None:
        """Drop void entries of `room` if there are too many."""
        if len(self.room) > 2 * len(self.room_entries) + _SLACK:
            self.room = [entry for entry in self.room if self.room_entries.get(entry[2]) is entry]
            heapify(self.room)


def order_of(task_id: int, priority: int) -> int:
    """Return a number by which tasks are served, lowest first: higher priority, then lower id."""
    return task_id - (priority << _ID_BITS) if priority else task_id


class Waiting(msgspec.Struct, gc=False):
    """A waiting task. The collector does not follow it: nothing that a queue reaches may lead back to here."""

    queue: TaskQueue
    order: int
    since_ms: int
    key: str


class TaskQueue:
    """Waiting tasks of one tenant and class, in order of priority and id.

    Tasks leave by being forgotten in `waiting`, the state's dictionary by id; what they leave behind in the queues is
    dropped when it comes to the front, or when there is too much of it.

    Attributes:
        limits: (limit, amount) that every task of it has to pass, beside those of its class.
        uses: (limit, amount) of these that a running task of it uses.
        count: Tasks that wait in it.
        entry: Its entry in the heap of its class, or None. Invariant: None while it is blocked.
        blocked_on: The limit on whose opening it waits, or None.

    """

    __slots__ = (
        "blocked_keys", "blocked_on", "checked_round", "checked_version", "count", "entry", "fifo", "first",
        "heads", "held", "keyed", "keyed_size", "late", "limits", "serial", "set_limits", "share", "task_class",
        "tenant", "uses", "version",
    )  # fmt: skip

    def __init__(self, tenant: TenantState, task_class: TaskClass, share: FairShare, serial: int) -> None:
        self.tenant = tenant
        self.task_class = task_class
        self.share = share
        self.serial = serial
        self.limits: list[tuple[Limit, int]] = []
        self.uses: list[tuple[Limit, int]] = []
        # Those of `limits` that have a limit, as of the tenant's `version`.
        self.set_limits: list[tuple[Limit, int]] = []
        self.version = -1
        self.count = 0
        self.entry: tuple[float, int, str, int, TaskQueue] | None = None
        self.blocked_on: Limit | None = None
        # The order of its first task, as found in this round of the dispatcher with this `version` of the share.
        self.first = 0
        self.checked_round = 0
        self.checked_version = 0
        # Orders of tasks without a key: `fifo` is sorted by being appended to, what would break that is in `late`.
        self.fifo: deque[int] = deque()
        self.late: list[int] = []
        # Orders of tasks with a key: a heap per key, and in `heads` (lowest order, key) of the keys that are not held.
        # Held keys whose tasks came to the front are in `blocked_keys` instead: they cost nothing until then.
        self.keyed: dict[str, list[int]] = {}
        self.keyed_size = 0
        self.heads: list[tuple[int, str]] = []
        self.held: set[str] = set()
        self.blocked_keys: dict[str, None] = {}

    def closed_limit(self) -> Limit | None:
        """Return a limit that lets none of its tasks pass now."""
        tenant = self.tenant
        if self.version != tenant.version:
            self.version = tenant.version
            self.set_limits = [(limit, amount) for limit, amount in self.limits if limit.used_max is not None]
        for limit, amount in self.set_limits:
            if not limit.admits(amount):
                return limit
        return None

    # ---- tasks

    def add(self, order: int, key: str) -> None:
        """Have a task wait in it."""
        self.count += 1
        if key:
            heap = self.keyed.setdefault(key, [])
            heappush(heap, order)
            self.keyed_size += 1
            if heap[0] == order and key not in self.blocked_keys:
                heappush(self.heads, (order, key))
            return
        fifo = self.fifo
        if not fifo or order > fifo[-1]:
            fifo.append(order)
        else:
            heappush(self.late, order)

    def forget(self, order: int, waiting: dict[int, Waiting]) -> None:
        """Note that a task waits in it no more; `waiting` has forgotten it already."""
        self.count -= 1
        fifo = self.fifo
        if fifo and fifo[0] == order:
            fifo.popleft()
        elif not self.count or self.size > 2 * self.count + _SLACK:
            self.compact(waiting)

    def head(self, waiting: dict[int, Waiting]) -> int | None:
        """Return the order of the task to be served first; None if all that wait in it are held by their keys."""
        fifo, late = self.fifo, self.late
        best: int | None = None
        while fifo:
            best = fifo[0]
            task = waiting.get(best & ID_MASK)
            if task is not None and task.order == best and task.queue is self:
                break
            fifo.popleft()
            best = None
        if late:
            while late and not self._waits(late[0], waiting):
                heappop(late)
            if late and (best is None or late[0] < best):
                best = late[0]
        if self.heads:
            keyed = self._keyed_head(waiting)
            if keyed is not None and (best is None or keyed < best):
                best = keyed
        return best

    def _waits(self, order: int, waiting: dict[int, Waiting]) -> bool:
        task = waiting.get(order & ID_MASK)
        return task is not None and task.order == order and task.queue is self

    def _keyed_head(self, waiting: dict[int, Waiting]) -> int | None:
        heads = self.heads
        while heads:
            order, key = heads[0]
            heap = self.keyed.get(key, [])
            while heap and not self._waits(heap[0], waiting):
                heappop(heap)
                self.keyed_size -= 1
            if not heap:
                self.keyed.pop(key, None)
                heappop(heads)
            elif key in self.held:
                heappop(heads)
                self.blocked_keys[key] = None
            elif heap[0] != order:
                heapreplace(heads, (heap[0], key))
            else:
                return order
        return None

    def hold(self, key: str, is_held: bool) -> bool:
        """Leave the tasks of a key out, or take them in again.

        Returns:
            Whether tasks may have come back.

        """
        if is_held:
            self.held.add(key)
            return False
        self.held.discard(key)
        if key not in self.blocked_keys:
            return False
        del self.blocked_keys[key]
        heap = self.keyed.get(key)
        if heap:
            heappush(self.heads, (heap[0], key))
        return bool(heap)

    @property
    def size(self) -> int:
        """Orders in its queues, of tasks that wait and that are gone."""
        return len(self.fifo) + len(self.late) + self.keyed_size

    def compact(self, waiting: dict[int, Waiting]) -> None:
        """Drop what is left behind of tasks that are gone."""
        self.fifo = deque(order for order in self.fifo if self._waits(order, waiting))
        # A task that came back may be there twice.
        seen = set(self.fifo)
        self.late = [order for order in set(self.late) - seen if self._waits(order, waiting)]
        heapify(self.late)
        keyed = {key: sorted({o for o in heap if self._waits(o, waiting)}) for key, heap in self.keyed.items()}
        self.keyed = {key: heap for key, heap in keyed.items() if heap}
        self.keyed_size = sum(map(len, self.keyed.values()))
        self.blocked_keys = {key: None for key in self.blocked_keys if key in self.keyed}
        self.heads = [(heap[0], key) for key, heap in self.keyed.items() if key not in self.blocked_keys]
        heapify(self.heads)

    def orders(self) -> Iterator[int]:
        """Iterate over what waits in it, in no particular order; some of it may be gone."""
        yield from self.fifo
        yield from self.late
        for heap in self.keyed.values():
            yield from heap


class TenantState:
    """Limits, holds and counts of a tenant.

    Attributes:
        policy: In force.
        version: Rises when a limit of this tenant is set: its queues then look at their limits anew.
        hold: Closed while the tenant is held.
        cap: Its `running_max`; in use: its running tasks.
        type_holds: Closed while the tenant's tasks of a type are held.
        type_caps: Its `running_max_by_type`; in use: its running tasks of that type.
        held_keys: (type or "", key) that are held.
        queues: By class.
        dispatched: Tasks started, since the scheduler exists.

    """

    __slots__ = (
        "cap", "dispatched", "held_keys", "hold", "name", "policy", "queues", "share", "type_caps", "type_holds",
        "version", "waits",
    )  # fmt: skip

    def __init__(self, name: str, share: FairShare) -> None:
        self.name = name
        self.share = share
        self.policy = DEFAULT_POLICY
        self.version = 0
        self.hold = Limit("held", tenant=name)
        self.cap = Limit("tenant-limit", tenant=name)
        self.type_holds: dict[str, Limit] = {}
        self.type_caps: dict[str, Limit] = {}
        self.held_keys: set[tuple[str, str]] = set()
        self.queues: dict[tuple[str, int, tuple[tuple[str, int], ...]], TaskQueue] = {}
        self.dispatched = 0
        self.waits: array[int] | None = None

    def type_hold(self, task_type: str) -> Limit:
        """Return the limit of a type's hold."""
        limit = self.type_holds.get(task_type)
        if limit is None:
            limit = self.type_holds[task_type] = Limit("held", tenant=self.name, task_type=task_type)
        return limit

    def type_cap(self, task_type: str) -> Limit:
        """Return the limit of a type's cap."""
        limit = self.type_caps.get(task_type)
        if limit is None:
            limit = self.type_caps[task_type] = Limit("tenant-type-limit", tenant=self.name, task_type=task_type)
            limit.used_max = self.policy.running_max_by_type.get(task_type) or None
        return limit

    def note_wait(self, wait_ms: int) -> None:
        """Remember how long a task waited that starts now."""
        waits = self.waits
        if waits is None:
            waits = self.waits = array("q", bytes(8 * WAITS_KEPT))
        waits[self.dispatched & (WAITS_KEPT - 1)] = max(wait_ms, 0)
        self.dispatched += 1

    def last_waits(self) -> list[int]:
        """Return the last waits in ms, ascending."""
        return [] if self.waits is None else sorted(self.waits[: min(self.dispatched, WAITS_KEPT)])


class Fit(NamedTuple):
    """Fit of one class of tasks on the workers of one profile.

    Attributes:
        rank: Of their group in the order of preference, 0 first.
        threads: For their type.
        amounts: (resource, amount, most) of those of their resources that these workers limit.
        tenant_threads: Of them for one tenant; 0 = all.

    """

    rank: int
    threads: int
    amounts: tuple[tuple[str, int, int], ...]
    tenant_threads: int


class Profile:
    """An offer that any number of workers make."""

    __slots__ = ("fits", "offer", "tenants", "threads")

    def __init__(self, offer: WorkerOffer) -> None:
        self.offer = offer
        # Whose tasks alone are run here, in the offer's order; None = of all.
        self.tenants = None if offer.tenants is None else dict.fromkeys(offer.tenants)
        self.threads = offer.threads_max
        self.fits: dict[TaskClass, Fit | None] = {}

    def fit(self, task_class: TaskClass) -> Fit | None:
        """Return what a class finds here; None = it is not served."""
        try:
            return self.fits[task_class]
        except KeyError:
            fit = self.fits[task_class] = self._fit(task_class)
            return fit

    def may_run(self, tenant: str) -> bool:
        """Tell whether a tenant's tasks may run here at all."""
        return self.tenants is None or tenant in self.tenants

    def _fit(self, task_class: TaskClass) -> Fit | None:
        offer = self.offer
        rank = offer.rank_of(task_class.group)
        threads = offer.threads_for(task_class.type.name)
        if rank is None or threads <= 0:
            return None
        limited = offer.resources
        amounts = tuple((name, amount, limited[name]) for name, amount in task_class.resources if name in limited)
        if any(amount > most for _, amount, most in amounts):
            return None
        percent = offer.tenant_share_percent
        return Fit(rank, threads, amounts, max(1, threads * percent // 100) if percent > 0 else 0)


class WorkerState:
    """A worker, connected or not.

    Attributes:
        profile: None while it gets nothing.
        running: Tasks on it.
        by_type: The same by type; no zeros.
        by_tenant: The same by (tenant, type); kept only while its offer has a share per tenant, else None.
        amounts: In use on it by resource; no zeros.
        last_use: Rises with every dispatch of all workers: the least one has had nothing for longest.
        missed: Classes that found no room on it: they look again when something on it ends.

    """

    __slots__ = ("amounts", "by_tenant", "by_type", "last_use", "missed", "profile", "running", "worker_id")

    def __init__(self, worker_id: str, last_use: int) -> None:
        self.worker_id = worker_id
        self.profile: Profile | None = None
        self.running = 0
        self.by_type: dict[str, int] = {}
        self.by_tenant: dict[tuple[str, str], int] | None = None
        self.amounts: dict[str, int] = {}
        self.last_use = last_use
        self.missed: dict[TaskClass, None] = {}

    @property
    def load(self) -> float:
        """Share of its threads that is busy."""
        profile = self.profile
        return self.running / profile.threads if profile is not None and profile.threads > 0 else 1.0

    def fit(self, task_class: TaskClass) -> Fit | None:
        """Return what a class finds here; None = it is not served."""
        return None if self.profile is None else self.profile.fit(task_class)

    def has_room(self, fit: Fit, task_type: str) -> bool:
        """Tell whether one more task may start, whoever's it is."""
        profile = self.profile
        if profile is None or self.running >= profile.threads:
            return False
        if fit.threads < profile.threads and self.by_type.get(task_type, 0) >= fit.threads:
            return False
        for name, amount, most in fit.amounts:  # noqa: SIM110 - several times as fast as a generator
            if self.amounts.get(name, 0) + amount > most:
                return False
        return True

    def may_run(self, tenant: str) -> bool:
        """Tell whether a tenant's tasks may run here at all."""
        return self.profile is not None and self.profile.may_run(tenant)

    def has_share(self, fit: Fit, tenant: str, task_type: str) -> bool:
        """Tell whether one more task of a tenant that it may run may start, as far as its share is concerned."""
        if not fit.tenant_threads or self.by_tenant is None:
            return True
        return self.by_tenant.get((tenant, task_type), 0) < fit.tenant_threads

    def start(self, tenant: str, task_class: TaskClass, last_use: int) -> None:
        """Count a task that starts on it."""
        self.running += 1
        self.last_use = last_use
        task_type = task_class.type.name
        self.by_type[task_type] = self.by_type.get(task_type, 0) + 1
        if self.by_tenant is not None:
            who = (tenant, task_type)
            self.by_tenant[who] = self.by_tenant.get(who, 0) + 1
        for name, amount in task_class.resources:
            self.amounts[name] = self.amounts.get(name, 0) + amount

    def end(self, tenant: str, task_class: TaskClass) -> None:
        """Count a task that has ended on it."""
        self.running -= 1
        task_type = task_class.type.name
        _subtract(self.by_type, task_type, 1)
        if self.by_tenant is not None:
            _subtract(self.by_tenant, (tenant, task_type), 1)
        for name, amount in task_class.resources:
            _subtract(self.amounts, name, amount)


def _subtract(counts: dict[Any, int], name: object, amount: int) -> None:
    left = counts[name] - amount
    if left:
        counts[name] = left
    else:
        del counts[name]

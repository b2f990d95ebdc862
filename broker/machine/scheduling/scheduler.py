"""The scheduler: what waits, what runs, and what starts next. Pure, and no part of the tables: rebuilt from them."""

from __future__ import annotations

from collections.abc import Iterator

from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.scheduling.demand import Demand
from broker.machine.scheduling.dispatching import Dispatcher
from broker.machine.scheduling.explaining import explain, unserved_count
from broker.machine.scheduling.model import CREDIT_MS_MAX, Waiting, order_of
from broker.machine.scheduling.rules import set_hold, set_limit, set_tenant, set_worker
from broker.machine.scheduling.scheduler_state import Running, SchedulerState
from broker.machine.scheduling.sweeping import sweep
from broker.machine.scheduling.validation import validate
from broker.machine.views import ExplanationView

_QUEUES_MAX = 16_384
"""Queues from which on those that are empty are swept; then whenever there are twice as many as were left."""


class Scheduler:
    """Kept by every replica; asked for assignments on the leader.

    Built anew from the tables (`resume` for what runs, `enqueue` for what waits, and the policies) it knows the same
    tasks, limits and uses of them as the one that was kept up to date. Virtual times are not in the tables: after a
    rebuild all tenants start even.
    """

    def __init__(self) -> None:
        self._state = SchedulerState()
        self._dispatcher = Dispatcher(self._state)
        self._queues_max = _QUEUES_MAX

    # ---- tasks

    def enqueue(self, demand: Demand) -> None:
        """Have a task wait."""
        state = self._state
        task_id = demand.task_id
        assert task_id not in state.waiting, f"task {task_id} waits already"
        assert task_id not in state.running, f"task {task_id} runs"
        if state.queue_count > self._queues_max:
            sweep(state)
            self._queues_max = max(_QUEUES_MAX, 2 * state.queue_count)
        queue = state.queue(demand)
        order = order_of(task_id, demand.priority)
        state.waiting[task_id] = Waiting(queue, order, demand.since_ms, demand.key)
        queue.add(order, demand.key)
        queue.task_class.waiting += 1
        share = queue.share
        share.version += 1
        share.waiting += 1
        # A queue without an entry has nothing that could start, however many of its tasks wait: their keys are held.
        if (queue.count == 1 or demand.key or queue.entry is None) and queue.blocked_on is None:
            if share.waiting == 1:
                state.start_at_floor(queue)
            state.queue_ready(queue)

    def withdraw(self, task_id: int) -> None:
        """Have a task wait no more, without having been started; nothing happens if it does not wait."""
        state = self._state
        task = state.waiting.pop(task_id, None)
        if task is not None:
            queue = task.queue
            queue.forget(task.order, state.waiting)
            queue.task_class.waiting -= 1
            queue.share.version += 1
            queue.share.waiting -= 1

    def change(self, demand: Demand) -> None:
        """Change what a waiting task asks for."""
        assert demand.task_id in self._state.waiting, f"task {demand.task_id} does not wait"
        self.withdraw(demand.task_id)
        self.enqueue(demand)

    def start(self, task_id: int, worker_id: str, now_ms: int) -> None:
        """Count a waiting task as running."""
        state = self._state
        task = state.waiting.pop(task_id)
        queue = task.queue
        task_class = queue.task_class
        queue.forget(task.order, state.waiting)
        task_class.waiting -= 1
        share = queue.share
        share.waiting -= 1
        expected = share.durations.get(task_class.type.name, task_class.type.duration)
        expected_ms = int(expected) if expected > 0 else 0
        virtual_clock = share.virtual_clock
        virtual_time = share.virtual_time(state.clock_ms)
        if virtual_time > virtual_clock.floor:
            virtual_clock.floor = virtual_time
        elif virtual_time < virtual_clock.floor - CREDIT_MS_MAX:
            share.raise_to(virtual_clock.floor - CREDIT_MS_MAX, state.clock_ms)
        share.start(expected_ms, now_ms)
        queue.tenant.note_wait(now_ms - task.since_ms)
        self._run(task_id, Running(queue, state.workers.get(worker_id) or state.worker(worker_id), now_ms, expected_ms))
        state.now_ms = max(state.now_ms, now_ms)

    def resume(self, demand: Demand, worker_id: str, since_ms: int) -> None:
        """Count a task as running that does already."""
        state = self._state
        assert demand.task_id not in state.waiting, f"task {demand.task_id} waits"
        assert demand.task_id not in state.running, f"task {demand.task_id} runs already"
        queue = state.queue(demand)
        queue.share.resume(since_ms)
        self._run(demand.task_id, Running(queue, state.worker(worker_id), since_ms, 0))

    def _run(self, task_id: int, running: Running) -> None:
        """Count what a task uses."""
        state = self._state
        state.running[task_id] = running
        queue = running.queue
        task_class = queue.task_class
        task_class.type.running += 1
        task_class.running += 1
        for limit, amount in queue.uses:
            limit.used += amount
        for limit, amount in task_class.uses:
            limit.used += amount
        running.worker.start(queue.share.tenant, task_class, state.next_serial())

    def end(self, task_id: int, now_ms: int) -> None:
        """Count a running task as running no more."""
        state = self._state
        running = state.running.pop(task_id)
        queue, worker = running.queue, running.worker
        task_class = queue.task_class
        task_class.type.running -= 1
        task_class.running -= 1
        for limit, amount in queue.uses:
            limit.used -= amount
            if limit.blocked:
                state.wake(limit)
        for limit, amount in task_class.uses:
            limit.used -= amount
            if limit.blocked:
                state.wake(limit)
        share = queue.share
        worker.end(share.tenant, task_class)
        if worker.profile is not None:
            worker.missed[task_class] = None
            state.freed[worker] = None
        elif not worker.running:
            state.workers.pop(worker.worker_id, None)
        task_class.type.learn(max(now_ms - running.since_ms, 0))
        share.end(task_class.type.name, running.expected_ms, running.since_ms, now_ms)
        if share.ready:
            state.refresh(share)
        state.now_ms = max(state.now_ms, now_ms)

    # ---- rules

    def set_worker(self, worker_id: str, offer: WorkerOffer | None) -> None:
        """Set what a worker offers; None = it gets nothing more, what runs there still counts."""
        set_worker(self._state, worker_id, offer)

    def set_tenant(self, tenant: str, policy: TenantPolicy | None) -> None:
        """Set the policy of a tenant; None = the default."""
        set_tenant(self._state, tenant, policy)

    def set_hold(self, tenant: str, type: str, key: str, is_paused: bool) -> None:  # noqa: A002 - as in the tables
        """Hold tasks back by tenant, type and key, or no more; "" = any; a key needs its tenant."""
        set_hold(self._state, tenant, type, key, is_paused)

    def set_limit(self, resource: str, tenant: str, type: str, amount_max: int | None) -> None:  # noqa: A002 - same
        """Limit what all workers use of a resource, for one tenant or type if they are named; None = no limit."""
        set_limit(self._state, resource, tenant, type, amount_max)

    # ---- what starts next

    @property
    def has_work(self) -> bool:
        """True if something may be dispatchable; False if nothing changed since `next_assignments` found no more."""
        state = self._state
        return bool(state.dirty) or (bool(state.freed) and bool(state.active))

    def next_assignments(self, now_ms: int) -> Iterator[tuple[int, str]]:
        """Yield (task, worker) until nothing more can start; the caller has called `start` before it asks for the next.

        It may be left off at any time.
        """
        return self._dispatcher.next_assignments(now_ms)

    # ---- what is asked

    def used(self, resource: str, tenant: str = "", type: str = "") -> int:  # noqa: A002 - as in the tables
        """Return how much of a resource what runs has, in all or of one tenant or type or both; "" = any."""
        limit = self._state.limits.get((resource, tenant, type))
        return 0 if limit is None else limit.used

    def resources_in_use(self) -> list[tuple[str, int]]:
        """Return (resource, amount) of what runs, by name."""
        limits = self._state.limits.items()
        return sorted((resource, limit.used) for (resource, *rest), limit in limits if limit.used and not any(rest))

    def waits(self, tenant: str) -> tuple[int, list[int]]:
        """Return how many tasks of a tenant were started, and how long the last ones waited in ms, ascending."""
        found = self._state.tenants.get(tenant)
        return (0, []) if found is None else (found.dispatched, found.last_waits())

    def explain(self, task_id: int) -> ExplanationView:
        """Say why a waiting task waits.

        Raises:
            KeyError: It does not wait.

        """
        return explain(self._state, task_id)

    def unserved_count(self) -> int:
        """Return the number of waiting tasks that no connected worker serves."""
        return unserved_count(self._state)

    def known(self) -> tuple[dict[int, tuple[object, ...]], dict[int, tuple[object, ...]], dict[object, int]]:
        """Return what waits and what runs, by id, and what is in use of resources: for tests, to be compared."""
        state = self._state
        waiting: dict[int, tuple[object, ...]] = {}
        for task_id, task in state.waiting.items():
            kind = task.queue.task_class
            waiting[task_id] = (
                task.queue.tenant.name, kind.type.name, kind.group, kind.resources, task.order, task.key
            )  # fmt: skip
        running: dict[int, tuple[object, ...]] = {}
        for task_id, run in state.running.items():
            kind = run.queue.task_class
            running[task_id] = (run.queue.tenant.name, kind.type.name, kind.resources, run.worker.worker_id)
        return waiting, running, {key: limit.used for key, limit in state.limits.items() if limit.used}

    def validate(self) -> None:
        """Check every invariant.

        Raises:
            AssertionError: One does not hold.

        """
        validate(self._state)

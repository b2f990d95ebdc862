"""The scheduler: what waits, what runs, and what starts next. Pure, and no part of the tables: rebuilt from them."""

from __future__ import annotations

from collections.abc import Iterator

from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.scheduling.demand import Demand
from broker.machine.scheduling.dispatching import Dispatcher
from broker.machine.scheduling.explaining import explain
from broker.machine.scheduling.model import CREDIT_MS_MAX, Waiting, order_of
from broker.machine.scheduling.rules import set_hold, set_limit, set_tenant, set_worker
from broker.machine.scheduling.scheduler_state import Running, SchedulerState
from broker.machine.scheduling.sweeping import sweep
from broker.machine.scheduling.validation import validate
from broker.machine.views import ExplanationView

_LINES_MAX = 16_384
"""Lines from which on those that are empty are swept; then whenever there are twice as many as were left."""


class Scheduler:
    """Kept by every replica; asked for assignments on the leader.

    Built anew from the tables (`resume` for what runs, `enqueue` for what waits, and the policies) it knows the same
    tasks, limits and uses of them as the one that was kept up to date. Virtual times are not in the tables: after a
    rebuild all tenants start even.
    """

    def __init__(self) -> None:
        self._state = SchedulerState()
        self._dispatcher = Dispatcher(self._state)
        self._lines_max = _LINES_MAX

    # ---- tasks

    def enqueue(self, demand: Demand) -> None:
        """Have a task wait."""
        state = self._state
        task_id = demand.task_id
        assert task_id not in state.waiting, f"task {task_id} waits already"
        assert task_id not in state.running, f"task {task_id} runs"
        if state.line_count > self._lines_max:
            sweep(state)
            self._lines_max = max(_LINES_MAX, 2 * state.line_count)
        line = state.line(demand)
        order = order_of(task_id, demand.priority)
        state.waiting[task_id] = Waiting(line, order, demand.since_ms, demand.key)
        line.add(order, demand.key)
        line.task_class.waiting += 1
        account = line.account
        account.version += 1
        account.waiting += 1
        # A line without an entry has nothing that could start, however many of its tasks wait: their keys are held.
        if (line.count == 1 or demand.key or line.entry is None) and line.parked_on is None:
            if account.waiting == 1:
                state.start_at_floor(line)
            state.line_ready(line)

    def withdraw(self, task_id: int) -> None:
        """Have a task wait no more, without having been started; nothing happens if it does not wait."""
        state = self._state
        task = state.waiting.pop(task_id, None)
        if task is not None:
            line = task.line
            line.forget(task.order, state.waiting)
            line.task_class.waiting -= 1
            line.account.version += 1
            line.account.waiting -= 1

    def change(self, demand: Demand) -> None:
        """Change what a waiting task asks for."""
        assert demand.task_id in self._state.waiting, f"task {demand.task_id} does not wait"
        self.withdraw(demand.task_id)
        self.enqueue(demand)

    def start(self, task_id: int, worker_id: str, now_ms: int) -> None:
        """Count a waiting task as running."""
        state = self._state
        task = state.waiting.pop(task_id)
        line = task.line
        task_class = line.task_class
        line.forget(task.order, state.waiting)
        task_class.waiting -= 1
        account = line.account
        account.waiting -= 1
        expected = account.durations.get(task_class.type.name, task_class.type.duration)
        expected_ms = int(expected) if expected > 0 else 0
        virtual_clock = account.virtual_clock
        virtual_time = account.virtual_time(state.clock_ms)
        if virtual_time > virtual_clock.floor:
            virtual_clock.floor = virtual_time
        elif virtual_time < virtual_clock.floor - CREDIT_MS_MAX:
            account.raise_to(virtual_clock.floor - CREDIT_MS_MAX, state.clock_ms)
        account.start(expected_ms, now_ms)
        line.tenant.note_wait(now_ms - task.since_ms)
        self._run(task_id, Running(line, state.workers.get(worker_id) or state.worker(worker_id), now_ms, expected_ms))
        state.now_ms = max(state.now_ms, now_ms)

    def resume(self, demand: Demand, worker_id: str, since_ms: int) -> None:
        """Count a task as running that does already."""
        state = self._state
        assert demand.task_id not in state.waiting, f"task {demand.task_id} waits"
        assert demand.task_id not in state.running, f"task {demand.task_id} runs already"
        line = state.line(demand)
        line.account.resume(since_ms)
        self._run(demand.task_id, Running(line, state.worker(worker_id), since_ms, 0))

    def _run(self, task_id: int, running: Running) -> None:
        """Count what a task uses."""
        state = self._state
        state.running[task_id] = running
        line = running.line
        task_class = line.task_class
        task_class.type.running += 1
        task_class.running += 1
        for gate, amount in line.uses:
            gate.used += amount
        for gate, amount in task_class.uses:
            gate.used += amount
        running.worker.start(line.account.tenant, task_class, state.next_serial())

    def end(self, task_id: int, now_ms: int) -> None:
        """Count a running task as running no more."""
        state = self._state
        running = state.running.pop(task_id)
        line, worker = running.line, running.worker
        task_class = line.task_class
        task_class.type.running -= 1
        task_class.running -= 1
        for gate, amount in line.uses:
            gate.used -= amount
            if gate.parked:
                state.wake(gate)
        for gate, amount in task_class.uses:
            gate.used -= amount
            if gate.parked:
                state.wake(gate)
        account = line.account
        worker.end(account.tenant, task_class)
        if worker.profile is not None:
            worker.missed[task_class] = None
            state.freed[worker] = None
        elif not worker.running:
            state.workers.pop(worker.worker_id, None)
        task_class.type.learn(max(now_ms - running.since_ms, 0))
        account.end(task_class.type.name, running.expected_ms, running.since_ms, now_ms)
        if account.queued:
            state.refresh(account)
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
        gate = self._state.gates.get((resource, tenant, type))
        return 0 if gate is None else gate.used

    def resources_in_use(self) -> list[tuple[str, int]]:
        """Return (resource, amount) of what runs, by name."""
        gates = self._state.gates.items()
        return sorted((resource, gate.used) for (resource, *rest), gate in gates if gate.used and not any(rest))

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

    def known(self) -> tuple[dict[int, tuple[object, ...]], dict[int, tuple[object, ...]], dict[object, int]]:
        """Return what waits and what runs, by id, and what is in use of resources: for tests, to be compared."""
        state = self._state
        waiting: dict[int, tuple[object, ...]] = {}
        for task_id, task in state.waiting.items():
            kind = task.line.task_class
            waiting[task_id] = (
                task.line.tenant.name, kind.type.name, kind.group, kind.resources, task.order, task.key
            )  # fmt: skip
        running: dict[int, tuple[object, ...]] = {}
        for task_id, run in state.running.items():
            kind = run.line.task_class
            running[task_id] = (run.line.tenant.name, kind.type.name, kind.resources, run.worker.worker_id)
        return waiting, running, {key: gate.used for key, gate in state.gates.items() if gate.used}

    def validate(self) -> None:
        """Check every invariant.

        Raises:
            AssertionError: One does not hold.

        """
        validate(self._state)

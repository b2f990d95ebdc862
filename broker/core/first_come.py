"""A scheduler that serves tasks in order of priority and id, and knows offers but no fairness and no limits."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from broker.core.policies import TenantPolicy, WorkerOffer
from broker.core.shown import Explanation
from broker.core.statuses import TaskStatus

__all__ = ["Demand", "Scheduler"]


class Demand(msgspec.Struct, frozen=True):
    """What a waiting task asks for."""

    task_id: int
    tenant: str
    type: str
    group: int
    priority: int
    resources: tuple[tuple[str, int], ...]
    key: str = ""
    since_ms: int = 0


class Scheduler:
    """See the module."""

    def __init__(self) -> None:
        self._waiting: dict[int, Demand] = {}
        self._running: dict[int, tuple[Demand, str]] = {}
        self._offers: dict[str, WorkerOffer] = {}
        self._paused: set[tuple[str, str, str]] = set()
        self._has_work = False

    def enqueue(self, demand: Demand) -> None:
        """It waits."""
        assert demand.task_id not in self._running
        assert demand.task_id not in self._waiting
        self._waiting[demand.task_id] = demand
        self._has_work = True

    def withdraw(self, task_id: int) -> None:
        """It waits no more."""
        self._waiting.pop(task_id, None)

    def change(self, demand: Demand) -> None:
        """Of a waiting task."""
        assert demand.task_id in self._waiting
        self._waiting[demand.task_id] = demand
        self._has_work = True

    def start(self, task_id: int, worker_id: str, now_ms: int) -> None:  # noqa: ARG002
        """It was assigned."""
        self._running[task_id] = (self._waiting.pop(task_id), worker_id)

    def end(self, task_id: int, now_ms: int) -> None:  # noqa: ARG002
        """It runs no more."""
        del self._running[task_id]
        self._has_work = True

    def resume(self, demand: Demand, worker_id: str, since_ms: int) -> None:  # noqa: ARG002
        """It runs already."""
        self._running[demand.task_id] = (demand, worker_id)

    def set_worker(self, worker_id: str, offer: WorkerOffer | None) -> None:
        """Take or lose an offer."""
        if offer is None:
            self._offers.pop(worker_id, None)
        else:
            self._offers[worker_id] = offer
        self._has_work = True

    def set_tenant(self, tenant: str, policy: TenantPolicy | None) -> None:
        """Pass over it."""

    def set_hold(self, tenant: str, type: str, key: str, is_paused: bool) -> None:  # noqa: A002
        """Hold back, or not."""
        (self._paused.add if is_paused else self._paused.discard)((tenant, type, key))
        self._has_work = True

    def set_limit(self, resource: str, tenant: str, type: str, amount_max: int | None) -> None:  # noqa: A002
        """Pass over it."""

    @property
    def has_work(self) -> bool:
        """Whether something may be dispatchable."""
        return self._has_work and bool(self._waiting)

    def _is_held(self, demand: Demand) -> bool:
        return any(
            (tenant in {"", demand.tenant}) and (kind in {"", demand.type}) and (key in {"", demand.key})
            for tenant, kind, key in self._paused
        )

    def next_assignments(self, now_ms: int) -> Iterator[tuple[int, str]]:  # noqa: ARG002
        """Yield (task, worker)."""
        count: dict[str, int] = {}
        by_type: dict[tuple[str, str], int] = {}
        for demand, worker in self._running.values():
            count[worker] = count.get(worker, 0) + 1
            by_type[worker, demand.type] = by_type.get((worker, demand.type), 0) + 1
        for demand in sorted(self._waiting.values(), key=lambda one: (-one.priority, one.task_id)):
            if self._is_held(demand):
                continue
            for worker, offer in self._offers.items():
                used = by_type.get((worker, demand.type), 0)
                free = count.get(worker, 0) < offer.threads_max and used < offer.threads_for(demand.type)
                if free and offer.rank_of(demand.group) is not None:
                    count[worker] = count.get(worker, 0) + 1
                    by_type[worker, demand.type] = used + 1
                    yield demand.task_id, worker
                    break
        self._has_work = False

    def explain(self, task_id: int) -> Explanation:
        """Of a waiting task."""
        place = sorted(self._waiting).index(task_id)
        return Explanation(int(TaskStatus.WAITING), "runnable", f"{place} tasks wait before it", place)

    def validate(self) -> None:
        """Check the invariants."""
        assert not self._waiting.keys() & self._running.keys()

"""What a scheduler may and has to do, found out the slow way: by looking at every task, worker and limit."""

# ruff: noqa: A001, A002 - as the scheduler names it

from __future__ import annotations

from collections import Counter

from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.scheduling.demand import Demand
from broker.machine.scheduling.scheduler import Scheduler

__all__ = ["Checked"]


class Checked:
    """A scheduler together with plain tables of what it was told; every assignment is checked against these."""

    def __init__(self) -> None:
        self.scheduler = Scheduler()
        self.waiting: dict[int, Demand] = {}
        self.running: dict[int, tuple[Demand, str, int]] = {}
        self.offers: dict[str, WorkerOffer] = {}
        self.policies: dict[str, TenantPolicy] = {}
        self.holds: set[tuple[str, str, str]] = set()
        self.limits: dict[tuple[str, str, str], int] = {}
        self.now_ms = 1_700_000_000_000
        self.log: list[tuple[int, str]] = []
        self._next_id = 0

    # ---- what is told

    def submit(self, tenant="a", type="t", group=1, priority=0, resources=(), key="", count=1) -> list[int]:
        ids = []
        for _ in range(count):
            self._next_id += 1
            demand = Demand(self._next_id, tenant, type, group, priority, tuple(resources), key, self.now_ms)
            self.waiting[demand.task_id] = demand
            self.scheduler.enqueue(demand)
            ids.append(demand.task_id)
        return ids

    def withdraw(self, task_id: int) -> None:
        del self.waiting[task_id]
        self.scheduler.withdraw(task_id)

    def change(self, demand: Demand) -> None:
        self.waiting[demand.task_id] = demand
        self.scheduler.change(demand)

    def end(self, task_id: int, *, again: bool = False) -> None:
        demand, _, _ = self.running.pop(task_id)
        self.scheduler.end(task_id, self.now_ms)
        if again:
            self.waiting[task_id] = demand
            self.scheduler.enqueue(demand)

    def worker(self, worker_id: str, offer: WorkerOffer | None) -> None:
        if offer is None:
            self.offers.pop(worker_id, None)
        else:
            self.offers[worker_id] = offer
        self.scheduler.set_worker(worker_id, offer)

    def tenant(self, name: str, policy: TenantPolicy | None) -> None:
        self.policies.pop(name, None)
        if policy is not None:
            self.policies[name] = policy
        self.scheduler.set_tenant(name, policy)

    def hold(self, tenant: str, type: str, key: str, is_paused: bool) -> None:
        (self.holds.add if is_paused else self.holds.discard)((tenant, type, key))
        self.scheduler.set_hold(tenant, type, key, is_paused)

    def limit(self, resource: str, tenant: str, type: str, amount_max: int | None) -> None:
        self.limits.pop((resource, tenant, type), None)
        if amount_max is not None:
            self.limits[resource, tenant, type] = amount_max
        self.scheduler.set_limit(resource, tenant, type, amount_max)

    # ---- what it does

    def dispatch(self, most: int | None = None, *, check: bool = True) -> list[tuple[int, str]]:
        """Have it assign until it finds nothing more, or so many tasks."""
        done: list[tuple[int, str]] = []
        for task_id, worker_id in self.scheduler.next_assignments(self.now_ms):
            if check:
                self.check_assignment(task_id, worker_id)
            self.scheduler.start(task_id, worker_id, self.now_ms)
            self.running[task_id] = (self.waiting.pop(task_id), worker_id, self.now_ms)
            done.append((task_id, worker_id))
            if most is not None and len(done) >= most:
                break
        self.log += done
        return done

    def check_assignment(self, task_id: int, worker_id: str) -> None:
        demand = self.waiting[task_id]
        assert not self.obstacle(demand, worker_id), (demand, worker_id, self.obstacle(demand, worker_id))
        rank = self.offers[worker_id].rank_of(demand.group)
        for other in self.waiting.values():
            if other.tenant == demand.tenant and not self.obstacle(other, worker_id):
                other_rank = self.offers[worker_id].rank_of(other.group)
                assert other_rank is not None
                assert rank is not None
                place = (rank, -demand.priority, demand.task_id)
                assert place <= (other_rank, -other.priority, other.task_id), (demand, "before", other)
            elif not self.obstacle(other, worker_id):
                assert rank <= self.offers[worker_id].rank_of(other.group), (demand, "before", other)

    # ---- what it may do

    def amount(self, resource: str, tenant: str, type: str) -> int:
        return sum(
            dict(demand.resources).get(resource, 0)
            for demand, _, _ in self.running.values()
            if tenant in {"", demand.tenant} and type in {"", demand.type}
        )

    def obstacle(self, demand: Demand, worker_id: str) -> str:
        """Name a limit that keeps a task from a worker; "" = there is none."""
        for tenant, type, key in self.holds:
            if tenant in {"", demand.tenant} and type in {"", demand.type} and key in {"", demand.key}:
                return "held"
        policy = self.policies.get(demand.tenant, TenantPolicy())
        own = [running.type for running, _, _ in self.running.values() if running.tenant == demand.tenant]
        if policy.running_max and len(own) >= policy.running_max:
            return "tenant-limit"
        cap = policy.running_max_by_type.get(demand.type, 0)
        if cap and own.count(demand.type) >= cap:
            return "tenant-type-limit"
        for resource, amount in demand.resources:
            for (name, tenant, type), most in self.limits.items():
                if name == resource and tenant in {"", demand.tenant} and type in {"", demand.type}:
                    if self.amount(resource, tenant, type) + amount > most:
                        return "resource"
        return self.local_obstacle(demand, worker_id)

    def local_obstacle(self, demand: Demand, worker_id: str) -> str:
        offer = self.offers[worker_id]
        here = [running for running, worker, _ in self.running.values() if worker == worker_id]
        threads = offer.threads_for(demand.type)
        if offer.rank_of(demand.group) is None or not threads:
            return "not served"
        if offer.tenants is not None and demand.tenant not in offer.tenants:
            return "tenant not served"
        if len(here) >= offer.threads_max or sum(other.type == demand.type for other in here) >= threads:
            return "workers-full"
        for resource, amount in demand.resources:
            used = sum(dict(other.resources).get(resource, 0) for other in here)
            if resource in offer.resources and used + amount > offer.resources[resource]:
                return "worker-resource"
        share = max(1, threads * offer.tenant_share_percent // 100)
        mine = sum(other.type == demand.type and other.tenant == demand.tenant for other in here)
        return "tenant-share" if offer.tenant_share_percent and mine >= share else ""

    def check_exhausted(self) -> None:
        """Check that nothing more could have started."""
        assert not self.scheduler.has_work
        for demand in self.waiting.values():
            for worker_id in self.offers:
                assert self.obstacle(demand, worker_id), f"{demand} could run on {worker_id}"

    def check_limits(self) -> None:
        """Check that counters agree and that nothing is below zero; limits that were lowered may be exceeded."""
        self.scheduler.validate()

    def running_of(self) -> Counter[str]:
        return Counter(demand.tenant for demand, _, _ in self.running.values())

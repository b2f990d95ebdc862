"""What stands between a waiting task and a worker, by rules of its own: offers, caps, shares, limits, holds.

It counts anew what runs each time it is asked: slow, and right.
"""

from __future__ import annotations

from typing import Any

import msgspec

from broker.machine.policies import TenantPolicy, WorkerOffer
from broker.machine.statuses import WorkerStatus

__all__ = ["AuditedGates", "AuditedTask", "amounts_of"]

_DEFAULT = TenantPolicy()


def amounts_of(text: str) -> dict[str, int]:
    """Return the amounts in a column of resources."""
    return {name: int(amount) for name, _, amount in (part.rpartition("=") for part in text.split(",") if part)}


class AuditedTask:
    """What the log says of a task."""

    __slots__ = (
        "assignment_id", "attempts", "due_ms", "ended_ms", "held", "is_expired", "outcome", "row", "status",
        "worker_id",
    )  # fmt: skip

    def __init__(self, row: dict[str, Any], status: int) -> None:
        self.row = row
        self.status = status
        self.attempts = 0
        self.assignment_id = 0
        self.worker_id = ""
        self.held: dict[str, int] = {}
        self.due_ms = row["start_ms"]
        self.ended_ms = 0
        self.outcome = ""
        self.is_expired = False


class AuditedGates:
    """See the module.

    Attributes:
        running: What runs, by task.
        workers: (status, offer, incarnation) by id.
        policies: By tenant.
        holds: Whether it pauses, by (tenant, type, key).
        limits: By (resource, tenant, type).

    """

    def __init__(self) -> None:
        self.running: dict[int, AuditedTask] = {}
        self.workers: dict[str, tuple[int, WorkerOffer, str]] = {}
        self.policies: dict[str, TenantPolicy] = {}
        self.holds: dict[tuple[str, str, str], bool] = {}
        self.limits: dict[tuple[str, str, str], int] = {}

    # ---- what the log says

    def set_worker(self, row: dict[str, Any]) -> None:
        """Fold a row of a worker."""
        offer = msgspec.json.decode(row["offer"], type=WorkerOffer)
        self.workers[row["worker_id"]] = (row["status"], offer, row["incarnation"])

    def set_tenant(self, row: dict[str, Any]) -> None:
        """Fold a row of a tenant."""
        columns = msgspec.json.decode(row["policy"])
        columns |= {name: row[name] for name in ("weight", "running_max", "waiting_max")}
        self.policies[row["tenant"]] = msgspec.convert(columns, TenantPolicy)

    def forget_tenant(self, row: dict[str, Any]) -> None:
        """Fold that a tenant has no policy of its own any more."""
        del self.policies[row["tenant"]]

    def set_hold(self, row: dict[str, Any]) -> None:
        """Fold a hold."""
        self.holds[row["tenant"], row["type"], row["key"]] = row["is_paused"]

    def end_hold(self, row: dict[str, Any]) -> None:
        """Fold the end of a hold."""
        del self.holds[row["tenant"], row["type"], row["key"]]

    def set_limit(self, row: dict[str, Any]) -> None:
        """Fold a limit."""
        self.limits[row["resource"], row["tenant"], row["type"]] = row["amount_max"]

    def end_limit(self, row: dict[str, Any]) -> None:
        """Fold the end of a limit."""
        del self.limits[row["resource"], row["tenant"], row["type"]]

    # ---- what it means

    def fault(self, task: AuditedTask, worker_id: str) -> tuple[str, str] | None:
        """Return which invariant it would break to give a task to a worker, and why; None if it may have it."""
        found = self.workers.get(worker_id)
        if found is None or found[0] != WorkerStatus.CONNECTED:
            return "legal", f"worker {worker_id} is {found}"
        return self._common_fault(task) or self._worker_fault(task, worker_id, found[1])

    def startable(self, tasks: dict[int, AuditedTask]) -> tuple[int, str] | None:
        """Return a (task, worker) of these tasks that nothing stands between, or None."""
        for task_id, task in tasks.items():
            if self._common_fault(task) is None:
                for worker_id in self.workers:
                    if self.fault(task, worker_id) is None:
                        return task_id, worker_id
        return None

    def _common_fault(self, task: AuditedTask) -> tuple[str, str] | None:
        row = task.row
        tenant, kind = row["tenant"], row["type"]
        names = (tenant, kind, row["key"])
        for held, is_paused in self.holds.items():
            if is_paused and all(part in ("", name) for part, name in zip(held, names, strict=True)):
                return "holds", f"{held} is held"
        policy = self.policies.get(tenant, _DEFAULT)
        running = self.running.values()
        mine = [one for one in running if one.row["tenant"] == tenant]
        for bound, count in (
            (policy.running_max, len(mine)),
            (policy.running_max_by_type.get(kind, 0), sum(one.row["type"] == kind for one in mine)),
        ):
            if bound and count >= bound:
                return "limits", f"tenant {tenant} has {count} running, and may have {bound}"
        for resource, amount in amounts_of(row["resources"]).items():
            for (named, of_tenant, of_type), limit in self.limits.items():
                if named != resource or of_tenant not in ("", tenant) or of_type not in ("", kind):
                    continue
                used = sum(
                    one.held.get(resource, 0)
                    for one in running
                    if of_tenant in ("", one.row["tenant"]) and of_type in ("", one.row["type"])
                )
                if used + amount > limit:
                    return "limits", f"{resource} of ({of_tenant!r}, {of_type!r}): {used} + {amount} of {limit}"
        return None

    def _worker_fault(self, task: AuditedTask, worker_id: str, offer: WorkerOffer) -> tuple[str, str] | None:
        row = task.row
        tenant, kind = row["tenant"], row["type"]
        if offer.tenants is not None and tenant not in offer.tenants:
            return "worker-scope", f"worker {worker_id} may run tasks of {offer.tenants}, not of {tenant}"
        group = row["group"] or self.policies.get(tenant, _DEFAULT).group
        if offer.rank_of(group) is None:
            return "limits", f"worker {worker_id} does not serve group {group}"
        runs = [one for one in self.running.values() if one.worker_id == worker_id]
        of_type = [one for one in runs if one.row["type"] == kind]
        threads = offer.threads_for(kind)
        if len(runs) >= offer.threads_max or len(of_type) >= threads:
            return "limits", f"{worker_id} runs {len(runs)}, of type {kind} {len(of_type)} of {threads}"
        if offer.tenant_share_percent:
            share = max(1, threads * offer.tenant_share_percent // 100)
            own = sum(one.row["tenant"] == tenant for one in of_type)
            if own >= share:
                return "limits", f"tenant {tenant} has {own} threads of {worker_id}, its share is {share}"
        for resource, amount in amounts_of(row["resources"]).items():
            limit = offer.resources.get(resource)
            used = sum(one.held.get(resource, 0) for one in runs)
            if limit is not None and used + amount > limit:
                return "limits", f"{resource} of {worker_id}: {used} + {amount} of {limit}"
        return None

"""Workers: what each one offers and has in use."""

from __future__ import annotations

from typing import Any, NamedTuple

from broker.core.policies import WorkerOffer
from broker.core.scheduling.classes import TaskClass

__all__ = ["Profile", "Seat", "Worker"]


class Seat(NamedTuple):
    """What tasks of one class find on workers of one profile.

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

    __slots__ = ("offer", "seats", "threads")

    def __init__(self, offer: WorkerOffer) -> None:
        self.offer = offer
        self.threads = offer.threads_max
        self.seats: dict[TaskClass, Seat | None] = {}

    def seat(self, task_class: TaskClass) -> Seat | None:
        """Return what a class finds here; None = it is not served."""
        try:
            return self.seats[task_class]
        except KeyError:
            seat = self.seats[task_class] = self._seat(task_class)
            return seat

    def _seat(self, task_class: TaskClass) -> Seat | None:
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
        return Seat(rank, threads, amounts, max(1, threads * percent // 100) if percent > 0 else 0)


class Worker:
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

    __slots__ = (
        "amounts", "by_tenant", "by_type", "last_use", "missed", "profile", "running", "worker_id",
    )  # fmt: skip

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

    def seat(self, task_class: TaskClass) -> Seat | None:
        """Return what a class finds here; None = it is not served."""
        return None if self.profile is None else self.profile.seat(task_class)

    def has_room(self, seat: Seat, task_type: str) -> bool:
        """Tell whether one more task may start, whoever's it is."""
        profile = self.profile
        if profile is None or self.running >= profile.threads:
            return False
        if seat.threads < profile.threads and self.by_type.get(task_type, 0) >= seat.threads:
            return False
        for name, amount, most in seat.amounts:  # noqa: SIM110 - several times as fast as a generator
            if self.amounts.get(name, 0) + amount > most:
                return False
        return True

    def has_share(self, seat: Seat, tenant: str, task_type: str) -> bool:
        """Tell whether one more task of a tenant may start, as far as its share is concerned."""
        if not seat.tenant_threads or self.by_tenant is None:
            return True
        return self.by_tenant.get((tenant, task_type), 0) < seat.tenant_threads

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

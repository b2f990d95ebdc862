"""Index of the workers.

1. Every row of `workers` is here with its offer, decoded.
2. Exactly the dead ones have a plan: they are forgotten in time.
"""

from __future__ import annotations

from collections import deque

import msgspec

from broker.machine.index.timers import PlanKind, Timers
from broker.machine.policies import WorkerOffer
from broker.machine.rows import WorkerRow
from broker.machine.statuses import WorkerStatus

_OFFER = msgspec.json.Decoder(WorkerOffer)


class WorkerIndex:
    """Workers and their offers.

    Args:
        timers: Get the plans of dead workers.
        retention_ms: How long a dead worker is kept.

    Attributes:
        by_id: Rows.
        offers: What workers offer, by id.
        awaited: Workers of whom the present leader has not looked yet whether they came to it; no state.

    """

    def __init__(self, timers: Timers, retention_ms: int) -> None:
        self._timers = timers
        self._retention_ms = retention_ms
        self._promoted_ms = 0
        self.by_id: dict[str, WorkerRow] = {}
        self.offers: dict[str, WorkerOffer] = {}
        self.awaited: deque[str] = deque()

    def set(self, worker_id: str, row: WorkerRow) -> WorkerOffer:
        """Add a worker, or replace its row; return what it offers."""
        offer = _OFFER.decode(row.offer)
        self.by_id[worker_id] = row
        self.offers[worker_id] = offer
        if row.status == WorkerStatus.DEAD:
            self._timers.plan(PlanKind.WORKER, worker_id, row.changed_ms + self._retention_ms)
        else:
            self._timers.forget(PlanKind.WORKER, worker_id)
        return offer

    def remove(self, worker_id: str) -> None:
        """Forget a worker."""
        del self.by_id[worker_id]
        del self.offers[worker_id]
        self._timers.forget(PlanKind.WORKER, worker_id)

    def was_replaced(self, worker_id: str, incarnation: str) -> bool:
        """Return whether another incarnation of a worker has taken the place of this one."""
        row = self.by_id.get(worker_id)
        return row is not None and bool(row.replaced) and incarnation in row.replaced.split(",")

    def is_promoted(self, promoted_ms: int) -> bool:
        """Return whether `promote` was called for the leader that began then."""
        return self._promoted_ms == promoted_ms

    def promote(self, promoted_ms: int) -> None:
        """Await the workers that came to an earlier leader, unless that was done for this one."""
        if self._promoted_ms != promoted_ms:
            self._promoted_ms = promoted_ms
            self.awaited.extend(one for one, row in self.by_id.items() if row.connected_ms < promoted_ms)

    def validate(self) -> None:
        """Check the invariants."""
        assert list(self.by_id) == list(self.offers)
        for worker_id, row in self.by_id.items():
            end_ms = row.changed_ms + self._retention_ms if row.status == WorkerStatus.DEAD else None
            assert self._timers.planned_ms(PlanKind.WORKER, worker_id) == end_ms, f"worker {worker_id} and its plan"
            assert self.offers[worker_id] == _OFFER.decode(row.offer), f"worker {worker_id} and its offer"

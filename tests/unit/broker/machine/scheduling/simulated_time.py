"""Tasks that take simulated time: who gets how much of the threads."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable

from tests.unit.broker.machine.scheduling.brute_force import Checked

__all__ = ["SimulatedTime"]


class SimulatedTime:
    """A checked scheduler whose tasks end by themselves; what each tenant used is counted in thread-ms.

    Tenants of `backlog` always have this many tasks waiting: they submit one for each that starts.
    """

    def __init__(self, took_ms: Callable[[str], int]) -> None:
        self.checked = Checked()
        self.took_ms = took_ms
        self.used: Counter[str] = Counter()
        self.started: Counter[str] = Counter()
        self.ends: list[tuple[int, int]] = []
        self.backlog: dict[str, dict[str, object]] = {}
        self.order: list[str] = []

    def keep_waiting(self, tenant: str, count: int = 100, **task: object) -> None:
        """Have so many tasks of a tenant wait from now on; 0 = submit no more."""
        self.backlog.pop(tenant, None)
        if count:
            self.backlog[tenant] = task
            self.checked.submit(tenant, count=count, **task)

    def dispatch(self) -> None:
        checked = self.checked
        for task_id, _ in checked.dispatch(check=False):
            tenant = checked.running[task_id][0].tenant
            heapq.heappush(self.ends, (checked.now_ms + self.took_ms(tenant), task_id))
            self.started[tenant] += 1
            self.order.append(tenant)
            if tenant in self.backlog:
                checked.submit(tenant, **self.backlog[tenant])

    def run(self, for_ms: int) -> Counter[str]:
        """Let time go on.

        Returns:
            Thread-ms used in this time, by tenant.

        """
        checked = self.checked
        before = self._used_by_now()
        until = checked.now_ms + for_ms
        self.dispatch()
        while self.ends and self.ends[0][0] <= until:
            checked.now_ms = self.ends[0][0]
            while self.ends and self.ends[0][0] <= checked.now_ms:
                _, task_id = heapq.heappop(self.ends)
                demand, _, since_ms = checked.running[task_id]
                self.used[demand.tenant] += checked.now_ms - since_ms
                checked.end(task_id)
            self.dispatch()
        checked.now_ms = until
        return self._used_by_now() - before

    def _used_by_now(self) -> Counter[str]:
        used = self.used.copy()
        for demand, _, since_ms in self.checked.running.values():
            used[demand.tenant] += self.checked.now_ms - since_ms
        return used

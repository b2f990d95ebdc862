"""Counts of the tasks that the airlines' workers have ended, as the screen shows them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

from broker.client.client import AsyncBrokerClient
from rsm_demo.airline_work import AIRLINES
from rsm_demo.screen import Screen, TenantLine

TICK_S = 0.2
"""Between two looks."""
_RATE_WINDOW_S = 2.0


class TenantCounts:
    """Counts of the airlines' ended tasks, and how many a second.

    Args:
        screen: Where to show them.

    Attributes:
        before: Tasks that had ended before the act, by airline; they do not count.

    """

    def __init__(self, screen: Screen) -> None:
        self.before: Mapping[str, int] = dict.fromkeys(AIRLINES, 0)
        self._screen = screen
        self._ended: dict[str, int] = dict.fromkeys(AIRLINES, 0)
        self._looks: deque[tuple[float, dict[str, int]]] = deque()

    @property
    def ended(self) -> int:
        """Tasks of both airlines that have ended."""
        return sum(self._ended.values())

    async def look(self, client: AsyncBrokerClient) -> None:
        """Ask the broker, and show what it says."""
        views: list[TenantLine] = []
        async for tenant in client.tenants():
            if tenant.tenant in self._ended:
                self._ended[tenant.tenant] = tenant.by_status.get("finished", 0) - self.before[tenant.tenant]
                waiting = tenant.by_status.get("waiting", 0)
                views.append(TenantLine(tenant.tenant, tenant.policy.weight, waiting, self._ended[tenant.tenant]))
        now = time.monotonic()
        self._looks.append((now, dict(self._ended)))
        while len(self._looks) > 1 and now - self._looks[0][0] > _RATE_WINDOW_S:
            self._looks.popleft()
        first_s, first = self._looks[0]
        for view in views:
            view.per_s = (view.ended - first[view.tenant]) / max(now - first_s, TICK_S)
        self._screen.view.tenants = views
        self._screen.refresh()

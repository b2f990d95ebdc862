"""The screen's counts of tenants leave out what had ended before, and whose tenants are not the act's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from rsm_demo.airline_work import AIRLINES
from rsm_demo.tenant_counts import TenantCounts


class _Client:
    def __init__(self) -> None:
        self.finished = dict.fromkeys((*AIRLINES, "another"), 0)

    async def tenants(self) -> AsyncIterator[Any]:
        for tenant, finished in self.finished.items():
            by_status = {"finished": finished, "waiting": 7}
            yield SimpleNamespace(tenant=tenant, by_status=by_status, policy=SimpleNamespace(weight=2.0))


def test_counts_begin_after_what_had_ended() -> None:
    screen: Any = SimpleNamespace(view=SimpleNamespace(tenants=[]), refresh=lambda: None)
    client: Any = _Client()
    first, second = AIRLINES
    counts = TenantCounts(screen)
    counts.before = {first: 100, second: 10}
    client.finished |= {first: 100, second: 10, "another": 1_000}
    asyncio.run(counts.look(client))
    assert counts.ended == 0
    client.finished |= {first: 103, second: 14}
    asyncio.run(counts.look(client))
    assert counts.ended == 7
    assert [(line.tenant, line.weight, line.waiting, line.ended) for line in screen.view.tenants] == [
        (first, 2.0, 7, 3),
        (second, 2.0, 7, 4),
    ]
    assert all(line.per_s > 0 for line in screen.view.tenants)

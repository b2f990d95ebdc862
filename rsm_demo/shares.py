"""Shares of workers between tenants, by the order in which the log assigned the tasks.

A clock is no judge of that: on a busy machine whoever looks every 0.2 s may look seconds late.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from broker.client.client import AsyncBrokerClient
from rsm_demo.airline_work import TASK_TYPE

_TICK_S = 0.05


async def newest_assignment(tenants: Mapping[str, AsyncBrokerClient]) -> int:
    """Return the id of the newest assignment whose task runs; wait for one. Tasks have to be left."""
    while True:
        running = [
            one.assignment_id
            for client in tenants.values()
            async for one in client.tasks(status="running", type=TASK_TYPE)
        ]
        if running:
            return max(running)
        await asyncio.sleep(_TICK_S)


async def assignments(
    tenants: Mapping[str, AsyncBrokerClient], ids: Mapping[str, Collection[int]]
) -> list[tuple[int, str]]:
    """Return (assignment id, tenant) of these tasks, in order. A task that ran again stands where it ran last."""
    given: list[tuple[int, str]] = []
    for tenant, client in tenants.items():
        known = set(ids[tenant])
        given += [(one.assignment_id, tenant) async for one in client.tasks(type=TASK_TYPE) if one.task_id in known]
    return sorted(given)


def share_ratio(given: Sequence[tuple[int, str]], *, airlines: tuple[str, str], after: int, up_to: int) -> float:
    """Return how many tasks of the one airline were assigned for each of the other.

    Args:
        given: As `assignments` returns them.
        airlines: The one, the other.
        after: Assignments behind this one count …
        up_to: … up to this one.

    """
    count = Counter(airline for assignment, airline in given if after < assignment <= up_to)
    return count[airlines[0]] / max(1, count[airlines[1]])

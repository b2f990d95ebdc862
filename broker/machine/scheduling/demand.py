"""Demand of a waiting task."""

from __future__ import annotations

import msgspec


class Demand(msgspec.Struct, frozen=True):
    """Demand of a waiting task: its place in the order, and the resources that it needs.

    Attributes:
        task_id: Rises from task to task; under equal priority the lower one goes first.
        tenant: Whose it is.
        type: Routed by it.
        group: Of workers' preferences.
        priority: Among the tenant's own, higher first.
        resources: (name, amount) that it holds while it runs: sorted by name, amounts above 0.
        key: By which the tenant may hold it back; "" = none.
        since_ms: Logged time since when it could run.

    """

    task_id: int
    tenant: str
    type: str
    group: int
    priority: int
    resources: tuple[tuple[str, int], ...]
    key: str = ""
    since_ms: int = 0

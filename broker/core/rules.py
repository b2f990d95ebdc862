"""How long things are kept, and the like: what an operator may set, and only the leader's decisions read."""

from __future__ import annotations

import msgspec

__all__ = ["BrokerRules"]


class BrokerRules(msgspec.Struct, frozen=True):
    """Rules of a broker; replicas may differ in them, since what is decided by them is logged.

    Attributes:
        retention_ms: How long ended tasks are kept.
        dead_retention_ms: How long dead letters (ERROR) are kept.
        ended_max: Ended tasks kept, dead letters too; of more, those go first whose time would be over first.
        request_retention_ms: How long the reply to a request key is kept.
        requests_max: Replies kept; of more the oldest go first.
        worker_retention_ms: How long dead workers are kept.
        timeout_grace_ms: Given to a worker to end a run that has taken too long, before the broker asks it to.
        purge_tasks_max: Tasks removed in one entry.
        waiting_max: Tasks not ended of all tenants together, beyond which submits are refused; 0 = no bound.

    """

    retention_ms: int = 3_600_000
    dead_retention_ms: int = 7 * 24 * 3_600_000
    ended_max: int = 500_000
    request_retention_ms: int = 3_600_000
    requests_max: int = 500_000
    worker_retention_ms: int = 24 * 3_600_000
    timeout_grace_ms: int = 5_000
    purge_tasks_max: int = 1_000
    waiting_max: int = 5_000_000

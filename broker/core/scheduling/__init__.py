"""Who runs what, where and when: classes of tasks, lines of tenants, gates of limits, accounts of service."""

from __future__ import annotations

from broker.core.scheduling.demand import Demand
from broker.core.scheduling.scheduler import Scheduler

__all__ = ["Demand", "Scheduler"]

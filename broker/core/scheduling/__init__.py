"""Who runs what, where and when.

class      tasks of one group, type and set of resources: alike to every worker
line       the waiting tasks of one tenant and class, by priority and id; held keys are set aside
gate       a limit beyond one worker (resource, cap, hold); what meets a closed one is parked on it, and woken by it
account    the service a tenant has had, as virtual time: the least is served first
worker     an offer, and what runs there; a class that finds no room on it looks again when something there ends

A step costs the classes that are neither empty nor parked, and log n of their tenants; never what waits or is parked,
and never the workers that are full. What keeps a task waiting is always one of the above, so it can be told.
"""

from __future__ import annotations

from broker.core.scheduling.demand import Demand
from broker.core.scheduling.scheduler import Scheduler

__all__ = ["Demand", "Scheduler"]

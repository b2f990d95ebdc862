"""Whose scheduler the machine uses: the one place that names it."""

from __future__ import annotations

from broker.core.first_come import Demand, Scheduler

__all__ = ["Demand", "Scheduler"]

"""Tests of state machines: a machine on a log in memory, its properties, a cluster of it under faults in virtual time.

See docs/testing.md. What else is here are twins and simulated clusters, on which the library is tested itself.
"""

from __future__ import annotations

from rsm_spark.testing.checking import check_machine
from rsm_spark.testing.ghosts import BrokenInvariantError
from rsm_spark.testing.harness import ExecutedCommand, MachineHarness, NamedRecord
from rsm_spark.testing.simulating import SimulationSummary, simulate

__all__ = [
    "BrokenInvariantError",
    "ExecutedCommand",
    "MachineHarness",
    "NamedRecord",
    "SimulationSummary",
    "check_machine",
    "simulate",
]

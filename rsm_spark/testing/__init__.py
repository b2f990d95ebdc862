"""Tests of state machines: a machine on a log in memory, its properties, a cluster of it under faults in virtual time.

And a real cluster, for tests of everything together. See docs/testing.md. What else is here are twins and simulated
clusters, on which the library is tested itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rsm_spark.testing.checking import check_machine
from rsm_spark.testing.ghosts import BrokenInvariantError
from rsm_spark.testing.harness import ExecutedCommand, MachineHarness, NamedRecord
from rsm_spark.testing.simulating import SimulationSummary, simulate

if TYPE_CHECKING:  # It needs what servers need, and a second to load.
    from rsm_spark.testing.local_cluster import LocalCluster

__all__ = [
    "BrokenInvariantError",
    "ExecutedCommand",
    "LocalCluster",
    "MachineHarness",
    "NamedRecord",
    "SimulationSummary",
    "check_machine",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Load the one name that is not loaded with the others."""
    if name != "LocalCluster":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rsm_spark.testing.local_cluster import LocalCluster  # noqa: PLC0415

    return LocalCluster

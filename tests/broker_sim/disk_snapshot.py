"""What a simulated broker has on its disk."""

from __future__ import annotations

from rsm_spark.core.machine import MachineDescription, Row
from rsm_spark.core.state import ReplicatedState, StateTip

__all__ = ["DiskSnapshot"]


class DiskSnapshot:
    """A snapshot of confirmed state.

    Args:
        state: As it is now.
        applied: Entries in it.

    """

    def __init__(self, state: ReplicatedState, applied: int) -> None:
        self.rows: list[Row] = list(state.rows())
        self.tip: StateTip = state.tip
        self.description: MachineDescription | None = state.description
        self.applied = applied

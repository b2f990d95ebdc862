"""Schedule of the demonstration's faults: pure, so that the conductor only asks what is due."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec


class Blow(StrEnum):
    """Faults that are done to the running system."""

    KILL_LEADER = "kill -9 of the leader"
    KILL_BOOKIE = "kill -9 of a bookie"
    RETURN_BOOKIE = "the bookie comes back"


class Strike(msgspec.Struct, frozen=True):
    """One blow, once this share of the records (0..1) has been acknowledged."""

    at_share: float
    blow: Blow


FULL = (
    Strike(0.30, Blow.KILL_LEADER),
    Strike(0.50, Blow.KILL_BOOKIE),
    Strike(0.60, Blow.KILL_LEADER),
    Strike(0.70, Blow.RETURN_BOOKIE),
)


_LOAD_AHEAD = 0.10
"""Share of the records that may be put after a strike is due and before it falls."""


class Schedule:
    """Strikes in order; each falls once.

    The load may run no further ahead than `ceiling`: on a quick machine it would be over before the conductor looks.
    """

    def __init__(self, strikes: Sequence[Strike] = FULL, *, with_bookies: bool = True) -> None:
        self._left = [strike for strike in strikes if with_bookies or strike.blow is Blow.KILL_LEADER]

    def due(self, share: float, has_leader: bool = True) -> Blow | None:
        """Return the next blow if its time has come, else None.

        Args:
            share: Of the records, 0..1, acknowledged.
            has_leader: One leads and can be killed.

        """
        if not self._left or share < self._left[0].at_share:
            return None
        if self._left[0].blow is Blow.KILL_LEADER and not has_leader:
            return None
        return self._left.pop(0).blow

    @property
    def ceiling(self) -> float:
        """The share of the records (0..1) up to which puts may begin until the next strike has fallen."""
        return self._left[0].at_share + _LOAD_AHEAD if self._left else 1.0

    @property
    def left(self) -> tuple[Strike, ...]:
        """Strikes that have not fallen yet."""
        return tuple(self._left)

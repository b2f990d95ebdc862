"""When the demonstration breaks what: pure, so that the conductor only asks what is due."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

__all__ = ["Blow", "Schedule", "Strike"]


class Blow(StrEnum):
    """What is done to the running system."""

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


class Schedule:
    """Strikes in order; each falls once."""

    def __init__(self, strikes: Sequence[Strike] = FULL, *, with_bookies: bool = True) -> None:
        self._left = [strike for strike in strikes if with_bookies or strike.blow is Blow.KILL_LEADER]

    def due(self, share: float) -> Blow | None:
        """Return the next blow if its time has come at this share of acknowledged records, else None."""
        if self._left and share >= self._left[0].at_share:
            return self._left.pop(0).blow
        return None

    @property
    def left(self) -> tuple[Strike, ...]:
        """Strikes that have not fallen yet."""
        return tuple(self._left)

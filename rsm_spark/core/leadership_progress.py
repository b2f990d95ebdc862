"""Progress of a leadership: its log moves, or it has come further on the way to its first entry. Pure.

A take-over has some five steps, each a write to bookies or to the metadata store. Where all their disks are slow each
takes seconds: who gave up because nothing was confirmed for as long as one step may take would leave the next replica
to begin from the first step, and so on, as long as the disks are slow. A leader with nothing to do writes idle entries.
"""

from __future__ import annotations

from typing import Final

from rsm_spark.core.leadership import LeaderProtocol
from rsm_spark.core.leadership_table import Phase
from rsm_spark.core.state import StateTip

_STEPS: Final = {
    Phase.FOLLOW: 0,
    Phase.CLAIM: 0,
    Phase.RECOVER: 1,
    Phase.CREATE: 3,
    Phase.CHAIN: 4,
}
"""Steps that lie behind a leadership; all of them in any other phase. Between 1 and 3 a ledger is recovered."""
_ALL: Final = 5


class LeadershipProgress:
    """See the module. Times are loop time.

    Args:
        tip: Of the log when it began, as far as this process knows.
        now_s: When it began.

    Attributes:
        still_s: How long it had not moved, at the last look.

    """

    def __init__(self, tip: StateTip, now_s: float) -> None:
        self.still_s = 0.0
        self._moved_s = now_s
        self._tip = tip
        # Most steps that lay behind it at any look since the tip moved: who closes a ledger and makes the next one,
        # again and again, gets nowhere.
        self._furthest = 0

    def look(self, tip: StateTip, protocol: LeaderProtocol, now_s: float) -> None:
        """Look at it; called several times within what is too long.

        Args:
            tip: Of the log, as far as it is confirmed, or replayed.
            protocol: How far it has come.
            now_s: The time.

        """
        steps = _STEPS.get(protocol.phase, _ALL)
        if protocol.phase is Phase.RECOVER and protocol.has_recovered:
            steps += 1
        if tip != self._tip:
            self._tip, self._furthest, self._moved_s = tip, steps, now_s
        elif steps > self._furthest:
            self._furthest, self._moved_s = steps, now_s
        self.still_s = now_s - self._moved_s

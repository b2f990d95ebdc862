"""Lease of a writer: its bookies have promised that nobody hears of a fence for a while. Sans-IO.

As long as promises (`ledger.core.lease_promises`) of an ack quorum of each write set hold, no recovery has fenced
enough bookies to close the ledger: the counting is that of a fence check, at every moment until the lease ends.

1. A promise counts from the moment before it was asked for, for its time divided by `RATE_RATIO_MAX`. So it ends here
   before it ends at the bookie, as long as no clock runs faster than another by more than that ratio.
2. A bookie that is about to leave the ensemble counts no more, from before the metadata are written. The end of the
   change, and the end of the writer, take everything back; what was asked for before, and comes later, counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ledger.core.coverage import is_quorum_of_each
from ledger.core.quorum import QuorumConfig

RATE_RATIO_MAX: Final = 1.25
"""Bound on how much faster the clock of a bookie may run than that of a writer.

A quartz is right to 0.02 %, NTP slews a clock by 0.05 %, and chrony, unless it is told otherwise, by 1/12: two clocks
that are slewed against each other differ by 18 %.
"""


class ReadLease:
    """The promises that one writer holds; times are seconds of its own clock, which counts on while it is suspended.

    Attributes:
        term: Number of the ensemble and of its writer's life; promises count in the one in which they were asked for.
        until: When the lease ends; it is over, or there was none, if that is not in the future.

    """

    __slots__ = ("_quorum", "_until", "term", "until")

    def __init__(self, quorum: QuorumConfig) -> None:
        self.term = 0
        self.until = float("-inf")
        self._quorum = quorum
        self._until: dict[int, float] = {}  # by position

    def grant(self, position: int, asked_at: float, lease_ms: int) -> None:
        """Take a position's promise of so many milliseconds, asked for at `asked_at` or later."""
        until = asked_at + lease_ms / 1000 / RATE_RATIO_MAX
        if until > self._until.get(position, float("-inf")):
            self._until[position] = until
            self._count()

    def exclude(self, positions: Iterable[int]) -> None:
        """Count what these positions promised no more."""
        for position in positions:
            self._until.pop(position, None)
        self._count()

    def void(self) -> None:
        """Count nothing that was promised or asked for until now."""
        self.term += 1
        self._until.clear()
        self.until = float("-inf")

    def _count(self) -> None:
        """Find the moment up to which promises of an ack quorum of each write set hold."""
        positions = 0
        for position, until in sorted(self._until.items(), key=lambda item: -item[1]):
            positions |= 1 << position
            if is_quorum_of_each(positions, self._quorum):
                self.until = until
                return
        self.until = float("-inf")

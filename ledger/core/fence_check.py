"""Fence checks of a writer: do its bookies still hold the ledger for this writer alone? Sans-IO.

A check begins, then bookies of the ensemble are asked "is the ledger fenced?": as few as can prove it, and the others
when one of those has said anything else, or nothing for too long. It is proven once an ack quorum of each write set has
said no. Then, at the moment at which the check began, no recovery had fenced enough bookies to close the ledger: a
recovery goes on only when no write set has an ack quorum that it has not heard of (`is_covered`), and fences are never
undone. When in the check a bookie is asked does not matter: its no, given later, says what was so before, too.

1. Answers count for the check with which they were asked for, and for no other: a no from before says nothing of now.
2. A bookie that may not belong to the ensemble any more does not count, before or after: a change of the ensemble takes
   back what the leaving positions said, and its end voids the checks, which asked bookies that have left.
3. Only an explicit no counts. "Fenced", "unknown", silence, an answer that knows nothing of the question, and not to
   have been asked do not.
4. What is proven or void stays so. Nothing is proven of a writer that has ended: it may have closed the ledger itself,
   which fences nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from ledger.core.coverage import is_quorum_of_each
from ledger.core.quorum import QuorumConfig


class FenceVerdict(Enum):
    """Outcome of a check."""

    OPEN = "open"
    UNPROVEN = "unproven"


class FenceCheck:
    """One check.

    Attributes:
        verdict: None while answers may still decide it.

    """

    __slots__ = ("_asked", "_denied", "_excluded", "_quorum", "_silent", "verdict")

    def __init__(self, quorum: QuorumConfig, excluded: Iterable[int] = ()) -> None:
        self.verdict: FenceVerdict | None = None
        self._quorum = quorum
        # Positions, as bits: have been asked; said no; do not count; have said all that they will say.
        self._asked = 0
        self._denied = 0
        self._excluded = 0
        self._silent = 0
        self.exclude(excluded)

    def take(self, order: Sequence[int]) -> list[int]:
        """Return the positions that are to be asked now, and count them as asked.

        Those that have been asked and may still say no, or have, are enough if they can prove it. Else positions that
        have not been asked are added, in this order, until all together can.

        Args:
            order: Of the positions that may be asked; the others never are.

        """
        taken: list[int] = []
        if self.verdict is not None:
            return taken
        hopeful = self._asked & ~(self._excluded | self._silent)
        for position in order:
            if self._is_quorum(hopeful):
                break
            bit = 1 << position
            if not bit & (self._asked | self._excluded):
                self._asked |= bit
                hopeful |= bit
                taken.append(position)
        return taken

    def take_rest(self, order: Sequence[int]) -> list[int]:
        """Return all positions that have not been asked, in this order, and count them as asked."""
        if self.verdict is not None:
            return []
        taken = [position for position in order if not (self._asked | self._excluded) >> position & 1]
        for position in taken:
            self._asked |= 1 << position
        return taken

    def is_awaited(self, position: int) -> bool:
        """Return whether a position has been asked, and has said nothing yet."""
        return bool((self._asked & ~(self._denied | self._silent)) >> position & 1)

    def answer(self, position: int, *, is_open: bool) -> None:
        """Take a position's word; `is_open` False stands for all that is no explicit no."""
        if is_open:
            self._denied |= 1 << position
        else:
            self._silent |= 1 << position
        self._judge()

    def exclude(self, positions: Iterable[int]) -> None:
        """Take back what these positions said, and count them no more."""
        for position in positions:
            self._excluded |= 1 << position
        self._judge()

    def void(self) -> None:
        """End it: it proves nothing."""
        self._settle(FenceVerdict.UNPROVEN)

    def _judge(self) -> None:
        if self._is_quorum(self._denied & ~self._excluded):
            self._settle(FenceVerdict.OPEN)
        elif not self._is_quorum(~(self._excluded | self._silent)):
            self._settle(FenceVerdict.UNPROVEN)

    def _settle(self, verdict: FenceVerdict) -> None:
        if self.verdict is None:
            self.verdict = verdict

    def _is_quorum(self, positions: int) -> bool:
        return is_quorum_of_each(positions, self._quorum)


class FenceChecks:
    """The checks of one writer that are under way."""

    def __init__(self, quorum: QuorumConfig) -> None:
        self._quorum = quorum
        self._checks: list[FenceCheck] = []

    def begin(self, excluded: Iterable[int]) -> FenceCheck:
        """Begin a check without these positions; it may be void at once."""
        check = FenceCheck(self._quorum, excluded)
        self._checks = [one for one in self._checks if one.verdict is None]
        self._checks.append(check)
        return check

    def exclude(self, positions: Iterable[int]) -> None:
        """Count these positions no more: others are about to take their places."""
        for check in self._checks:
            check.exclude(positions)

    def void(self) -> None:
        """End all: the ensemble is another one, or the writer has ended."""
        for check in self._checks:
            check.void()
        self._checks.clear()

"""The world of ensemble changes with fence checks in it: what a check proves must have been so when it began."""

from __future__ import annotations

import random

from ledger.core.fence_check import FenceCheck, FenceVerdict
from ledger.core.quorum import QuorumConfig
from tests.unit.ledger.core.ensemble_world import BrokenPromiseError, EnsembleWorld

__all__ = ["FenceWorld"]


class FenceWorld(EnsembleWorld):
    """A writer that checks again and again.

    Attributes:
        proven: Checks that were proven.
        limbo_says_open: A bookie that lost its disk takes what it does not know for a no.
        counts_early: Answers to earlier checks count for the present one.
        keeps_noes: A bookie that a check does not ask counts as having said what it said to the check before.

    """

    def __init__(self, quorum: QuorumConfig, rng: random.Random) -> None:
        super().__init__(quorum, rng)
        self.proven = self.unproven = 0
        self.limbo_says_open = self.counts_early = self.keeps_noes = False
        self.lost: set[str] = set()
        self.questions: list[tuple[FenceCheck, str, int]] = []  # (check, bookie, position), on their way
        self.told: list[tuple[FenceCheck, int, bool]] = []  # answers, on their way
        self.check_of: FenceCheck | None = None
        self.asked: tuple[str, ...] = ()  # those that the present check may ask, by position
        self.order: list[int] = []
        self.asked_count = 0
        self.spared = 0  # positions that proven checks did not ask
        self.noes: set[int] = set()  # positions, of the last check
        self.was_recovered = False  # when the present check began

    def step(self) -> None:
        """Do one random thing, and one that has to do with checks."""
        super().step()
        moves = [self._begin, self._ask, self._ask, self._tell, self._tell, self._lose_disk, self._ask_rest]
        self.rng.choice(moves)()
        self._judge_check()

    def members(self) -> tuple[str, ...]:
        """Return the bookies that a check asks."""
        return self.core.bookies

    def check(self) -> None:
        """Check the promises about entries, while no disk is lost."""
        if not self.lost:
            super().check()

    def _begin(self) -> None:
        if self.check_of is None and self.core.failure is None:
            self.check_of = self.core.begin_check()
            self.was_recovered = self.end is not None
            self.asked = self.members()
            self.order = self.rng.sample(range(len(self.asked)), len(self.asked))
            self.asked_count = 0
            self._send(self.check_of.take(self.order))
            for place in sorted(self.noes) if self.keeps_noes else ():
                if not self.check_of.is_awaited(place):
                    self.check_of.answer(place, is_open=True)
            self.noes.clear()

    def _send(self, places: list[int]) -> None:
        assert self.check_of is not None
        self.asked_count += len(places)
        self.questions += [(self.check_of, self.asked[place], place) for place in places]

    def _ask_rest(self) -> None:
        """Answers are late: the others are asked, too; they are those of when the check began."""
        if self.check_of is not None and self.rng.random() < 0.3:
            self._send(self.check_of.take_rest(self.order))

    def _ask(self) -> None:
        """A question arrives; a bookie that is down, or was never sent anything, says nothing that counts."""
        if self.questions:
            check, bookie, place = self.questions.pop(self.rng.randrange(len(self.questions)))
            knows = bool(self.holding[bookie]) and (bookie not in self.lost or self.limbo_says_open)
            is_open = bookie not in self.down and knows and bookie not in self.fenced
            self.told.append((check, place, is_open))

    def _tell(self) -> None:
        if self.told:
            check, place, is_open = self.told.pop(self.rng.randrange(len(self.told)))
            if self.counts_early and self.check_of is not None:
                check = self.check_of
            check.answer(place, is_open=is_open)
            if is_open and check is self.check_of:
                self.noes.add(place)
            if self.check_of is not None:
                self._send(self.check_of.take(self.order))

    def _lose_disk(self) -> None:
        """Disks are lost with the fences on them, but not so that entries are; nobody writes any more."""
        if self.end is not None and self.rng.random() < 0.3:
            bookie = self.rng.choice(sorted(self.holding))
            self.lost.add(bookie)
            self.fenced.discard(bookie)
            self.adds.clear()

    def _judge_check(self) -> None:
        check = self.check_of
        if check is None or check.verdict is None:
            return
        self.check_of = None
        if check.verdict is FenceVerdict.OPEN:
            self.proven += 1
            self.spared += len(self.asked) - self.asked_count
        self.unproven += check.verdict is FenceVerdict.UNPROVEN
        if check.verdict is FenceVerdict.OPEN and self.was_recovered:
            raise BrokenPromiseError("a check says that nobody has recovered the ledger, and somebody had")

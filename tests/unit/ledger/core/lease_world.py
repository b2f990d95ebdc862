"""The world of ensemble changes with leases in it: while the writer's lease holds, no recovery has come to its end."""

from __future__ import annotations

import random

import msgspec

from ledger.core.coverage import is_covered
from ledger.core.lease_promises import LEASE_MS_MAX, LeasePromises
from ledger.core.metadata import LedgerState
from ledger.core.quorum import QuorumConfig
from ledger.core.read_lease import RATE_RATIO_MAX
from tests.unit.ledger.core.ensemble_world import BOOKIES, BrokenPromiseError, EnsembleWorld

__all__ = ["LeaseWorld"]

_LEDGER = 1
_STEP_S_MAX = 0.03


class LeaseWorld(EnsembleWorld):
    """A writer that asks for promises again and again; clocks run as differently as they may.

    Attributes:
        held: Steps at which the lease held.
        recovered_count: Recoveries that came to their end.
        promises_when_fenced: A bookie that was fenced promises as if it were not.
        counts_from_answer: The writer counts from when it hears of a promise.

    """

    def __init__(self, quorum: QuorumConfig, rng: random.Random) -> None:
        super().__init__(quorum, rng)
        self.held = self.recovered_count = 0
        self.promises_when_fenced = self.counts_from_answer = False
        self.time = 0.0
        self.rates = {name: rng.uniform(1.0, RATE_RATIO_MAX) for name in ("writer", *BOOKIES)}
        self.rates[rng.choice(BOOKIES)] = RATE_RATIO_MAX
        self.rates["writer"] = rng.choice((1.0, self.rates["writer"]))
        self.promises = {bookie: LeasePromises(-1.0) for bookie in BOOKIES}
        self.questions: list[tuple[str, int, int, float]] = []  # (bookie, position, term, asked at), on their way
        self.told: list[tuple[int, int, float, int]] = []  # (position, term, asked at, ms), on their way
        self.to_fence: tuple[str, ...] = ()
        self.answered: set[str] = set()

    def clock(self, name: str) -> float:
        return self.time * self.rates[name]

    def step(self) -> None:
        """Do one random thing, and one that has to do with leases."""
        super().step()
        self.time += self.rng.uniform(0.0, _STEP_S_MAX)
        steps = [self._wish, self._ask, self._ask, self._ask, self._tell, self._tell, self._tell, self._restart]
        self.rng.choice([*steps, self._fence, self._fence])()
        self._judge_lease()

    def recover(self) -> None:
        """Begin a recovery, of the ensemble that the metadata name now."""
        if not self.to_fence:
            self.stored = msgspec.structs.replace(self.stored, state=LedgerState.IN_RECOVERY)
            self.version += 1
            self.to_fence = self.stored.segments[-1].bookies

    def _wish(self) -> None:
        if self.core.failure is None:
            term, asked_at = self.core.lease.term, self.clock("writer")
            self.questions += [(bookie, place, term, asked_at) for place, bookie in enumerate(self.core.bookies)]

    def _ask(self) -> None:
        """A question arrives; a bookie that is down, has taken a fence or holds nothing promises nothing."""
        if self.questions:
            bookie, place, term, asked_at = self.questions.pop(self.rng.randrange(len(self.questions)))
            is_open = self.promises_when_fenced or bookie not in self.fenced
            if is_open and self.holding[bookie] and bookie not in self.down:
                granted = self.promises[bookie].promise(_LEDGER, LEASE_MS_MAX, self.clock(bookie))
                self.told.append((place, term, asked_at, granted))

    def _tell(self) -> None:
        if self.told:
            place, term, asked_at, lease_ms = self.told.pop(self.rng.randrange(len(self.told)))
            if self.counts_from_answer:
                asked_at = self.clock("writer")
            self.core.on_promise(place, term, asked_at, lease_ms)

    def _restart(self) -> None:
        bookie = self.rng.choice(BOOKIES)
        self.promises[bookie] = LeasePromises(self.clock(bookie))

    def _fence(self) -> None:
        """A fence arrives, or is told."""
        if self.to_fence and not self._is_recovered:
            bookie = self.rng.choice(self.to_fence)
            if bookie in self.fenced and self.promises[bookie].wait_s(_LEDGER, self.clock(bookie)) <= 0:
                self.answered.add(bookie)
                self.recovered_count += self._is_recovered
            self.fenced.add(bookie)

    @property
    def _is_recovered(self) -> bool:
        return bool(self.to_fence) and is_covered(self.to_fence, self.answered, self.quorum)

    def _judge_lease(self) -> None:
        if self.clock("writer") < self.core.lease.until:
            self.held += 1
            if self._is_recovered:
                raise BrokenPromiseError("the lease holds, and somebody has recovered the ledger")

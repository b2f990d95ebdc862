"""Order and rate of the questions to the metadata about ledgers. Pure: time is an argument.

A stranger may name any number of ledgers that do not exist. So a question waits by the rank of who asks: connections
whose ledgers existed come first, then those that have not asked yet, then those that were answered "no", and these only
so many a second for all of them together. Questions about one ledger are one question; but a "no" that was on its way
when somebody else asked says nothing to him, for the ledger may have been created meanwhile: he is asked for again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import IntEnum
from typing import Final

import msgspec


class AskerRank(IntEnum):
    """Rank of a connection that asks; the lowest is served first."""

    PROVEN = 0
    NEW = 1
    REFUSED = 2


class QuestionLimits(msgspec.Struct, frozen=True):
    """Bounds on the questions to the metadata.

    Attributes:
        asked_max: On their way at a time.
        refused_asked_max: Of these, of those who were answered "no" before.
        refused_per_s: How many of theirs a second.

    """

    asked_max: int = 32
    refused_asked_max: int = 4
    refused_per_s: float = 50.0


class _Question:
    """One ledger: who waits for the answer, and who came when it was on its way. Each with his rank."""

    __slots__ = ("askers", "is_asked", "late", "rank")

    def __init__(self, rank: AskerRank) -> None:
        self.rank = rank
        self.is_asked = False
        self.askers: dict[Hashable, AskerRank] = {}
        self.late: dict[Hashable, AskerRank] = {}


class KeyQuestions:
    """See the module.

    Invariants: each question that is not asked is in the queue of its rank, and in no other; `_asked_count` and
    `_refused_asked_count` count the others.

    """

    def __init__(self, limits: QuestionLimits | None = None) -> None:
        self._limits: Final = limits or QuestionLimits()
        self._questions: dict[int, _Question] = {}
        self._queues: dict[AskerRank, dict[int, None]] = {rank: {} for rank in AskerRank}
        self._asked_count = 0
        self._refused_asked_count = 0
        self._refused_next_s = 0.0

    def __len__(self) -> int:
        """Return how many there are, asked and waiting."""
        return len(self._questions)

    def ask(self, ledger_id: int, asker: Hashable, rank: AskerRank) -> None:
        """Take a question; `take` says when it is to be asked."""
        question = self._questions.get(ledger_id)
        if question is None:
            question = self._questions[ledger_id] = _Question(rank)
            self._queues[rank][ledger_id] = None
        elif not question.is_asked and rank < question.rank:
            del self._queues[question.rank][ledger_id]
            question.rank = rank
            self._queues[rank][ledger_id] = None
        if question.is_asked:
            if asker not in question.askers:
                question.late.setdefault(asker, rank)
        else:
            question.askers.setdefault(asker, rank)

    def take(self, now_s: float) -> list[int]:
        """Return the ledgers to ask about now."""
        found: list[int] = []
        limits = self._limits
        for rank in (AskerRank.PROVEN, AskerRank.NEW):
            queue = self._queues[rank]
            while queue and self._asked_count < limits.asked_max:
                found.append(self._begin(next(iter(queue))))
        refused = self._queues[AskerRank.REFUSED]
        while self._may_ask_refused(now_s) and self._asked_count < limits.asked_max:
            self._refused_next_s = max(self._refused_next_s, now_s - 1.0) + 1.0 / limits.refused_per_s
            found.append(self._begin(next(iter(refused))))
        return found

    def _may_ask_refused(self, now_s: float) -> bool:
        has_room = self._refused_asked_count < self._limits.refused_asked_max
        return bool(self._queues[AskerRank.REFUSED]) and has_room and now_s >= self._refused_next_s

    def _begin(self, ledger_id: int) -> int:
        question = self._questions[ledger_id]
        del self._queues[question.rank][ledger_id]
        question.is_asked = True
        self._asked_count += 1
        self._refused_asked_count += question.rank == AskerRank.REFUSED
        return ledger_id

    def wake_at_s(self) -> float | None:
        """Return when `take` may give something though nothing was answered until then; None is never."""
        has_room = self._refused_asked_count < self._limits.refused_asked_max
        return self._refused_next_s if self._queues[AskerRank.REFUSED] and has_room else None

    def answer(self, ledger_id: int, *, is_final: bool) -> Sequence[Hashable]:
        """Return who is to be told.

        Args:
            ledger_id: What was asked.
            is_final: The answer is for all; else only for those who asked before the question went out.

        """
        question = self._questions.pop(ledger_id)
        self._asked_count -= 1
        self._refused_asked_count -= question.rank == AskerRank.REFUSED
        if is_final:
            return [*question.askers, *question.late]
        for asker, rank in question.late.items():
            self.ask(ledger_id, asker, rank)
        return list(question.askers)

    def forget(self, ledger_ids: Sequence[int], asker: Hashable) -> None:
        """Forget somebody who is gone."""
        for ledger_id in ledger_ids:
            question = self._questions.get(ledger_id)
            if question is None:
                continue
            question.askers.pop(asker, None)
            question.late.pop(asker, None)
            if not question.askers and not question.is_asked:
                del self._questions[ledger_id]
                del self._queues[question.rank][ledger_id]

    def validate(self) -> None:
        waiting = [i for queue in self._queues.values() for i in queue]
        assert sorted(waiting) == sorted(i for i, x in self._questions.items() if not x.is_asked)
        assert all(i in self._queues[self._questions[i].rank] for i in waiting)
        asked = [x for x in self._questions.values() if x.is_asked]
        assert len(asked) == self._asked_count
        assert sum(x.rank == AskerRank.REFUSED for x in asked) == self._refused_asked_count
        assert not any(x.late for x in self._questions.values() if not x.is_asked)

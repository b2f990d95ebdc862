"""Requests on their way to an entry: in the order in which they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from rsm_spark.core.commands import Answer, AnswerStatus, Query, Request

__all__ = ["RequestQueue", "Submission"]


class Submission:
    """Requests that came together and are answered together.

    Attributes:
        requests: In order.
        answers: Of the first `decided` requests. Invariant: confirmed <= decided == len(answers) <= len(requests).
        confirmed: How many of the answers are final.
        ticket: The shell's own, to be answered with `answers`.

    """

    __slots__ = ("answers", "confirmed", "requests", "ticket")

    def __init__(self, requests: Sequence[Request], ticket: Any) -> None:
        self.requests = requests
        self.answers: list[Answer] = []
        self.confirmed = 0
        self.ticket = ticket

    @property
    def decided(self) -> int:
        """Return how many requests have been decided."""
        return len(self.answers)

    def give_up(self, revision: int, *, applied_never: bool) -> list[Answer]:
        """Answer all that has no final answer: this replica will not.

        Args:
            revision: Confirmed revision, for the answers.
            applied_never: The batch in flight is certainly not applied; else its outcome is unknown.

        """
        denied = Answer(AnswerStatus.NOT_LEADER, revision, b"")
        unknown = denied if applied_never else Answer(AnswerStatus.OUTCOME_UNKNOWN, revision, b"")
        decided = len(self.answers)
        for index in range(self.confirmed, decided):
            self.answers[index] = denied if isinstance(self.requests[index], Query) else unknown
        self.answers.extend([denied] * (len(self.requests) - decided))
        return self.answers


class RequestQueue:
    """Submissions that wait, in order of arrival.

    Attributes:
        request_count: Requests not decided yet.

    """

    def __init__(self) -> None:
        self.submissions: deque[Submission] = deque()
        self.request_count = 0

    def add(self, submission: Submission) -> None:
        """Queue a submission behind all others."""
        self.submissions.append(submission)
        self.request_count += len(submission.requests)

    def take_all(self) -> list[Submission]:
        """Empty the queue."""
        taken = list(self.submissions)
        self.submissions.clear()
        self.request_count = 0
        return taken

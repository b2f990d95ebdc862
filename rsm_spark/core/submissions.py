"""Requests on their way to an entry: those of one owner in the order in which they came, owners in turns.

Deficit round robin: each turn gives an owner `TURN_COST` more to spend, and whoever has spent more than it was given
passes until that is made up for. While one owner alone waits there are no turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from rsm_spark.core.answer_column import AnswerColumn
from rsm_spark.core.commands import (
    Answer,
    AnswerStatus,
    Command,
    CommandColumn,
    Query,
    QueryColumn,
    ReadIndex,
    Request,
)

TURN_COST = 64
"""Cost of one turn: so many small requests, or one of 64 KiB."""
_COST_BYTES = 1024


def _costs(requests: Sequence[Request], first: int, end: int) -> list[int]:
    """Return what each of some requests costs its owner's turn."""
    if type(requests) is CommandColumn or type(requests) is QueryColumn:
        return [1 + len(payload) // _COST_BYTES for payload in requests.payloads[first:end]]
    return [
        1 + len(request.payload) // _COST_BYTES if isinstance(request, Command | Query) else 1
        for request in requests[first:end]
    ]


class Submission:
    """Requests that came together and are answered together.

    Attributes:
        requests: In order.
        answers: Of the first `decided` requests. Invariant: confirmed <= decided == len(answers) <= len(requests).
        confirmed: How many of the answers are final.
        ticket: The shell's own, to be answered with `answers`.
        owner: Who takes turns with others: a principal, or an address.
        is_reading: It changes nothing: it holds queries alone.
        mark: That of the queue when it came; see `RequestQueue.set_mark`.
        trace: The shell's own: what its entry belongs to; None = it is not traced.

    """

    __slots__ = ("answers", "confirmed", "is_reading", "mark", "owner", "requests", "ticket", "trace")

    def __init__(self, requests: Sequence[Request], ticket: Any, owner: str = "") -> None:
        self.requests = requests
        self.owner = owner
        self.answers = AnswerColumn()
        self.confirmed = 0
        self.ticket = ticket
        self.is_reading = type(requests) is QueryColumn or (
            type(requests) is not CommandColumn
            and all(type(request) is Query or type(request) is ReadIndex for request in requests)
        )
        self.mark = 0
        self.trace: Any = None

    @property
    def decided(self) -> int:
        """Number of requests that have been decided."""
        return len(self.answers)

    def give_up(self, revision: int, *, applied_never: bool) -> AnswerColumn:
        """Answer all that has no final answer: this replica will not.

        Args:
            revision: Confirmed revision, for the answers.
            applied_never: The batch in flight is certainly not applied; else its outcome is unknown.

        """
        denied = Answer(AnswerStatus.NOT_LEADER, revision, b"")
        unknown = denied if applied_never else Answer(AnswerStatus.OUTCOME_UNKNOWN, revision, b"")
        decided = len(self.answers)
        for index in range(self.confirmed, decided):
            self.answers.replace(index, denied if isinstance(self.requests[index], Query | ReadIndex) else unknown)
        self.answers.extend([denied] * (len(self.requests) - decided))
        return self.answers


class OwnerQueue:
    """Requests of one owner that wait.

    Attributes:
        submissions: In order of arrival.
        request_count: Requests not decided yet.
        credit: What it may spend in this turn; below 0 it has spent more.

    """

    __slots__ = ("credit", "request_count", "submissions")

    def __init__(self) -> None:
        self.submissions: deque[Submission] = deque()
        self.request_count = 0
        self.credit = TURN_COST

    def affords(self, requests: Sequence[Request], first: int, last: int) -> int:
        """Return the end, `last` at most, of what it may take of requests from `first` on: one at least."""
        left = self.credit
        last = min(last, first + max(left, 0))  # Each costs 1 at least.
        for index, cost in enumerate(_costs(requests, first, last), first):
            if left <= 0:
                return index
            left -= cost
        return last

    def spend(self, requests: Sequence[Request], first: int, end: int) -> None:
        """Note that these requests were taken."""
        self.credit -= sum(_costs(requests, first, end))


class RequestQueue:
    """Submissions that wait.

    Attributes:
        request_count: Requests not decided yet.

    """

    def __init__(self) -> None:
        self.request_count = 0
        # In order of turns. Invariant: no line is empty.
        self._lines: dict[str, OwnerQueue] = {}
        self._writing = 0  # Submissions that hold more than queries.
        self._mark = 0

    @property
    def is_shared(self) -> bool:
        """True if more than one owner waits."""
        return len(self._lines) > 1

    @property
    def has_writes(self) -> bool:
        """True if more than queries wait."""
        return self._writing > 0

    def set_mark(self) -> int:
        """Return a mark above that of all submissions that have come; those that come later have it, or a higher."""
        self._mark += 1
        return self._mark

    def add(self, submission: Submission) -> None:
        """Queue a submission behind all others of its owner."""
        submission.mark = self._mark
        self._writing += not submission.is_reading
        line = self._lines.get(submission.owner)
        if line is None:
            line = self._lines[submission.owner] = OwnerQueue()
        line.submissions.append(submission)
        count = len(submission.requests)
        line.request_count += count
        self.request_count += count

    def count_of(self, owner: str) -> int:
        """Return how many requests of an owner are not decided yet."""
        line = self._lines.get(owner)
        return 0 if line is None else line.request_count

    def first(self) -> OwnerQueue | None:
        """Return the line whose turn it is; None = nothing waits."""
        lines = self._lines
        while lines:
            owner = next(iter(lines))
            line = lines[owner]
            if line.credit > 0 or len(lines) == 1:
                return line
            self.turn()
        return None

    def taken(self, line: OwnerQueue, count: int) -> None:
        """Note that so many requests of a line were decided."""
        line.request_count -= count
        self.request_count -= count

    def pop(self, line: OwnerQueue) -> Submission:
        """Take out the first submission of a line: all of it is decided."""
        submission = line.submissions.popleft()
        self._writing -= not submission.is_reading
        return submission

    def take_reads(self, mark: int, limit: int) -> list[Submission]:
        """Take out what holds queries alone and came before a mark, owners in turns, until `limit` requests are taken.

        Nobody's query passes what stands before it. The last submission is taken whole.
        """
        taken: list[Submission] = []
        count = fruitless = 0  # Lines in a row that had none.
        while count < limit and fruitless < len(self._lines):
            line = self.first()
            assert line is not None
            before = count
            while line.submissions and count < limit and (line.credit > 0 or not self.is_shared):
                one = line.submissions[0]
                if not one.is_reading or one.mark >= mark:
                    break
                left = len(one.requests) - one.decided
                if self.is_shared:
                    line.spend(one.requests, one.decided, len(one.requests))
                self.taken(line, left)
                taken.append(self.pop(line))
                count += left
            fruitless = 0 if count > before else fruitless + 1
            self.turn()
        return taken

    def turn(self) -> None:
        """End the turn of the first line: it goes behind the others, or is over."""
        owner = next(iter(self._lines))
        line = self._lines.pop(owner)
        if line.submissions:
            line.credit = min(line.credit, 0) + TURN_COST
            self._lines[owner] = line

    def take_all(self) -> list[Submission]:
        """Empty the queue."""
        taken = [one for line in self._lines.values() for one in line.submissions]
        self._lines.clear()
        self.request_count = self._writing = 0
        return taken

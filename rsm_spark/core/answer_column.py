"""Answers of a message as columns: what the state said, from the batch to the socket, without an object for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from rsm_spark.core.commands import Answer, AnswerStatus

_OK = AnswerStatus.OK


class AnswerColumn(Sequence[Answer]):
    """Answers to the requests of one message, in their order; grows while they are decided.

    Nearly all answers are OK, so their statuses are kept from the first other one on.

    Attributes:
        revisions: Of each.
        payloads: Of each.
        statuses: Of each; empty = all are OK. Invariant: empty, or as long as the others.

    """

    __slots__ = ("payloads", "revisions", "statuses")

    def __init__(
        self,
        revisions: list[int] | None = None,
        payloads: list[bytes] | None = None,
        statuses: list[AnswerStatus] | None = None,
    ) -> None:
        self.revisions = [] if revisions is None else revisions
        self.payloads = [] if payloads is None else payloads
        self.statuses = [] if statuses is None else statuses

    @classmethod
    def of(cls, answers: Iterable[Answer]) -> AnswerColumn:
        """Return these answers as a column; one that is a column already as it is."""
        if type(answers) is AnswerColumn:
            return answers
        column = cls()
        column.extend(answers)
        return column

    @property
    def is_all_ok(self) -> bool:
        """True if there is no status but OK."""
        return not any(self.statuses)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.payloads)

    @overload
    def __getitem__(self, index: int) -> Answer: ...

    @overload
    def __getitem__(self, index: slice) -> AnswerColumn: ...

    def __getitem__(self, index: int | slice) -> Answer | AnswerColumn:
        """Return one as an object, or some."""
        if isinstance(index, slice):
            return AnswerColumn(self.revisions[index], self.payloads[index], self.statuses[index])
        status = self.statuses[index] if self.statuses else _OK
        return Answer(status, self.revisions[index], self.payloads[index])

    def __iter__(self) -> Iterator[Answer]:
        """Iterate over all as objects."""
        statuses = self.statuses or [_OK] * len(self.payloads)
        return map(Answer, statuses, self.revisions, self.payloads)

    def __eq__(self, other: object) -> bool:
        """Return whether it holds the same answers."""
        return isinstance(other, AnswerColumn) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def add(self, revision: int, payload: bytes) -> None:
        """Add an answer that is OK."""
        self.revisions.append(revision)
        self.payloads.append(payload)
        if self.statuses:
            self.statuses.append(_OK)

    def add_all(self, revision: int, payloads: Sequence[bytes]) -> None:
        """Add answers that are OK and show the same revision."""
        self.revisions += [revision] * len(payloads)
        self.payloads += payloads
        if self.statuses:
            self.statuses += [_OK] * len(payloads)

    def append(self, answer: Answer) -> None:
        """Add an answer."""
        if answer.status is not _OK and not self.statuses:
            self.statuses = [_OK] * len(self.payloads)
            self.statuses.append(answer.status)
        elif self.statuses:
            self.statuses.append(answer.status)
        self.revisions.append(answer.revision)
        self.payloads.append(answer.payload)

    def extend(self, answers: Iterable[Answer]) -> None:
        """Add answers."""
        for answer in answers:
            self.append(answer)

    def __iadd__(self, answers: Iterable[Answer]) -> AnswerColumn:  # noqa: PYI034 - none inherits from it
        """Add answers."""
        self.extend(answers)
        return self

    def replace(self, place: int, answer: Answer) -> None:
        """Put an answer in the place of one that is there."""
        if answer.status is not _OK and not self.statuses:
            self.statuses = [_OK] * len(self.payloads)
        if self.statuses:
            self.statuses[place] = answer.status
        self.revisions[place] = answer.revision
        self.payloads[place] = answer.payload

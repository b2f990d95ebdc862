"""Errors of a gateway of logs, as both ends name them: what a `reason` in an answer means as an exception.

* `GatewayRefusedError(LogError)`        the gateway says no, for a reason that has no exception of its own
* `GatewayUnavailableError(RsmError)`    no gateway took the request in time; certainly nothing was done

All else is raised as the library raises it where there is no gateway between: `NoSuchLogError`, `LogEndedError`,
`MissingLogError`, `ProducerGapError`, `PartitionsChangedError`, `AccessDeniedError`, `OutcomeUnknownError`, …
"""

from __future__ import annotations

import msgspec

from rsm_spark.core.plain_log import LogEndedError, PlainLogError, RecordTooLargeError, TransactionIdError
from rsm_spark.core.producers import (
    ForeignProducerError,
    ForgottenSequenceError,
    PartitionsChangedError,
    ProducerError,
    ProducerGapError,
    TooManyProducersError,
    UnknownProducerError,
)
from rsm_spark.errors import (
    AccessDeniedError,
    CorruptLogError,
    LogError,
    MissingLogError,
    NoSuchLogError,
    RsmError,
)

REFUSALS: tuple[tuple[type[LogError], int, str], ...] = (
    (NoSuchLogError, 404, "no-such-log"),
    (LogEndedError, 409, "log-ended"),
    (RecordTooLargeError, 413, "too-large"),
    (TransactionIdError, 409, "txid-behind"),
    (ForgottenSequenceError, 409, "sequence-forgotten"),
    (UnknownProducerError, 409, "unknown-producer"),
    (ForeignProducerError, 403, "foreign-producer"),
    (TooManyProducersError, 429, "too-many-producers"),
    (ProducerError, 400, "invalid"),
    (PlainLogError, 409, "refused"),
    (CorruptLogError, 500, "corrupt-log"),
    (LogError, 409, "refused"),
)
"""Exceptions, the narrowest first, with the status and the reason by which a gateway tells them."""

_KINDS = {reason: kind for kind, _, reason in reversed(REFUSALS) if reason != "invalid"}
_DENIED = frozenset({"no-token", "bad-token", "not-allowed"})


class GatewayUnavailableError(RsmError):
    """No gateway took the request in time; certainly nothing was done."""


class GatewayRefusedError(LogError):
    """The gateway says no, and nothing was done.

    Attributes:
        reason: Machine-readable, such as "written-by-a-program".
        status_code: Of HTTP.

    """

    def __init__(self, message: str, *, reason: str = "", status_code: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.status_code = status_code


class GatewayProblem(msgspec.Struct, frozen=True):
    """Body of an answer that is no success, with what the reasons of a gateway say beside it.

    Attributes:
        title: Of the status.
        detail: For people.
        reason: Machine-readable word.
        expected: Of "sequence-gap": the sequence that must come.
        partitions: Of "partitions-changed": how many there are now.
        positions: Of the same: of the first records, which are in the log.
        oldest_position: Of "trimmed": with which the log, or its partition, begins now.
        partition: Of the same: in a partitioned log.

    """

    title: str = ""
    detail: str = ""
    reason: str = ""
    expected: int = 1
    partitions: int = 0
    positions: list[int] = []
    oldest_position: int = 1
    partition: int | None = None


def refusal_of(asked: str, status: int, problem: GatewayProblem) -> RsmError:
    """Return the exception that an answer means.

    Args:
        asked: For people.
        status: Of HTTP.
        problem: Body of the answer.

    """
    text = f"{asked}: {problem.detail or problem.title or status} ({problem.reason or status})"
    match problem.reason:
        case "sequence-gap":
            return ProducerGapError(text, problem.expected)
        case "partitions-changed":
            return PartitionsChangedError(text, problem.partitions, problem.positions)
        case "trimmed":
            return gone(text, problem.oldest_position, problem.partition)
    kind = _KINDS.get(problem.reason)
    if kind is not None:
        return kind(text)
    if problem.reason in _DENIED:
        return AccessDeniedError(text)
    return GatewayRefusedError(text, reason=problem.reason, status_code=status)


def gone(text: str, oldest_position: int, partition: int | None) -> MissingLogError:
    """Return the exception for a place that has left the log."""
    error = MissingLogError(text, first_revision=1, last_revision=oldest_position - 1)
    error.partition = partition
    return error

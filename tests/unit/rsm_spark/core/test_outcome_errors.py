"""Each end of an operation is one error, with what the caller has to know."""

from __future__ import annotations

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus
from rsm_spark.core.operation import Ending, Operation
from rsm_spark.core.outcome_errors import AskedReplica, error_of_answer, error_of_operation
from rsm_spark.errors import (
    AccessDeniedError,
    InvalidCommandError,
    NoLeaderError,
    NotLeaderError,
    NotReadyError,
    OutcomeUnknownError,
    OverloadedError,
    RsmError,
    TooStaleError,
)

_OF_ENDINGS: dict[Ending, type[RsmError]] = {
    Ending.TOO_LARGE: InvalidCommandError,
    Ending.REFUSED: InvalidCommandError,
    Ending.NEVER_APPLIED: NoLeaderError,
    Ending.UNKNOWN: OutcomeUnknownError,
    Ending.NOT_LEADER: NotLeaderError,
    Ending.TOO_STALE: TooStaleError,
    Ending.NOT_READY: NotReadyError,
    Ending.DENIED: AccessDeniedError,
}
_OF_STATUSES: dict[AnswerStatus, type[RsmError]] = {
    AnswerStatus.TOO_STALE: TooStaleError,
    AnswerStatus.NOT_READY: NotReadyError,
    AnswerStatus.OVERLOADED: OverloadedError,
    AnswerStatus.REFUSED: InvalidCommandError,
    AnswerStatus.NOT_LEADER: NotLeaderError,
    AnswerStatus.OUTCOME_UNKNOWN: NotLeaderError,
}
_BROKER = AskedReplica("this broker", leader="host:1", advice=", or send it with a request key")


def _ended(ending: Ending, *, is_query: bool = False, reason: bytes = b"") -> Operation:
    operation = Operation(b"", 0.0, None, is_query=is_query)
    operation.outcome, operation.reason, operation.sequence, operation.revision = ending, reason, 7, 9
    return operation


def test_every_ending_but_an_answer_is_listed_here() -> None:
    assert set(_OF_ENDINGS) == set(Ending) - {Ending.ANSWERED}


@pytest.mark.parametrize("ending", _OF_ENDINGS)
def test_an_ending_is_one_error_and_names_the_log(ending: Ending) -> None:
    error = error_of_operation(_ended(ending), AskedReplica(log="orders"))
    assert type(error) is _OF_ENDINGS[ending]
    assert str(error).startswith("log orders: ")
    assert not str(error_of_operation(_ended(ending), _BROKER)).startswith("log")


@pytest.mark.parametrize("status", _OF_STATUSES)
def test_a_query_that_was_asked_once_ends_in_one_error(status: AnswerStatus) -> None:
    assert type(error_of_answer(Answer(status, 9, b"12"), _BROKER)) is _OF_STATUSES[status]


def test_who_leads_is_told() -> None:
    error = error_of_operation(_ended(Ending.NOT_LEADER), _BROKER)
    assert isinstance(error, NotLeaderError)
    assert error.leader == "host:1"
    assert str(error) == "this broker does not lead; the command was not applied. host:1 leads, as far as it knows"
    unknown = error_of_operation(_ended(Ending.NOT_LEADER, is_query=True), AskedReplica())
    assert isinstance(unknown, NotLeaderError)
    assert (unknown.leader, str(unknown)) == (None, "the replica asked does not lead; the query was not answered")


@pytest.mark.parametrize(("reason", "lag_ms", "words"), [(b"12", 12, "12 ms behind"), (b"", None, "an unknown time")])
def test_how_old_the_state_is_is_told(reason: bytes, lag_ms: int | None, words: str) -> None:
    error = error_of_answer(Answer(AnswerStatus.TOO_STALE, 9, reason), _BROKER)
    assert isinstance(error, TooStaleError)
    assert error.lag_ms == lag_ms
    assert "at revision 9" in str(error)
    assert words in str(error)


def test_an_unknown_outcome_says_what_can_be_done() -> None:
    text = str(error_of_operation(_ended(Ending.UNKNOWN), _BROKER._replace(trouble="connection refused")))
    assert "command 7" in text
    assert "(connection refused)" in text
    assert text.endswith("before sending it anew, or send it with a request key")


def test_full_queues_are_not_a_missing_leader() -> None:
    operation = _ended(Ending.NEVER_APPLIED)
    operation.refusal = AnswerStatus.OVERLOADED
    assert type(error_of_operation(operation, AskedReplica(log="orders"))) is OverloadedError


def test_why_the_machine_refused_is_told() -> None:
    assert "too big" in str(error_of_operation(_ended(Ending.REFUSED, reason=b"too big"), AskedReplica()))

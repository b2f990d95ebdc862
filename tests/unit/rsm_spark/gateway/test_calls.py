"""Answers of a gateway to what goes wrong."""

from __future__ import annotations

import pytest

from ledger.errors import MetadataUnavailableError
from ledger.http.problems import HttpProblem
from rsm_spark.core.plain_log import LogEndedError, PlainLogError
from rsm_spark.core.producers import (
    ForeignProducerError,
    ForgottenSequenceError,
    ProducerError,
    ProducerGapError,
    TooManyProducersError,
    UnknownProducerError,
)
from rsm_spark.errors import (
    CorruptLogError,
    LogError,
    MissingLogError,
    NoSuchLogError,
    NotLeaderError,
    OutcomeUnknownError,
)
from rsm_spark.gateway.calls import problem_of
from rsm_spark.gateway.held_logs import ForeignWriterError, TooMuchWaitsError, WrittenElsewhereError


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (NoSuchLogError("x"), 404, "no-such-log"),
        (LogEndedError("x"), 409, "log-ended"),
        (ProducerGapError("x", 3), 409, "sequence-gap"),
        (ForgottenSequenceError("x"), 409, "sequence-forgotten"),
        (UnknownProducerError("x"), 409, "unknown-producer"),
        (ForeignProducerError("x"), 403, "foreign-producer"),
        (TooManyProducersError("x"), 429, "too-many-producers"),
        (ProducerError("x"), 400, "invalid"),
        (TooMuchWaitsError("x"), 429, "too-much-waits"),
        (ForeignWriterError("x"), 409, "written-by-a-program"),
        (PlainLogError("x"), 409, "refused"),
        (CorruptLogError("x"), 500, "corrupt-log"),
        (LogError("x"), 409, "refused"),
        (MissingLogError("x", first_revision=1, last_revision=8), 410, "trimmed"),
        (NotLeaderError("x"), 503, "not-now"),
        (OutcomeUnknownError("x"), 503, "not-now"),
        (TimeoutError(), 503, "not-now"),
        (MetadataUnavailableError("x"), 503, "not-now"),
    ],
)
def test_an_error_has_a_status_and_a_reason(error: Exception, status: int, reason: str) -> None:
    problem = problem_of(error, "/v1/logs/clicks/records")
    assert problem is not None
    assert (problem.status, problem.reason) == (status, reason)
    is_for_later = status in (429, 503)
    assert (b"retry-after" in dict(problem.headers)) is is_for_later


def test_who_asks_the_wrong_gateway_is_told_the_right_one() -> None:
    problem = problem_of(WrittenElsewhereError("x", "https://b:8090"), "/v1/logs/clicks/records?x=1")
    assert problem is not None
    assert dict(problem.headers)[b"location"] == b"https://b:8090/v1/logs/clicks/records?x=1"


def test_what_nobody_raises_on_purpose_is_no_problem_of_the_caller() -> None:
    assert problem_of(ValueError("x"), "/") is None
    known = HttpProblem(418, "teapot", "x")
    assert problem_of(known, "/") is known

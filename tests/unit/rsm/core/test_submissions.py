"""Requests that came together: answered in order, given up with what is certain of each."""

from __future__ import annotations

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, Command, Query
from rsm_spark.core.submissions import RequestQueue, Submission

OK = Answer(AnswerStatus.OK, 1, b"")


def _submission(*kinds: str) -> Submission:
    requests = {"command": Command(bytes(16), 1, 0, b""), "query": Query(b"")}
    return Submission([requests[kind] for kind in kinds], None)


def test_requests_are_counted_until_they_are_taken() -> None:
    queue = RequestQueue()
    some = [_submission("command", "query"), _submission("query")]
    for one in some:
        queue.add(one)
    assert queue.request_count == 3
    assert queue.take_all() == some
    assert (queue.request_count, queue.take_all()) == (0, [])


@pytest.mark.parametrize(
    ("applied_never", "decided"), [(True, AnswerStatus.NOT_LEADER), (False, AnswerStatus.OUTCOME_UNKNOWN)]
)
def test_what_was_decided_and_not_confirmed_is_given_up_as_what_is_known_of_it(applied_never, decided) -> None:
    submission = _submission("command", "command", "query", "command")
    submission.answers = [OK, OK, OK]
    submission.confirmed = 1
    answers = submission.give_up(7, applied_never=applied_never)
    assert [answer.status for answer in answers] == [
        AnswerStatus.OK, decided, AnswerStatus.NOT_LEADER, AnswerStatus.NOT_LEADER,
    ]  # fmt: skip
    assert answers[-1].revision == 7


def test_what_was_never_decided_was_certainly_not_applied() -> None:
    answers = _submission("command", "query").give_up(3, applied_never=False)
    assert {answer.status for answer in answers} == {AnswerStatus.NOT_LEADER}

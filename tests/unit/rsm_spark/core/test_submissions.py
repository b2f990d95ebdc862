"""Requests that came together: answered in order, given up with what is certain of each."""

from __future__ import annotations

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, Command, Query
from rsm_spark.core.submissions import TURN_COST, RequestQueue, Submission

OK = Answer(AnswerStatus.OK, 1, b"")


def _submission(*kinds: str, owner: str = "") -> Submission:
    requests = {"command": Command(bytes(16), 1, 0, b""), "query": Query(b"")}
    return Submission([requests[kind] for kind in kinds], None, owner)


def test_requests_are_counted_until_they_are_taken() -> None:
    queue = RequestQueue()
    some = [_submission("command", "query"), _submission("query")]
    for one in some:
        queue.add(one)
    assert queue.request_count == 3
    assert queue.take_all() == some
    assert (queue.request_count, queue.take_all()) == (0, [])


def test_who_has_spent_more_than_its_turn_passes_until_it_is_made_up_for() -> None:
    queue = RequestQueue()
    large = Command(bytes(16), 1, 0, bytes(3 * TURN_COST * 1024))
    for _ in range(3):
        queue.add(Submission([large], None, "flood"))
    for _ in range(20):
        queue.add(_submission("command", owner="victim"))
    order: list[str] = []
    while (line := queue.first()) is not None:
        submission = line.submissions.popleft()
        line.spend(submission.requests, 0, 1)
        queue.taken(line, 1)
        queue.turn()
        order.append(submission.owner)
    assert [len(part) for part in "".join(one[0] for one in order).split("f")] == [0, 3, 3, 14]
    assert queue.request_count == 0
    assert queue.count_of("flood") == queue.count_of("victim") == 0


def test_a_turn_affords_one_request_at_least() -> None:
    queue = RequestQueue()
    queue.add(_submission("command", owner="a"))
    line = queue.first()
    assert line is not None
    small, large = Command(bytes(16), 1, 0, b""), Command(bytes(16), 1, 0, bytes(1 << 20))
    assert line.affords([large, large], 0, 2) == 1
    assert line.affords([small] * 500, 100, 500) == 100 + TURN_COST
    assert line.affords([small] * 5, 0, 5) == 5


@pytest.mark.parametrize(
    ("applied_never", "decided"), [(True, AnswerStatus.NOT_LEADER), (False, AnswerStatus.OUTCOME_UNKNOWN)]
)
def test_what_was_decided_and_not_confirmed_is_given_up_as_what_is_known_of_it(applied_never, decided) -> None:
    submission = _submission("command", "command", "query", "command")
    submission.answers += [OK, OK, OK]
    submission.confirmed = 1
    answers = submission.give_up(7, applied_never=applied_never)
    assert [answer.status for answer in answers] == [
        AnswerStatus.OK, decided, AnswerStatus.NOT_LEADER, AnswerStatus.NOT_LEADER,
    ]  # fmt: skip
    assert answers[-1].revision == 7


def test_what_was_never_decided_was_certainly_not_applied() -> None:
    answers = _submission("command", "query").give_up(3, applied_never=False)
    assert {answer.status for answer in answers} == {AnswerStatus.NOT_LEADER}


# ---- reads that need no entry


def _reads(count: int, owner: str = "") -> Submission:
    return _submission(*["query"] * count, owner=owner)


def test_the_queue_knows_whether_more_than_queries_wait() -> None:
    queue = RequestQueue()
    queue.add(_reads(2))
    assert not queue.has_writes
    queue.add(_submission("query", "command"))
    assert queue.has_writes
    line = queue.first()
    assert line is not None
    queue.pop(line)
    assert queue.has_writes
    queue.pop(line)
    assert not queue.has_writes
    queue.add(_submission("command"))
    queue.take_all()
    assert not queue.has_writes


def test_reads_are_taken_that_came_before_the_mark_and_pass_nothing() -> None:
    queue = RequestQueue()
    first, write, behind, other = _reads(2, "a"), _submission("command", owner="a"), _reads(1, "a"), _reads(3, "b")
    for one in (first, write, behind, other):
        queue.add(one)
    mark = queue.set_mark()
    late = _reads(1, "b")
    queue.add(late)
    assert queue.take_reads(mark, 100) == [first, other]
    assert queue.request_count == 3
    assert queue.take_reads(mark, 100) == []
    assert queue.take_reads(queue.set_mark(), 100) == [late]
    assert (queue.count_of("a"), queue.count_of("b")) == (2, 0)


def test_a_flood_of_reads_takes_turns_with_others() -> None:
    queue = RequestQueue()
    flood = [_reads(TURN_COST, "flood") for _ in range(50)]
    for one in flood:
        queue.add(one)
    victim = _reads(1, "victim")
    queue.add(victim)
    mark = queue.set_mark()
    assert queue.take_reads(mark, TURN_COST + 1) == [flood[0], victim]
    assert queue.take_reads(mark, 10 * TURN_COST) == flood[1:11]
    assert queue.request_count == 39 * TURN_COST


def test_of_a_submission_that_an_entry_has_begun_the_rest_is_taken() -> None:
    queue = RequestQueue()
    begun = _reads(5)
    queue.add(begun)
    line = queue.first()
    assert line is not None
    begun.answers += [OK, OK]
    queue.taken(line, 2)
    assert queue.take_reads(queue.set_mark(), 100) == [begun]
    assert queue.request_count == 0


def test_a_lone_owner_pays_nothing_for_its_reads_when_another_one_comes() -> None:
    queue = RequestQueue()
    queue.add(_reads(10 * TURN_COST, "a"))
    queue.take_reads(queue.set_mark(), 10 * TURN_COST)
    late, other = _reads(1, "a"), _reads(1, "b")
    queue.add(late)
    queue.add(other)
    line = queue.first()
    assert line is not None
    assert line.submissions[0] is late

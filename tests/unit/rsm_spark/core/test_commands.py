"""Requests as columns: the same as one object each."""

from __future__ import annotations

from rsm_spark.core.commands import Answer, AnswerStatus, Command, CommandColumn, Query, QueryColumn
from rsm_spark.core.submissions import Submission


def test_a_column_of_queries_is_what_a_list_of_them_is() -> None:
    column, listed = QueryColumn([b"a", b"b", b"c"]), [Query(b"a"), Query(b"b"), Query(b"c")]
    assert list(column) == listed
    assert (len(column), column[1], list(column[1:])) == (3, listed[1], listed[1:])
    assert column[1:] == QueryColumn([b"b", b"c"])
    assert column != QueryColumn([b"a"])
    submission = Submission(column, None)
    assert submission.is_reading
    assert {answer.status for answer in submission.give_up(3, applied_never=False)} == {AnswerStatus.NOT_LEADER}


def test_a_column_of_commands_is_what_a_list_of_them_and_of_queries_is() -> None:
    column = CommandColumn(b"s" * 16, 4, [5, 6], [b"a", b"b", b"q"])
    listed = [Command(b"s" * 16, 5, 4, b"a"), Command(b"s" * 16, 6, 4, b"b"), Query(b"q")]
    assert list(column) == listed
    assert [column[at] for at in (0, 1, 2, -1, -3)] == [listed[at] for at in (0, 1, 2, -1, -3)]
    assert (len(column), column[1:], column[::-1]) == (3, listed[1:], listed[::-1])
    assert column == CommandColumn(b"s" * 16, 4, [5, 6], [b"a", b"b", b"q"])
    assert column != CommandColumn(b"s" * 16, 4, [5], [b"a", b"b", b"q"])
    submission = Submission(column, None)
    assert not submission.is_reading
    submission.answers += [Answer(AnswerStatus.OK, 3, b"")] * 3
    told = [answer.status for answer in submission.give_up(3, applied_never=False)]
    assert told == [AnswerStatus.OUTCOME_UNKNOWN] * 2 + [AnswerStatus.NOT_LEADER]

"""Requests as columns: the same as one object each."""

from __future__ import annotations

from rsm_spark.core.commands import AnswerStatus, Query, QueryColumn
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

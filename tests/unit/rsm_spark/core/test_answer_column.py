"""Answers as a column: the same as a list of them, whatever their statuses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core.answer_column import AnswerColumn
from rsm_spark.core.commands import Answer, AnswerStatus

ANSWERS = st.builds(
    Answer,
    st.sampled_from([AnswerStatus.OK, AnswerStatus.OK, AnswerStatus.REFUSED, AnswerStatus.SEQUENCE_GAP]),
    st.integers(0, 9),
    st.binary(max_size=2),
)


@given(answers=st.lists(ANSWERS), more=st.lists(ANSWERS), found=st.lists(st.binary(max_size=2)), data=st.data())
def test_a_column_of_answers_is_what_a_list_of_them_is(
    answers: list[Answer], more: list[Answer], found: list[bytes], data: st.DataObject
) -> None:
    column, listed = AnswerColumn.of(answers), list(answers)
    assert AnswerColumn.of(column) is column
    column += more
    listed += more
    column.add(7, b"one")
    listed.append(Answer(AnswerStatus.OK, 7, b"one"))
    column.add_all(8, found)
    listed += [Answer(AnswerStatus.OK, 8, payload) for payload in found]
    place, other = data.draw(st.integers(0, len(listed) - 1)), data.draw(ANSWERS)
    column.replace(place, other)
    listed[place] = other
    assert list(column) == listed
    assert len(column) == len(listed)
    assert [column[at] for at in range(-len(listed), len(listed))] == listed + listed
    first, end = sorted(data.draw(st.tuples(st.integers(0, 9), st.integers(0, 9))))
    assert list(column[first:end]) == listed[first:end]
    assert column == AnswerColumn.of(listed)
    assert column != AnswerColumn.of(listed[:-1])
    assert column.is_all_ok == all(answer.status is AnswerStatus.OK for answer in listed)


def test_answers_that_are_all_ok_carry_no_statuses() -> None:
    column = AnswerColumn.of([Answer(AnswerStatus.OK, 1, b"a")])
    column.add(2, b"b")
    assert column.statuses == []
    column.append(Answer(AnswerStatus.TOO_LARGE, 3, b""))
    assert column.statuses == [AnswerStatus.OK, AnswerStatus.OK, AnswerStatus.TOO_LARGE]

"""A command of a session is executed once, and its reply is the same each time."""

from __future__ import annotations

import pytest

from rsm_spark.core.records import CommandHead
from rsm_spark.core.sessions import REPLIES_MAX, SessionTable, SessionVerdict
from rsm_spark.errors import CorruptLogError, CorruptSnapshotError

S, T = bytes(16), b"\x01" * 16


def _answered(table: SessionTable, sequence: int, answered_up_to: int = 0, now_ms: int = 5) -> None:
    table.answer(CommandHead(S, sequence, answered_up_to, 1, b"r%d" % sequence), now_ms, 10 + sequence)


@pytest.fixture
def table() -> SessionTable:
    opened = SessionTable()
    opened.open(S, 1, 1)
    return opened


def test_unknown_session_is_refused(table: SessionTable) -> None:
    assert table.judge(T, 1, 0) == (SessionVerdict.EXPIRED, b"")


def test_same_sequence_gets_the_same_reply(table: SessionTable) -> None:
    assert table.judge(S, 1, 0) == (SessionVerdict.EXECUTE, b"")
    _answered(table, 1)
    assert table.judge(S, 1, 0) == (SessionVerdict.REPEATED, b"r1")


@pytest.mark.parametrize(("sequence", "answered_up_to"), [(2, 0), (5, 3), (0, 0), (1, 1), (1, 7), (-1, 0)])
def test_sequence_that_is_not_the_next_is_refused_while_nothing_was_given_up(
    table: SessionTable, sequence: int, answered_up_to: int
) -> None:
    verdict = table.judge(S, sequence, answered_up_to)[0]
    assert verdict in (SessionVerdict.GAP, SessionVerdict.FORGOTTEN)


def test_given_up_commands_leave_no_gap_once_a_later_one_says_so(table: SessionTable) -> None:
    assert table.judge(S, 4, 3)[0] is SessionVerdict.EXECUTE
    _answered(table, 4, answered_up_to=3)
    assert table.judge(S, 2, 1)[0] is SessionVerdict.FORGOTTEN
    assert table.judge(S, 5, 3)[0] is SessionVerdict.EXECUTE


def test_given_up_command_that_arrives_late_is_never_executed(table: SessionTable) -> None:
    _answered(table, 1)
    _answered(table, 6, answered_up_to=5)
    for late in range(2, 6):
        for answered_up_to in (0, late - 1):
            assert table.judge(S, late, answered_up_to)[0] is SessionVerdict.FORGOTTEN
    assert table.judge(S, 1, 0)[0] is SessionVerdict.FORGOTTEN
    assert table.judge(S, 6, 5) == (SessionVerdict.REPEATED, b"r6")


def test_older_word_on_what_is_answered_takes_nothing_back(table: SessionTable) -> None:
    _answered(table, 4, answered_up_to=3)
    _answered(table, 5, answered_up_to=1)
    assert table.get(S).answered_up_to == 3  # type: ignore[union-attr]
    assert table.judge(S, 3, 0)[0] is SessionVerdict.FORGOTTEN
    list(table.take_changes())
    table.validate()


def test_client_that_takes_no_replies_is_told_to_slow_down_until_it_does(table: SessionTable) -> None:
    for sequence in range(1, REPLIES_MAX + 1):
        _answered(table, sequence)
    following = REPLIES_MAX + 1
    assert table.judge(S, following, 0)[0] is SessionVerdict.FULL
    assert table.judge(S, 7, 0) == (SessionVerdict.REPEATED, b"r7")
    assert table.judge(S, following, 1)[0] is SessionVerdict.EXECUTE
    _answered(table, following, answered_up_to=REPLIES_MAX)
    assert table.judge(S, following + 1, REPLIES_MAX)[0] is SessionVerdict.EXECUTE


def test_replies_are_forgotten_when_their_client_has_them(table: SessionTable) -> None:
    for sequence in (1, 2, 3):
        _answered(table, sequence)
    _answered(table, 4, answered_up_to=2)
    assert table.judge(S, 2, 0)[0] is SessionVerdict.FORGOTTEN
    assert table.judge(S, 3, 2) == (SessionVerdict.REPEATED, b"r3")
    list(table.take_changes())
    table.validate()


def test_session_is_due_only_after_its_time_and_the_new_leaders_full_time(table: SessionTable) -> None:
    assert table.due(100, 0, 100, 9) == []
    assert table.due(101, 2, 100, 9) == []
    assert table.due(102, 2, 100, 9) == [S]
    _answered(table, 1, now_ms=50)
    assert table.due(149, 2, 100, 9) == []
    assert table.due(150, 2, 100, 9) == [S]


def test_oldest_sessions_are_due_first_and_as_many_as_asked() -> None:
    table = SessionTable()
    table.open(S, 1, 1)
    table.open(T, 2, 2)
    table.answer(CommandHead(S, 1, 0, 1, b""), 9, 3)
    assert table.due(1000, 0, 100, 1) == [T]
    assert table.due(1000, 0, 100, 9) == [T, S]


def test_expired_session_is_unknown_and_its_row_is_gone(table: SessionTable) -> None:
    list(table.take_changes())
    table.expire(S, 2)
    assert table.judge(S, 1, 0)[0] is SessionVerdict.EXPIRED
    ((_, new),) = table.take_changes().values()
    assert new is None
    assert len(table) == 0


def test_row_changes_once_however_many_commands_came_between(table: SessionTable) -> None:
    for sequence in range(1, 20):
        _answered(table, sequence)
    ((old, _),) = table.take_changes().values()
    assert old is None
    assert not table.is_touched
    assert table.take_changes() == {}


def test_restored_table_judges_as_the_one_it_came_from(table: SessionTable) -> None:
    for sequence in (1, 2, 3):
        _answered(table, sequence, answered_up_to=0)
    list(table.take_changes())
    other = SessionTable()
    other.restore(list(table.rows()))
    assert other.judge(S, 2, 0) == (SessionVerdict.REPEATED, b"r2")
    assert list(other.rows()) == list(table.rows())
    other.validate()


def test_row_that_is_no_session_is_refused(table: SessionTable) -> None:
    list(table.take_changes())
    row = next(table.rows())
    with pytest.raises(CorruptSnapshotError, match="is no session"):
        SessionTable().restore([row._replace(row=b"\x91\x01")])


def test_log_that_contradicts_the_table_is_corrupt(table: SessionTable) -> None:
    with pytest.raises(CorruptLogError, match="which is open"):
        table.open(S, 1, 9)
    with pytest.raises(CorruptLogError, match="not open"):
        table.expire(T, 9)
    with pytest.raises(CorruptLogError, match="expected 1"):
        _answered(table, 2)
    with pytest.raises(CorruptLogError, match="not open"):
        table.answer(CommandHead(T, 1, 0, 1, b""), 1, 9)

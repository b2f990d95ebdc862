"""What became of a command is told by the log, once its leader's time has its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rsm_spark.core.commands import AnswerStatus, Command
from rsm_spark.core.records import CommandHead
from rsm_spark.core.sessions import TOO_LARGE_REPLY, SessionTable
from rsm_spark.runtime.command_outcomes import CommandOutcomes
from rsm_spark.runtime.context import ReplicaContext

_SESSION = bytes(16)


@pytest.fixture
def context() -> Any:
    """A follower that has applied two commands of a session, under a later leader than the one that took them."""
    sessions = SessionTable()
    sessions.open(_SESSION, 1, 1)
    sessions.answer(CommandHead(_SESSION, 1, 0, 1, b"first"), 1, 2)
    sessions.answer(CommandHead(_SESSION, 2, 0, 1, TOO_LARGE_REPLY), 1, 3)
    return SimpleNamespace(
        has_state=True,
        state_is_confirmed=True,
        state=SimpleNamespace(sessions=sessions),
        tip=SimpleNamespace(leader_epoch=6, revision=3),
    )


def _fates(context: Any) -> CommandOutcomes:
    return CommandOutcomes(cast("ReplicaContext", context))


def _fate(
    context: Any, sequence: int, session: bytes = _SESSION, answered_up_to: int = 0
) -> tuple[AnswerStatus, bytes]:
    answer = _fates(context).of_command(Command(session, sequence, answered_up_to, b""))
    return answer.status, answer.payload


def test_fates_are_known_once_an_entry_of_a_later_leader_is_applied(context: Any) -> None:
    assert _fates(context).are_known(5)
    assert not _fates(context).are_known(6)


@pytest.mark.parametrize("flag", ["has_state", "state_is_confirmed"])
def test_fates_are_not_known_while_there_is_no_whole_confirmed_state(context: Any, flag: str) -> None:
    setattr(context, flag, False)
    assert not _fates(context).are_known(5)


def test_a_command_in_the_log_has_its_reply(context: Any) -> None:
    assert _fate(context, 1) == (AnswerStatus.OK, b"first")
    assert _fate(context, 2) == (AnswerStatus.TOO_LARGE, b"")


@pytest.mark.parametrize("sequence", [3, 9])
def test_a_command_that_is_not_in_the_log_was_not_applied(context: Any, sequence: int) -> None:
    assert _fate(context, sequence) == (AnswerStatus.NOT_LEADER, b"")


def test_of_a_session_that_has_expired_nothing_is_known(context: Any) -> None:
    assert _fate(context, 1, session=bytes(15) + b"x") == (AnswerStatus.OUTCOME_UNKNOWN, b"")

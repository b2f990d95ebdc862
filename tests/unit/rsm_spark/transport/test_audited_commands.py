"""A command that changes rights, code or holds has a record of its sender before it, whichever door it comes by."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec
import pytest

from broker.machine.auditing import audit_outcome, audit_words
from broker.machine.commands import DeployCode, SetHold, SetTenant, SubmitTasks, TaskSpec
from broker.machine.messages import encode
from broker.machine.policies import TenantPolicy
from broker.machine.replies import Done, Refused
from ledger.logs import AUDIT_LOGGER
from ledger.rights.principal import Principal, Role
from rsm_spark.core.commands import ASKED, Answer, AnswerStatus, Audited, Command, OpenSession, Request
from rsm_spark.core.freshness import LINEARIZABLE, Freshness
from rsm_spark.transport.codec import ReceivedRequests
from rsm_spark.transport.reach import AuditWords, reach_of

S = bytes(16)
ANN = Principal(name="ann", role=Role.OPERATOR)


class Backend:
    """Answers each request by its place among what was sent."""

    def __init__(self, says: list[Answer] | None = None) -> None:
        self.sent: list[Request] = []
        self.says = says

    def submit(
        self,
        requests: Sequence[Request],
        *,
        freshness: Freshness,  # noqa: ARG002
        owner: str,
    ) -> asyncio.Future[Sequence[Answer]]:
        assert owner == "principal ann"
        self.sent += requests
        future: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()
        answers = [Answer(AnswerStatus.OK, place, b"%d" % place) for place in range(len(requests))]
        future.set_result(answers if self.says is None or len(self.sent) > len(self.says) else self.says)
        return future


def _submit(*requests: Request, says: list[Answer] | None = None) -> tuple[list[Request], Sequence[Answer]]:
    async def submitted() -> tuple[list[Request], Sequence[Answer]]:
        reach = reach_of(ANN, None, AuditWords(audit_words, audit_outcome), "ipv4:10.0.0.7:4711")
        assert reach is not None
        backend = Backend(says)
        received = ReceivedRequests(1, "broker", list(requests), LINEARIZABLE, 0)
        return backend.sent, await reach.submit(backend, received, "principal ann")

    return asyncio.run(submitted())


def test_who_sends_it_stands_before_the_command_and_answers_keep_their_places() -> None:
    hold = Command(S, 1, 0, encode(SetHold("evil", "", "", True)))
    task = Command(S, 2, 0, encode(SubmitTasks("acme", [TaskSpec("mail", b"x")])))
    sent, answers = _submit(OpenSession(S), hold, task)
    opened, audited, held, submitted, ended = sent
    assert isinstance(audited, Audited)
    assert (audited.principal, audited.role, audited.source) == ("ann", "operator", "ipv4:10.0.0.7:4711")
    assert audited.action.startswith("SetHold ")
    assert audited.outcome == ASKED
    assert ended == msgspec.structs.replace(audited, outcome="done")
    assert (opened, held, submitted) == (OpenSession(S), hold, task)
    assert [answer.payload for answer in answers] == [b"0", b"2", b"3"]


_DEPOSED = "not known: this leader was deposed"


@pytest.mark.parametrize(
    ("before", "after", "outcomes"),
    [
        (AnswerStatus.OK, Answer(AnswerStatus.OK, 8, encode(Done(8))), ["asked", "done"]),
        (AnswerStatus.OK, Answer(AnswerStatus.OK, 8, encode(Refused("not-found", "no such hold"))),
         ["asked", "refused: not-found"]),
        (AnswerStatus.OK, Answer(AnswerStatus.SESSION_EXPIRED, 8, b""), ["asked", "refused: SESSION_EXPIRED"]),
        (AnswerStatus.OK, Answer(AnswerStatus.OUTCOME_UNKNOWN, 0, b""), ["asked", _DEPOSED]),
        (AnswerStatus.REFUSED, Answer(AnswerStatus.OK, 8, encode(Done(8))), ["asked", "done"]),
        (AnswerStatus.NOT_LEADER, Answer(AnswerStatus.NOT_LEADER, 0, b""), ["not done: another replica leads"]),
        (AnswerStatus.OUTCOME_UNKNOWN, Answer(AnswerStatus.OUTCOME_UNKNOWN, 0, b""), [_DEPOSED]),
    ],
)  # fmt: skip
def test_what_came_of_a_command_is_told_and_logged_behind_it(
    caplog: pytest.LogCaptureFixture, before: AnswerStatus, after: Answer, outcomes: list[str]
) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    sent, answers = _submit(
        Command(S, 1, 0, encode(SetHold("evil", "", "", True))), says=[Answer(before, 7, b""), after]
    )
    assert answers == [after], "the caller sees nothing of the audit"
    assert [record.outcome for record in caplog.records] == outcomes  # type: ignore[attr-defined]
    logged = [one.outcome for one in sent[2:] if isinstance(one, Audited)]
    assert logged == outcomes[1:]


def test_what_commands_change_is_said_in_words_without_their_archives() -> None:
    assert '"weight":2.0' in audit_words(encode(SetTenant("acme", TenantPolicy(weight=2.0))))
    words = audit_words(encode(DeployCode("pool", b"PK" * 10_000, "00" * 32, 0)))
    assert words.startswith("DeployCode ")
    assert len(words) < 300


def test_other_commands_and_rubbish_are_not_audited() -> None:
    assert audit_words(encode(SubmitTasks("acme", [TaskSpec("mail", b"x")]))) == ""
    assert audit_words(b"\xc1 rubbish") == ""

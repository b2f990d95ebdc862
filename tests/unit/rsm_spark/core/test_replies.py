"""What clients are told, and a machine that fails where it must not: the request is refused, the service goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from rsm_spark.core.answer_column import AnswerColumn
from rsm_spark.core.batching import Batch, BatchLimits, Composer
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query, Request
from rsm_spark.core.envelope import HEADER_BYTES
from rsm_spark.core.machine import Decision, Field, FieldType, MachineDescription, TableDescription
from rsm_spark.core.records import REPLY_BYTES_MAX, KernelRecord, decode_records
from rsm_spark.core.replies import FAILED_REPLY, answer_queries, failed_reply, reply_answer
from rsm_spark.core.sessions import TOO_LARGE_REPLY
from rsm_spark.core.state import ReplicatedState
from rsm_spark.core.submissions import RequestQueue, Submission
from rsm_spark.core.table_machine import TableMachine, upsert

S = bytes(16)
NOTES = TableDescription("notes", (Field("name", FieldType.STR),), (Field("text", FieldType.STR),))


class Notes(TableMachine):
    """Fails as its command says."""

    description: ClassVar = MachineDescription("notes", 1, (NOTES,), (upsert(16, "noted", NOTES),))

    def decide(self, command: bytes, revision: int, now_ms: int) -> Decision:
        match command:
            case b"raise":
                raise RuntimeError("no such luck " + "x" * 10_000)
            case b"unencodable":
                return Decision([(16, ("a", "b")), (16, ("a", object()))], b"")
            case b"wrong type":
                return Decision([(16, ("a", "b")), (16, ("a", 1))], b"")
            case b"wrong record":
                return Decision([(99, ())], b"")
            case b"text":
                return Decision((), "done")  # type: ignore[arg-type]
            case b"mark":
                return Decision((), b"\xc1failed: not by the kernel")
            case b"nothing":
                return None  # type: ignore[return-value]
        return Decision([(16, (command.decode(), "text"))], b"noted")

    def query(self, query: bytes, revision: int) -> bytes:
        if query == b"text":
            return "done"  # type: ignore[return-value]
        return query.decode().encode()


class Leader:
    def __init__(self) -> None:
        self.state, self.follower = (ReplicatedState(Notes(), bytes(16)) for _ in range(2))
        self.composer = Composer(
            self.state,
            BatchLimits(64 * 1024, 1000, 10),
            leader_epoch=1,
            promoted_ms=0,
            session_ttl_ms=10**9,
            checkpoint_records=10**9,
        )
        self.ask(OpenSession(S))

    def ask(self, *requests: Request) -> tuple[Sequence[Answer], list[Any]]:
        queue, submission = RequestQueue(), Submission(requests, None)
        queue.add(submission)
        batch: Batch = self.composer.compose(queue, 0)
        self.follower.apply_entry(batch.payload)
        assert (self.follower.tip, self.follower.digest) == (self.state.tip, self.state.digest)
        self.state.validate()
        return submission.answers, decode_records(batch.payload[HEADER_BYTES:])


BAD = {
    b"raise": "RuntimeError: no such luck",
    b"unencodable": "described as str, this one is of type object",
    b"wrong type": "'text' of record 'noted' is described as str, this one is of type int",
    b"wrong record": "no record type 99",
    b"text": "TypeError: `decide` answers bytes, not str: 'done'",
    b"mark": "TypeError: `decide` answers bytes that begin with 0xC1",
    b"nothing": "AttributeError",
    b"\xff": "UnicodeDecodeError",
}


@pytest.mark.parametrize("command", BAD)
def test_command_on_which_the_machine_fails_is_refused_for_good_and_changes_nothing(command: bytes) -> None:
    leader = Leader()
    digest = [row for row in leader.state.rows() if row.table == "notes"]
    (answer, after), (record, _) = leader.ask(Command(S, 1, 0, command), Command(S, 2, 0, b"fine"))
    assert answer.status is AnswerStatus.REFUSED
    assert BAD[command] in answer.payload.decode()
    assert (record.type, record.command.record_count) == (KernelRecord.COMMAND_ANSWERED, 1)
    assert digest == []
    assert after.payload == b"noted"
    (again,), records = leader.ask(Command(S, 1, 0, command))
    assert (again.status, again.payload, records) == (AnswerStatus.REFUSED, answer.payload, [])
    (error,) = leader.composer.failures
    assert type(error).__name__ in answer.payload.decode()


def test_query_on_which_the_machine_fails_is_refused_and_the_others_are_answered() -> None:
    leader = Leader()
    answers, records = leader.ask(Query(b"\xff"), Query(b"ok"))
    assert [answer.status for answer in answers] == [AnswerStatus.REFUSED, AnswerStatus.OK]
    assert "UnicodeDecodeError" in answers[0].payload.decode()
    assert records == []
    assert len(leader.composer.failures) == 1
    ((refused,), _) = leader.ask(Query(b"text"))
    assert (refused.status, refused.payload) == (
        AnswerStatus.REFUSED, b"TypeError: `query` answers bytes, not str: 'done'",
    )  # fmt: skip


def test_a_column_is_answered_in_order_around_the_query_on_which_the_machine_fails() -> None:
    failures: list[Exception] = []
    answers = AnswerColumn([6], [b"before"])
    answer_queries(Notes(), [b"a", b"text", b"\xff", b"b"], 7, failures, answers)
    assert answers[0] == Answer(AnswerStatus.OK, 6, b"before")
    answers = answers[1:]
    assert [answer.status for answer in answers] == [
        AnswerStatus.OK, AnswerStatus.REFUSED, AnswerStatus.REFUSED, AnswerStatus.OK,
    ]  # fmt: skip
    assert [answer.payload for answer in answers if answer.status is AnswerStatus.OK] == [b"a", b"b"]
    assert [type(failure) for failure in failures] == [TypeError, UnicodeDecodeError]


def test_reason_of_a_failure_fits_a_reply_whatever_its_text() -> None:
    for text in ("x" * 10**6, "é" * 10**4, "\ud800"):
        reply = failed_reply(ValueError(text))
        assert len(reply) <= REPLY_BYTES_MAX
        assert reply_answer(reply, 3).payload.startswith(b"ValueError: ")


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (b"", AnswerStatus.OK),
        (b"noted", AnswerStatus.OK),
        (b"\xc1", AnswerStatus.OK),
        (TOO_LARGE_REPLY, AnswerStatus.TOO_LARGE),
        (FAILED_REPLY, AnswerStatus.REFUSED),
    ],
)
def test_logged_reply_is_told_as_what_it_means(reply: bytes, status: AnswerStatus) -> None:
    assert reply_answer(reply, 7) == Answer(status, 7, reply if status is AnswerStatus.OK else b"")

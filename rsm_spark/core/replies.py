"""Logged replies as answers, and what becomes of a machine's mistakes.

A machine's `decide` and `query` must not raise. If one does, that is a bug in the machine's code, and the same command
would stop one leader after the other. So the command is refused for good, logged like any other reply, and the service
goes on; the shell is told of the error.
"""

from __future__ import annotations

from collections.abc import Sequence

from rsm_spark.core.answer_column import AnswerColumn
from rsm_spark.core.commands import Answer, AnswerStatus
from rsm_spark.core.machine import StateMachine
from rsm_spark.core.records import REPLY_BYTES_MAX
from rsm_spark.core.sessions import TOO_LARGE_REPLY, SessionVerdict

FAILED_REPLY = b"\xc1failed: "
"""Prefix of the logged reply to a command on which the machine failed; no machine's reply begins so."""

KERNELS_MARK = 0xC1
"""First byte of the kernel's own replies: no msgpack begins with it."""
_OK = AnswerStatus.OK
_REASON_CHARS_MAX = 500


def reply_answer(reply: bytes, revision: int) -> Answer:
    """Return what a client is told by a logged reply."""
    if reply and reply[0] == KERNELS_MARK:
        if reply == TOO_LARGE_REPLY:
            return Answer(AnswerStatus.TOO_LARGE, revision, b"")
        if reply.startswith(FAILED_REPLY):
            return Answer(AnswerStatus.REFUSED, revision, reply[len(FAILED_REPLY) :])
    return Answer(_OK, revision, reply)


def answer_verdict(verdict: SessionVerdict, reply: bytes, revision: int) -> Answer:
    """Return the answer to a command that is not executed now."""
    match verdict:
        case SessionVerdict.REPEATED:
            return reply_answer(reply, revision)
        case SessionVerdict.GAP:
            return Answer(AnswerStatus.SEQUENCE_GAP, revision, b"")
        case SessionVerdict.EXPIRED:
            return Answer(AnswerStatus.SESSION_EXPIRED, revision, b"")
        case SessionVerdict.FULL:
            return Answer(AnswerStatus.OVERLOADED, revision, b"")
        case _:  # Executed or given up long ago; whoever asks has gone on.
            return Answer(AnswerStatus.OUTCOME_UNKNOWN, revision, b"")


def failed_reply(error: Exception) -> bytes:
    """Return what is logged of a command on which the machine failed."""
    reply = FAILED_REPLY + _reason(error)
    assert len(reply) <= REPLY_BYTES_MAX
    return reply


def check_reply(reply: bytes) -> None:
    """Check what a machine replies, before it is logged.

    Raises:
        TypeError: It is no bytes, or begins as only the kernel's own replies do.

    """
    if _checked(reply, "decide") and reply[0] == KERNELS_MARK:
        raise TypeError(f"`decide` answers bytes that begin with 0xC1, which only the kernel's do: {reply!r:.100}")


def answer_query(machine: StateMachine, query: bytes, revision: int, failures: list[Exception]) -> Answer:
    """Answer a query; REFUSED, and the error is added to `failures`, if the machine fails on it."""
    answers = AnswerColumn()
    answer_queries(machine, (query,), revision, failures, answers)
    return answers[0]


def answer_queries(
    machine: StateMachine, queries: Sequence[bytes], revision: int, failures: list[Exception], answers: AnswerColumn
) -> None:
    """Answer queries in order, each as `answer_query` does; their answers are added to `answers`."""
    query, first = machine.query, len(answers)
    found: list[bytes] = []
    refused: list[int] = []
    for text in queries:
        try:
            result = query(text, revision)
            found.append(result if type(result) is bytes else _checked(result, "query"))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the machine's
            failures.append(error)
            refused.append(first + len(found))
            found.append(_reason(error))
    answers.add_all(revision, found)
    for place in refused:
        answers.replace(place, Answer(AnswerStatus.REFUSED, revision, answers.payloads[place]))


def _checked(answer: bytes, method: str) -> bytes:
    if type(answer) is not bytes:
        raise TypeError(f"`{method}` answers bytes, not {type(answer).__name__}: {answer!r:.100}")
    return answer


def _reason(error: Exception) -> bytes:
    text = f"{type(error).__name__}: {error}"[:_REASON_CHARS_MAX]
    return text.encode(errors="replace")

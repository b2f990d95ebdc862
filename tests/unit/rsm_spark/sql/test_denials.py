"""What a door tells the audit of statements that were refused for want of rights."""

import pytest

from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query
from rsm_spark.core.writer_marks import (
    MarkedReply,
    MarkedStatus,
    MarkKind,
    WriterMark,
    encode_mark,
    encode_marked_reply,
)
from rsm_spark.sql.denials import denial, shown_reason
from rsm_spark.sql.messages import (
    SqlFault,
    SqlQuery,
    SqlReply,
    SqlResult,
    SqlRowsQuery,
    SqlSlice,
    SqlStatement,
    SqlStep,
    SqlStepReply,
    SqlTransaction,
    StepOutcome,
    encode,
)

NAME = bytes(16)
WHY = "the caller has no right to read secret"
DENIED = SqlFault("denied", WHY, 2)
WROTE = SqlTransaction((SqlStatement("DELETE FROM secret"),))
COMMAND = Command(NAME, 1, 0, encode(WROTE))
QUERY = Query(encode(SqlQuery("SELECT v FROM secret")))
STEP = Query(encode(SqlStep(NAME, 1, WROTE.statements)))
ROWS = Query(encode(SqlRowsQuery(NAME, "SELECT v FROM secret")))
TEXT = SqlResult((("v", "TEXT"),), (("denied",),))


def answered(reply):
    return Answer(AnswerStatus.OK, 7, reply if isinstance(reply, bytes) else encode(reply))


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (COMMAND, SqlReply((), DENIED)),
        (QUERY, SqlReply((), DENIED)),
        (STEP, SqlStepReply((StepOutcome(TEXT), StepOutcome(None, DENIED)))),
        (STEP, SqlStepReply((), DENIED)),
        (ROWS, SqlSlice((), (), is_last=True, fault=DENIED)),
    ],
)
def test_each_kind_of_reply_says_so(request_, reply):
    assert denial(request_, answered(reply)) == WHY


def test_a_writers_command_says_so_too():
    marked = encode_mark(WriterMark("eve/one", MarkKind.CHUNK, "c", "r", 1, payload=encode(WROTE)))
    reply = encode_marked_reply(MarkedReply(MarkedStatus.DECLINED, "", encode(SqlReply((), DENIED))))
    assert denial(Command(NAME, 1, 0, marked), answered(reply)) == WHY
    refused = encode_marked_reply(MarkedReply(MarkedStatus.REFUSED, "denied"))
    assert not denial(Command(NAME, 1, 0, marked), answered(refused))


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (QUERY, answered(SqlReply((TEXT,)))),  # A row may have the word.
        (QUERY, answered(SqlReply((), SqlFault("sql", "no such table: denied")))),
        (STEP, answered(SqlStepReply((StepOutcome(TEXT),)))),
        (ROWS, answered(SqlSlice(TEXT.columns, TEXT.rows))),
        (COMMAND, answered(b"\xc1too large: denied")),
        (COMMAND, Answer(AnswerStatus.REFUSED, 0, encode(SqlReply((), DENIED)))),
        (OpenSession(NAME), answered(b"denied")),
        (Query(b"\x92\x7fdenied"), answered(b"denied")),
    ],
)
def test_nothing_else_does(request_, answer):
    assert denial(request_, answer) == ""


def test_a_line_of_the_audit_is_one_and_short():
    assert shown_reason("no right to read a\n2026 forged\x1b[0m") == "no right to read a?2026 forged?[0m"
    assert len(shown_reason("x" * 200_000)) == 300

"""Marked commands as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsm_spark.core.writer_marks import (
    MAGIC,
    MarkedReply,
    MarkedStatus,
    decode_mark,
    decode_marked_reply,
    encode_mark,
    encode_marked_reply,
    is_marked,
)
from rsm_spark.errors import InvalidCommandError
from tests.unit.rsm_spark.core.marked_leader import MarkedLeader, chunk, end


@given(st.binary(max_size=50), st.integers(0, 4095), st.integers(0, 9999), st.text(min_size=1, max_size=20))
def test_marks_come_back_as_they_were(payload: bytes, number: int, part: int, writer: str) -> None:
    for mark in (chunk(payload, number, part=part, writer=writer), end((part, number), writer=writer)):
        assert is_marked(encode_mark(mark))
        assert decode_mark(encode_mark(mark)) == mark
    reply = MarkedReply(MarkedStatus.REFUSED, writer, payload)
    assert decode_marked_reply(encode_marked_reply(reply)) == reply


@given(st.binary(max_size=40))
def test_whatever_follows_the_first_bytes_a_leader_refuses_it_in_words(text: bytes) -> None:
    leader = MarkedLeader()
    reply = leader.ask(MAGIC + text)
    assert reply.status is MarkedStatus.REFUSED
    assert "writer" in reply.reason or reply.reason.startswith("not a marked command")
    assert not leader.composer.failures


def test_a_reply_that_is_none_is_told() -> None:
    with pytest.raises(InvalidCommandError, match="not the reply"):
        decode_marked_reply(b"\x01")

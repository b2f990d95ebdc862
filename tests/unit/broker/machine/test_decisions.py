"""How decisions are said."""

from __future__ import annotations

from broker.machine.decisions import answered, refused
from broker.machine.messages import decode_reply
from broker.machine.replies import Done, Refusal, Refused
from rsm_spark.core.records import REPLY_BYTES_MAX


def test_a_refusal_fits_a_reply_whatever_it_quotes() -> None:
    decision = refused(Refusal.INVALID, "送" * 10_000 + "\ud800")
    assert len(decision.reply) <= REPLY_BYTES_MAX
    assert not decision.records
    reply = decode_reply(refused(Refusal.INVALID, "half \ud800").reply)
    assert isinstance(reply, Refused)
    assert reply.reason == "half ?"


def test_an_answer_has_its_records() -> None:
    decision = answered([(18, (1,))], Done(5))
    assert decision.records == [(18, (1,))]
    assert decode_reply(decision.reply) == Done(5)

"""Messages of an exchange as msgpack: the same as in protobuf, and rubbish is one clear error."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rsm_spark.core.commands import Answer, AnswerStatus
from rsm_spark.core.freshness import LINEARIZABLE, STALE, Freshness, at_least, bounded
from rsm_spark.core.operation import Message, Operation, OperationColumn
from rsm_spark.errors import InvalidCommandError
from rsm_spark.transport import packed_codec
from rsm_spark.transport.codec import PROTOBUF_EXCHANGE, ReceivedAnswers, join_answers
from rsm_spark.transport.packed_codec import PACKED_EXCHANGE
from rsm_spark.transport.security import MESSAGE_BYTES_MAX
from tests.sets import examples

SESSION = b"s" * 16
READS = [
    LINEARIZABLE,
    STALE,
    at_least(7),
    bounded(max_lag_ms=5),
    bounded(max_lag_revisions=6),
    bounded(max_lag_ms=0, max_lag_revisions=0),
]
VALUES = st.integers(-(2**63), 2**63) | st.binary() | st.text()
PAYLOADS = st.lists(st.binary(max_size=40), max_size=6)


def message(commands: list[bytes], queries: list[bytes], freshness: Freshness, *, opens: bool) -> Message:
    sent = [Operation(payload, 0, None) for payload in commands]
    for sequence, operation in enumerate(sent, 2**63):
        operation.sequence = sequence
    reads = OperationColumn(queries, 0, lambda: None, is_query=True).take(len(queries), 1_000, has_some=False)[:1]
    return Message(3, SESSION, opens, 2**63, [*sent], [*reads] if queries else [], freshness)


@given(PAYLOADS, PAYLOADS, st.sampled_from(READS), st.booleans(), st.integers(1, 40))
@settings(max_examples=examples(100))
def test_requests_come_out_as_over_grpc(
    commands: list[bytes], queries: list[bytes], freshness: Freshness, opens: bool, count: int
) -> None:
    sent = message(commands, queries, freshness, opens=opens)
    received = []
    for codec in (PROTOBUF_EXCHANGE, PACKED_EXCHANGE):
        texts = [codec.encode_requests(sent, "orders", 2**64 - 1 - number) for number in range(count)]
        received.append(codec.decode_request_batch(codec.join(texts)))
    assert received[0] == received[1]
    assert len(received[1]) == count


@given(
    st.lists(st.tuples(st.sampled_from(AnswerStatus), st.integers(0, 2**64 - 1), st.binary(max_size=30)), min_size=1)
)
@settings(max_examples=examples(100))
def test_answers_come_out_as_over_grpc(answers: list[tuple[AnswerStatus, int, bytes]]) -> None:
    received: list[list[ReceivedAnswers]] = []
    for codec in (PROTOBUF_EXCHANGE, PACKED_EXCHANGE):
        texts = codec.encode_answers(9, [Answer(*answer) for answer in answers], "host:1")
        received.append(codec.decode_answer_batch(codec.join(texts * 2)))
    assert received[0] == received[1]


def test_large_answers_are_cut_and_joined() -> None:
    answers = [Answer(AnswerStatus.OK, n, b"v" * 1_500_000) for n in range(7)]
    texts = PACKED_EXCHANGE.encode_answers(1, answers, None)
    assert len(texts) > 1
    assert max(map(len, texts)) < MESSAGE_BYTES_MAX
    pieces = [PACKED_EXCHANGE.decode_answer_batch(PACKED_EXCHANGE.join([text]))[0] for text in texts]
    assert [piece.more for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    assert join_answers(pieces).revisions == list(range(7))


def fields(**changed: Any) -> bytes:
    good = {
        "message_id": 1, "log": "orders", "session": SESSION, "opens_session": False, "answered_up_to": 0,
        "sequences": [1], "commands": [b"x"], "queries": [],
    }  # fmt: skip
    return msgspec.msgpack.encode([[*(good | changed).values()]])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (fields(sequences=[]), "1 commands with 0 sequences"),
        (fields(session=b"short"), "16 random bytes"),
        (fields(session=b"", opens_session=True, sequences=[], commands=[]), "16 random bytes"),
        (fields(message_id=-1), "no batch of requests"),
        (fields(sequences=[-1]), "no batch of requests"),
        (fields(sequences=[2**64 + 0.5]), "no batch of requests"),
        (fields(answered_up_to=-5), "no batch of requests"),
        (fields(commands=["\ud7ff"], queries=[5]), "no batch of requests"),
        (fields(log=b"orders"), "no batch of requests"),
        (fields(opens_session=1), "no batch of requests"),
        (fields(read=77), "reads of kind 77"),
        (fields(read=2), "max_lag"),
        (b"", "no batch of requests"),
        (b"\xc1", "no batch of requests"),
        (b"\xdd\xff\xff\xff\xff", "no batch of requests"),
        (b"\x91" * 100_000, "no batch of requests"),
        (fields(log="x")[:-1], "no batch of requests"),
    ],
)
def test_a_message_that_breaks_the_contract_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(InvalidCommandError, match=said):
        PACKED_EXCHANGE.decode_request_batch(text)


def test_a_batch_of_more_operations_than_any_client_sends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_codec, "OPERATIONS_MAX", 100)
    assert len(PACKED_EXCHANGE.decode_request_batch(fields(queries=[b""] * 98))[0].requests) == 99
    with pytest.raises(InvalidCommandError, match="a batch of 102 operations: 100 are allowed"):
        PACKED_EXCHANGE.decode_request_batch(fields(queries=[b""] * 100))


def test_later_versions_may_append_fields() -> None:
    later = msgspec.msgpack.encode([[1, "orders", b"", False, 0, [], [], [b"q"], 0, 0, None, None, "more", [1]]])
    (received,) = PACKED_EXCHANGE.decode_request_batch(later)
    assert len(received.requests) == 1


@given(
    text=st.binary(max_size=300) | st.lists(st.lists(VALUES), max_size=3).map(lambda one: msgspec.msgpack.encode([one]))
)
@settings(max_examples=examples(300))
def test_rubbish_is_one_error(text: bytes) -> None:
    try:
        PACKED_EXCHANGE.decode_request_batch(text)
    except InvalidCommandError:
        pass
    try:
        PACKED_EXCHANGE.decode_answer_batch(text)
    except ValueError:
        pass


@given(position=st.integers(0, 300), value=st.integers(0, 255))
@settings(max_examples=examples(300))
def test_one_wrong_byte_is_one_error_or_none(position: int, value: int) -> None:
    sent = bytearray(fields(commands=[b"x" * 20], queries=[b"q"]))
    sent[position % len(sent)] = value
    try:
        PACKED_EXCHANGE.decode_request_batch(bytes(sent))
    except InvalidCommandError:
        pass

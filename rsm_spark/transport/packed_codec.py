"""The messages of an exchange as msgpack arrays: what `store.proto` says, for a tenth of the work. No IO.

A batch is an array of messages, a message the array of the fields below, in their order; later versions append. Of the
framed port.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from rsm_spark.core.answer_column import AnswerColumn
from rsm_spark.core.commands import Answer
from rsm_spark.core.operation import TRACES_MAX, Message, payloads_of, sequences_of
from rsm_spark.errors import InvalidCommandError
from rsm_spark.transport.codec import (
    ExchangeCodec,
    ReceivedAnswers,
    ReceivedRequests,
    cut_answers,
    decode_freshness,
    received_requests,
)

OPERATIONS_MAX: Final = 1_000_000
"""Operations of one batch: an empty one has two bytes, and becomes an object of thirty times that."""
_ARRAY_SMALL_MAX: Final = 15
_ARRAY_SMALL: Final = 0x90
_ARRAY: Final = struct.Struct(">BI")
_ARRAY_TAG: Final = 0xDD

_Count = Annotated[int, msgspec.Meta(ge=0)]


class PackedRequests(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A client's message; see `Requests` of `store.proto`."""

    message_id: _Count
    log: str
    session: bytes
    opens_session: bool
    answered_up_to: _Count
    sequences: list[_Count]
    commands: list[bytes]
    queries: list[bytes]
    read: _Count = 0
    min_revision: _Count = 0
    max_lag_ms: _Count | None = None
    max_lag_revisions: _Count | None = None


class TracedRequests(PackedRequests, frozen=True, array_like=True, gc=False):
    """The same of a client that traces; a replica of before leaves out what it does not know.

    Attributes:
        traces: See `Message`: an array of text; what is anything else is ignored. It is read by itself: a byte of it
            may become an object of a hundred.

    """

    traces: msgspec.Raw = msgspec.Raw(b"\xc0")


class PackedAnswers(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A replica's message; see `Answers` of `store.proto`."""

    message_id: int
    revisions: list[int]
    payloads: list[bytes]
    statuses: list[int] = []
    leader_address: str = ""
    more: bool = False


_ENCODER: Final = msgspec.msgpack.Encoder()
_REQUESTS: Final = msgspec.msgpack.Decoder(list[TracedRequests])
_ANSWERS: Final = msgspec.msgpack.Decoder(list[PackedAnswers])
_TRACES: Final = msgspec.msgpack.Decoder()
_TRACES_BYTES_MAX: Final = 4 * 1024


def _encode_requests(message: Message, log: str, message_id: int) -> bytes:
    freshness = message.freshness
    has_session = bool(message.commands) or message.opens_session
    packed = (
        message_id,
        log,
        message.session if has_session else b"",
        message.opens_session,
        message.answered_up_to,
        sequences_of(message.commands),
        payloads_of(message.commands),
        payloads_of(message.queries),
        int(freshness.kind),
        freshness.min_revision,
        freshness.max_lag_ms,
        freshness.max_lag_revisions,
    )
    if message.traces is None:
        return _ENCODER.encode(PackedRequests(*packed))
    return _ENCODER.encode(TracedRequests(*packed, msgspec.Raw(_ENCODER.encode(list(message.traces)))))


def _decode_request_batch(text: bytes) -> list[ReceivedRequests]:
    """Read what a client sent.

    Raises:
        InvalidCommandError: It breaks the contract of `store.proto`.

    """
    try:
        messages = _REQUESTS.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidCommandError(f"{len(text)} bytes are no batch of requests: {error}") from error
    count = sum(1 + len(message.commands) + len(message.queries) for message in messages)
    if count > OPERATIONS_MAX:
        raise InvalidCommandError(f"a batch of {count} operations: {OPERATIONS_MAX} are allowed")
    return [
        received_requests(
            message.message_id,
            message.log,
            message.session,
            message.sequences,
            message.commands,
            message.queries,
            opens_session=message.opens_session,
            answered_up_to=message.answered_up_to,
            freshness=decode_freshness(
                message.read, message.min_revision, message.max_lag_ms, message.max_lag_revisions
            ),
            traces=_traces_of(message.traces),
        )
        for message in messages
    ]


def _traces_of(text: msgspec.Raw) -> list[str] | None:
    if len(text) > _TRACES_BYTES_MAX:
        return None
    try:
        found = _TRACES.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return [one for one in found if isinstance(one, str)][:TRACES_MAX] if isinstance(found, list) else None


def _encode_answers(message_id: int, answers: Sequence[Answer], leader_address: str | None) -> list[bytes]:
    pieces = cut_answers(answers)
    last = len(pieces) - 1
    return [_encode_piece(message_id, piece, leader_address, more=index < last) for index, piece in enumerate(pieces)]


def _encode_piece(message_id: int, answers: AnswerColumn, leader_address: str | None, *, more: bool) -> bytes:
    is_refused = not answers.is_all_ok
    return _ENCODER.encode(
        PackedAnswers(
            message_id,
            answers.revisions,
            answers.payloads,
            list(answers.statuses) if is_refused else [],
            (leader_address or "") if is_refused else "",
            more,
        )
    )


def _decode_answer_batch(text: bytes) -> list[ReceivedAnswers]:
    """Read what a replica sent.

    Raises:
        ValueError: It is no batch of answers.

    """
    try:
        found = _ANSWERS.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{len(text)} bytes are no batch of answers: {error}") from error
    return [
        ReceivedAnswers(one.message_id, one.statuses, one.revisions, one.payloads, one.leader_address, one.more)
        for one in found
    ]


def _join(texts: Sequence[bytes]) -> bytes:
    count = len(texts)
    head = bytes((_ARRAY_SMALL | count,)) if count <= _ARRAY_SMALL_MAX else _ARRAY.pack(_ARRAY_TAG, count)
    return head + b"".join(texts)


PACKED_EXCHANGE: Final = ExchangeCodec(
    _encode_requests, _decode_request_batch, _encode_answers, _decode_answer_batch, _join
)
"""Of the framed port."""

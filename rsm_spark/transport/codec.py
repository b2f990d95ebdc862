"""The store's gRPC messages as what the kernel and the clients use; the only place that knows the generated code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from rsm_spark.core.answer_column import AnswerColumn
from rsm_spark.core.commands import Answer, Command, CommandColumn, OpenSession, Query, QueryColumn, Request
from rsm_spark.core.freshness import INDEXED, LINEARIZABLE, STALE, Freshness, ReadKind
from rsm_spark.core.operation import TRACES_MAX, Message, payloads_of, sequences_of
from rsm_spark.errors import InvalidCommandError
from rsm_spark.transport import store_pb2
from rsm_spark.transport.parsing import parsed

SERVICE = "rsm.store.v1.Replica"
EXCHANGE_METHOD = f"/{SERVICE}/Exchange"
CALL_METHOD = f"/{SERVICE}/Call"
STATUS_METHOD = f"/{SERVICE}/Status"

SESSION_BYTES = 16
ANSWERS_BYTES_MAX = 4 * 1024 * 1024
"""Payload bytes of one piece of answers, before the last of them; a single one is a scan's page, 3 MiB, at most."""

_PLAIN_READS: dict[int, Freshness] = {int(plain.kind): plain for plain in (LINEARIZABLE, INDEXED, STALE)}
_TAG_OF_FIELD_1 = b"\x0a"
_SMALL_VARINTS = [bytes((number,)) for number in range(0x80)]


class ReceivedRequests(msgspec.Struct, frozen=True, gc=False):
    """A client's message.

    Attributes:
        message_id: To be echoed.
        log: Name of the log that the client means.
        requests: In the order in which they are answered.
        freshness: Of the queries.
        payload_bytes: Of all requests.
        traces: See `Message`; as they came, from anybody.

    """

    message_id: int
    log: str
    requests: Sequence[Request]
    freshness: Freshness
    payload_bytes: int
    traces: Sequence[str] | None = None


class ReceivedAnswers(msgspec.Struct, gc=False):
    """A replica's message; the lists are parallel, `statuses` may be empty (all OK)."""

    message_id: int
    statuses: list[int]
    revisions: list[int]
    payloads: list[bytes]
    leader_address: str
    more: bool


def join_messages(texts: Sequence[bytes]) -> bytes:
    """Return a RequestBatch of encoded Requests, or an AnswerBatch of encoded Answers: both have one repeated field."""
    pieces: list[bytes] = []
    for text in texts:
        pieces += (_TAG_OF_FIELD_1, _varint(len(text)), text)
    return b"".join(pieces)


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _SMALL_VARINTS[number]
    text = bytearray()
    while number >= 0x80:
        text.append(number & 0x7F | 0x80)
        number >>= 7
    text.append(number)
    return bytes(text)


def decode_request_batch(text: bytes) -> list[ReceivedRequests]:
    """Read what a stream of clients sent.

    Raises:
        InvalidCommandError: It breaks the contract of `store.proto`.

    """
    return [_read_requests(message) for message in parsed(store_pb2.RequestBatch, text, InvalidCommandError).messages]


def decode_requests(text: bytes) -> ReceivedRequests:
    """Read a client's message.

    Raises:
        InvalidCommandError: It breaks the contract of `store.proto`.

    """
    return _read_requests(parsed(store_pb2.Requests, text, InvalidCommandError))


def _read_requests(message: store_pb2.Requests) -> ReceivedRequests:
    return received_requests(
        message.message_id,
        message.log,
        message.session,
        message.sequences,
        message.commands,
        message.queries,
        opens_session=message.open_session,
        answered_up_to=message.answered_up_to,
        freshness=decode_freshness(
            int(message.read),
            message.min_revision,
            message.max_lag_ms if message.HasField("max_lag_ms") else None,
            message.max_lag_revisions if message.HasField("max_lag_revisions") else None,
        ),
        traces=list(message.traces[:TRACES_MAX]) if message.is_traced else None,
    )


def received_requests(
    message_id: int,
    log: str,
    session: bytes,
    sequences: Sequence[int],
    commands: Sequence[bytes],
    queries: Sequence[bytes],
    *,
    opens_session: bool,
    answered_up_to: int,
    freshness: Freshness,
    traces: Sequence[str] | None = None,
) -> ReceivedRequests:
    """Return a client's message, of its fields; see `store.proto`.

    Raises:
        InvalidCommandError: They contradict each other.

    """
    if len(sequences) != len(commands):
        raise InvalidCommandError(f"{len(commands)} commands with {len(sequences)} sequences: one each is needed")
    if (commands or opens_session) and len(session) != SESSION_BYTES:
        raise InvalidCommandError(f"session of {len(session)} bytes: {SESSION_BYTES} random bytes are needed")
    payload_bytes = sum(map(len, commands)) + sum(map(len, queries))
    if not opens_session:
        column = (
            CommandColumn(session, answered_up_to, list(sequences), [*commands, *queries])
            if commands
            else QueryColumn(list(queries))
        )
        return ReceivedRequests(message_id, log, column, freshness, payload_bytes, traces)
    requests: list[Request] = [OpenSession(session)]
    requests += [
        Command(session, sequence, answered_up_to, payload)
        for sequence, payload in zip(sequences, commands, strict=True)
    ]
    requests += [Query(payload) for payload in queries]
    return ReceivedRequests(message_id, log, requests, freshness, payload_bytes, traces)


def decode_freshness(
    number: int, min_revision: int, max_lag_ms: int | None, max_lag_revisions: int | None
) -> Freshness:
    """Return how new answers must be.

    Raises:
        InvalidCommandError: There is no such kind of reads.

    """
    plain = _PLAIN_READS.get(number)
    if plain is not None:
        return plain
    try:
        kind = ReadKind(number)
    except ValueError as error:
        raise InvalidCommandError(f"reads of kind {number}: this replica is older than the client") from error
    return Freshness(kind, min_revision, max_lag_ms, max_lag_revisions)


def encode_answers(message_id: int, answers: Sequence[Answer], leader_address: str | None) -> list[bytes]:
    """Return a replica's answers to one message: one message, or several if they are very large.

    Args:
        message_id: Of the client's message.
        answers: One or more.
        leader_address: Goes along when it is of use.

    """
    pieces = cut_answers(answers)
    last = len(pieces) - 1
    return [_encode_piece(message_id, piece, leader_address, more=index < last) for index, piece in enumerate(pieces)]


def cut_answers(answers: Sequence[Answer]) -> list[AnswerColumn]:
    """Return the answers to one message in pieces that are messages' worth: nearly always one."""
    column = AnswerColumn.of(answers)
    if sum(map(len, column.payloads)) <= ANSWERS_BYTES_MAX:
        return [column]
    pieces: list[AnswerColumn] = []
    first = 0
    held = 0
    for index, payload in enumerate(column.payloads):
        held += len(payload)
        if held > ANSWERS_BYTES_MAX and index > first:
            pieces.append(column[first:index])
            first, held = index, len(payload)
    pieces.append(column[first:] if first else column)
    return pieces


def received_answers(message_id: int, answers: Sequence[Answer], leader_address: str | None = None) -> ReceivedAnswers:
    """Return a replica's answers to one message as its client gets them, where nothing lies between the two."""
    column = AnswerColumn.of(answers)
    is_refused = not column.is_all_ok
    return ReceivedAnswers(
        message_id,
        list(column.statuses) if is_refused else [],
        column.revisions,
        column.payloads,
        (leader_address or "") if is_refused else "",
        more=False,
    )


def _encode_piece(message_id: int, answers: AnswerColumn, leader_address: str | None, *, more: bool) -> bytes:
    message = store_pb2.Answers(
        message_id=message_id, revisions=answers.revisions, payloads=answers.payloads, more=more
    )
    if not answers.is_all_ok:
        message.statuses.extend(map(int, answers.statuses))  # type: ignore[arg-type]  # the stub wants the generated enum
        message.leader_address = leader_address or ""
    return message.SerializeToString()


def encode_message(message: Message, log: str, message_id: int | None = None) -> bytes:
    """Return a client's message, as `message_id` if that is given."""
    freshness = message.freshness
    return store_pb2.Requests(
        message_id=message.message_id if message_id is None else message_id,
        log=log,
        session=message.session if message.commands or message.opens_session else b"",
        open_session=message.opens_session,
        answered_up_to=message.answered_up_to,
        sequences=sequences_of(message.commands),
        commands=payloads_of(message.commands),
        queries=payloads_of(message.queries),
        read=int(freshness.kind),  # type: ignore[arg-type]  # the stub wants the generated enum
        min_revision=freshness.min_revision,
        max_lag_ms=freshness.max_lag_ms,
        max_lag_revisions=freshness.max_lag_revisions,
        is_traced=message.traces is not None,
        traces=message.traces or (),
    ).SerializeToString()


def decode_answer_batch(text: bytes) -> list[ReceivedAnswers]:
    """Read what a replica sent on a stream.

    Raises:
        ValueError: It is no AnswerBatch.

    """
    return [_read_answers(message) for message in parsed(store_pb2.AnswerBatch, text, ValueError).messages]


def decode_answers(text: bytes) -> ReceivedAnswers:
    """Read a replica's message.

    Raises:
        ValueError: It is none.

    """
    return _read_answers(parsed(store_pb2.Answers, text, ValueError))


def _read_answers(message: store_pb2.Answers) -> ReceivedAnswers:
    # Lists, once: indexing a repeated field crosses into C for every element.
    return ReceivedAnswers(
        message.message_id,
        list(message.statuses),
        list(message.revisions),
        list(message.payloads),
        message.leader_address,
        message.more,
    )


def join_answers(pieces: Sequence[ReceivedAnswers]) -> ReceivedAnswers:
    """Return the answers to one message that came in pieces."""
    statuses: list[int] = []
    if any(piece.statuses for piece in pieces):
        for piece in pieces:
            statuses += piece.statuses or [0] * len(piece.payloads)
    return ReceivedAnswers(
        pieces[0].message_id,
        statuses,
        [revision for piece in pieces for revision in piece.revisions],
        [payload for piece in pieces for payload in piece.payloads],
        pieces[-1].leader_address,
        more=False,
    )


class ExchangeCodec(NamedTuple):
    """Form in which the messages of an exchange travel; every client and replica has both.

    Attributes:
        encode_requests: Returns a client's message of (message, log, its id on the stream).
        decode_request_batch: Reads what a client sent.
        encode_answers: Returns the answers to one message, as one or more texts.
        decode_answer_batch: Reads what a replica sent; raises ValueError if it is none.
        join: Returns one message of several texts.

    """

    encode_requests: Callable[[Message, str, int], bytes]
    decode_request_batch: Callable[[bytes], list[ReceivedRequests]]
    encode_answers: Callable[[int, Sequence[Answer], str | None], list[bytes]]
    decode_answer_batch: Callable[[bytes], list[ReceivedAnswers]]
    join: Callable[[Sequence[bytes]], bytes]


PROTOBUF_EXCHANGE = ExchangeCodec(
    encode_message, decode_request_batch, encode_answers, decode_answer_batch, join_messages
)
"""Of gRPC."""


def encode_status_request() -> bytes:
    """Return the question for a replica's status."""
    return store_pb2.StatusRequest().SerializeToString()


def encode_status(json: bytes) -> bytes:
    return store_pb2.StatusAnswer(json=json.decode()).SerializeToString()


def decode_status(text: bytes) -> bytes:
    """Return the JSON of a replica's status."""
    return store_pb2.StatusAnswer.FromString(text).json.encode()

"""Contexts of traces in messages of clients: new and old peers, hostile ones, and what a replica makes of them."""

from __future__ import annotations

import asyncio
import tracemalloc
import types
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from ledger.telemetry.trace_context import TraceContext
from ledger.telemetry.tracing import Span, SpanKind, Tracer, begin_span, current_context, install_tracer
from rsm_spark.core.commands import Answer, AnswerStatus, Query
from rsm_spark.core.operation import TRACES_MAX, Message, Operation, OperationColumn
from rsm_spark.transport.codec import PROTOBUF_EXCHANGE, ExchangeCodec, ReceivedRequests
from rsm_spark.transport.http2_heads import RpcHead
from rsm_spark.transport.packed_codec import PACKED_EXCHANGE, PackedRequests
from rsm_spark.transport.store_pb2 import Requests
from rsm_spark.transport.traced_requests import called_by, served, with_traces

CONTEXT = TraceContext(7, 8)
SESSION = b"s" * 16
CODECS = pytest.mark.parametrize("codec", [PACKED_EXCHANGE, PROTOBUF_EXCHANGE], ids=["packed", "protobuf"])


@pytest.fixture
def ended() -> Iterator[list[Span]]:
    spans: list[Span] = []
    install_tracer(Tracer(0.0, spans.append))
    yield spans
    install_tracer(None)


def _message(*operations: Operation, traces: tuple[str, ...] | None = None) -> Message:
    return Message(1, SESSION, False, 0, list(operations), [], traces=traces)


def _operation(sequence: int = 1) -> Operation:
    return Operation(b"put", 1.0, None, sequence=sequence)


def _received(codec: ExchangeCodec, message: Message) -> ReceivedRequests:
    (received,) = codec.decode_request_batch(codec.join([codec.encode_requests(message, "orders", 5)]))
    assert (received.message_id, received.log, len(received.requests)) == (5, "orders", len(message.commands))
    return received


@CODECS
def test_traces_arrive_and_a_client_without_traces_says_so(codec: ExchangeCodec) -> None:
    for traces in (None, (), (CONTEXT.traceparent,)):
        found = _received(codec, _message(_operation(), traces=traces)).traces
        assert (None if found is None else tuple(found)) == traces


def test_a_replica_of_before_takes_a_message_with_traces_and_a_message_of_before_is_taken() -> None:
    traced = _message(_operation(), traces=(CONTEXT.traceparent,))
    plain = _message(_operation())
    packed = [PACKED_EXCHANGE.encode_requests(one, "orders", 5) for one in (plain, traced)]
    before = msgspec.msgpack.Decoder(PackedRequests)
    assert before.decode(packed[0]) == before.decode(packed[1])
    assert packed[0] == msgspec.msgpack.encode(before.decode(packed[0])), "without traces nothing is different"
    told = [PROTOBUF_EXCHANGE.encode_requests(one, "orders", 5) for one in (plain, traced)]
    assert told[1].startswith(told[0]), "fields that a replica of before skips"
    assert not Requests.FromString(told[0]).is_traced


_DEEP: list[object] = []
for _ in range(500):
    _DEEP = [_DEEP]


@pytest.mark.parametrize(
    "traces",
    [7, "later", {"a": 1}, [7, None, [[]]], [b"x" * 1_000_000], 1.5, _DEEP, [{}] * 100_000, ["x"] * 100_000],
    ids=lambda traces: str(traces)[:20],
)
def test_traces_that_are_none_are_ignored_and_the_message_is_taken(traces: object) -> None:
    packed = msgspec.msgpack.decode(PACKED_EXCHANGE.encode_requests(_message(_operation(), traces=()), "orders", 5))
    text = msgspec.msgpack.encode([*packed[:-1], traces])
    (received,) = PACKED_EXCHANGE.decode_request_batch(PACKED_EXCHANGE.join([text]))
    assert not received.traces
    assert len(received.requests) == 1


@CODECS
def test_of_contexts_without_end_no_more_than_a_few_are_read(codec: ExchangeCodec) -> None:
    many = tuple(TraceContext(number, 8).traceparent for number in range(1, 60))
    found = _received(codec, _message(_operation(), traces=many)).traces
    assert found is not None
    assert tuple(found) == many[:TRACES_MAX]


def test_a_million_of_nothing_in_place_of_contexts_takes_no_memory() -> None:
    packed = msgspec.msgpack.decode(PACKED_EXCHANGE.encode_requests(_message(_operation(), traces=()), "orders", 5))
    text = PACKED_EXCHANGE.join([msgspec.msgpack.encode([*packed[:-1], [{}] * (1 << 20)])])
    tracemalloc.start()
    try:
        (received,) = PACKED_EXCHANGE.decode_request_batch(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert received.traces is None
    assert peak < len(text), "an object for each of them"


def test_a_message_carries_the_first_few_contexts_of_its_operations(ended: list[Span]) -> None:
    install_tracer(Tracer(1.0, ended.append))
    column = OperationColumn([b"a", b"b"], 1.0, lambda: None)
    column.trace = begin_span("command")
    part, _ = column.take(10, 10_000, has_some=False)
    assert part is not None
    one = _operation()
    one.trace = begin_span("command")
    message = Message(1, SESSION, False, 0, [part, one, _operation(2)], [])
    traces = with_traces(message).traces
    assert column.trace is not None
    assert traces == (column.trace.context.traceparent, one.trace.context.traceparent)
    assert with_traces(_message(_operation())).traces == ()
    many = [_operation(number) for number in range(100)]
    for operation in many:
        operation.trace = begin_span("command")
    assert len(with_traces(_message(*many)).traces) == TRACES_MAX


def _serve(traces: Sequence[str] | None, answers: Sequence[Answer]) -> TraceContext | None:
    """Have a message answered; return what was current when it was submitted."""
    current: list[TraceContext | None] = []

    async def run() -> None:
        future: asyncio.Future[Sequence[Answer]] = asyncio.get_running_loop().create_future()

        def submit() -> asyncio.Future[Sequence[Answer]]:
            current.append(current_context())
            return future

        received = ReceivedRequests(1, "orders", [Query(b"get")], None, 0, traces)
        assert served(received, "orders", submit) is future
        future.set_result(answers)
        await asyncio.sleep(0)

    asyncio.run(run())
    return current[0]


_OK = Answer(AnswerStatus.OK, 1, b"")


def test_a_replica_adds_a_span_for_each_context_and_the_entry_belongs_to_the_first(ended: list[Span]) -> None:
    second = TraceContext(9, 10)
    current = _serve([CONTEXT.traceparent, second.traceparent, CONTEXT.traceparent], [_OK])
    assert [(span.name, span.kind, span.context.trace_id, span.parent_id) for span in ended] == [
        ("serve", SpanKind.SERVER, 7, 8),
        ("serve", SpanKind.SERVER, 9, 10),
    ]
    assert current == ended[0].context
    assert ended[1].links == [ended[0].context]
    assert ended[0].attributes == {"rsm.log": "orders", "rsm.count": 1}


def test_a_refusal_is_the_error_of_the_span(ended: list[Span]) -> None:
    _serve([CONTEXT.traceparent], [_OK, Answer(AnswerStatus.NOT_LEADER, 1, b"")])
    assert [span.error for span in ended] == ["NOT_LEADER"]


@pytest.mark.parametrize(
    "traces",
    [None, [], ["x" * 1_000_000], ["00-" + "0" * 32 + "-" + "0" * 16 + "-01"] * 100, ["\x00\n"], ["ff" * 40] * 100_000],
    ids=["none", "empty", "long", "zeros", "controls", "many"],
)
def test_what_is_no_context_is_ignored_and_the_message_is_served(
    ended: list[Span], traces: Sequence[str] | None
) -> None:
    current = _serve(traces, [_OK])
    assert current is not None
    assert not current.is_sampled
    assert not ended


def test_contexts_beyond_the_bound_are_ignored(ended: list[Span]) -> None:
    _serve([TraceContext(number, 1).traceparent for number in range(1, 1_000)], [_OK])
    assert len(ended) == TRACES_MAX


def test_a_client_that_traces_nothing_is_traced_by_the_replicas_own_rate(ended: list[Span]) -> None:
    install_tracer(Tracer(1.0, ended.append))
    _serve([], [_OK])
    assert not ended
    _serve(None, [_OK])
    assert [(span.name, span.parent_id) for span in ended] == [("serve", 0)]


@pytest.mark.parametrize(
    ("told", "is_taken"),
    [(CONTEXT.traceparent.encode(), True), (b"\xff" * 55, False), (b"", False), (b"x" * 100_000, False)],
)
def test_a_single_call_belongs_to_the_trace_of_its_metadata(ended: list[Span], told: bytes, is_taken: bool) -> None:
    call = types.SimpleNamespace(head=RpcHead("/rsm.store.v1.Replica/Call", (("a", b"b"), ("traceparent", told))))
    with called_by(call):
        _serve(None, [_OK])
    assert [(span.name, span.parent_id) for span in ended] == ([("serve", CONTEXT.span_id)] if is_taken else [])

"""The gRPC server: what it refuses, what it bounds, and the codec on both sides."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from ledger.errors import UsageError
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query
from rsm_spark.core.freshness import LINEARIZABLE
from rsm_spark.errors import ConnectionLostError, InvalidCommandError, RsmError
from rsm_spark.grpc import codec, store_pb2
from rsm_spark.grpc.channel import ReplicaChannel
from rsm_spark.grpc.exchange import attach
from rsm_spark.grpc.request_stream import STREAM_MESSAGES_MAX
from rsm_spark.grpc.security import Security
from rsm_spark.grpc.server import ReplicaServer
from rsm_spark.store.core.operation import Message, Operation
from rsm_spark.store.kv import messages as m
from tests.unit.store_client.replica_double import Group, ReplicaDouble, serve

SESSION = b"s" * 16


def message(number: int = 1, *, commands: int = 1, queries: int = 0, opens: bool = True) -> Message:
    operations = [Operation(m.encode(m.Put(b"k%d" % n, b"v")), 0, None) for n in range(commands)]
    for sequence, operation in enumerate(operations, 1):
        operation.sequence = sequence
    reads = [Operation(m.encode(m.Get(b"k0")), 0, None, is_query=True) for _ in range(queries)]
    return Message(number, SESSION, opens, 0, operations, reads)


class User:
    """One client of a stream."""

    def __init__(self, address: str, *asked: Message, log: str = "orders") -> None:
        self.asked = list(asked)
        self.received: asyncio.Queue[codec.ReceivedAnswers | ConnectionLostError] = asyncio.Queue()
        self.exchange = attach(self, address, log, Security())
        self.exchange.ready(self)

    def compose(self) -> Message | None:
        return self.asked.pop(0) if self.asked else None

    def on_answers(self, received: codec.ReceivedAnswers) -> None:
        self.received.put_nowait(received)

    def on_lost(self, error: ConnectionLostError) -> None:
        self.received.put_nowait(error)

    async def read(self) -> codec.ReceivedAnswers:
        received = await self.received.get()
        if isinstance(received, ConnectionLostError):
            raise received
        return received


async def ask(address: str, asked: Message, stream: bool, log: str = "orders") -> None:
    if not stream:
        async with ReplicaChannel(address, log) as channel:
            await channel.call(asked, 5)
        return
    user = User(address, asked, log=log)
    try:
        await user.read()
    finally:
        user.exchange.detach(user)


def test_requests_come_out_of_the_codec_as_they_went_in() -> None:
    text = codec.encode_message(message(7, commands=2, queries=1), "orders")
    received = codec.decode_requests(text)
    put = [m.encode(m.Put(b"k%d" % n, b"v")) for n in range(2)]
    assert (received.message_id, received.log, received.freshness) == (7, "orders", LINEARIZABLE)
    assert received.requests == [
        OpenSession(SESSION),
        Command(SESSION, 1, 0, put[0]),
        Command(SESSION, 2, 0, put[1]),
        Query(m.encode(m.Get(b"k0"))),
    ]


def test_answers_that_are_all_well_carry_no_statuses_and_no_leader() -> None:
    (text,) = codec.encode_answers(3, [Answer(AnswerStatus.OK, 5, b"x")], "host:1")
    assert codec.decode_answers(text) == codec.ReceivedAnswers(3, [], [5], [b"x"], "", False)


def test_a_refusal_names_the_leader() -> None:
    (text,) = codec.encode_answers(3, [Answer(AnswerStatus.NOT_LEADER, 5, b"")], "host:1")
    assert codec.decode_answers(text) == codec.ReceivedAnswers(3, [1], [5], [b""], "host:1", False)


def test_large_answers_are_cut_and_joined() -> None:
    answers = [Answer(AnswerStatus.OK, n, b"v" * 1_500_000) for n in range(7)]
    answers[5] = Answer(AnswerStatus.OVERLOADED, 5, b"")
    texts = codec.encode_answers(1, answers, None)
    assert len(texts) > 1
    assert max(map(len, texts)) < codec.MESSAGE_BYTES_MAX
    joined = codec.join_answers([codec.decode_answers(text) for text in texts])
    assert joined.statuses == [0, 0, 0, 0, 0, 5, 0]
    assert joined.revisions == list(range(7))
    assert [len(payload) for payload in joined.payloads] == [len(answer.payload) for answer in answers]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"commands": [b"x"]}, "sequences"),
        ({"commands": [b"x"], "sequences": [1]}, "16 random bytes"),
        ({"open_session": True, "session": b"short"}, "16 random bytes"),
    ],
)
def test_a_message_that_breaks_the_contract_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidCommandError, match=said):
        codec.decode_requests(store_pb2.Requests(**fields).SerializeToString())
    with pytest.raises(InvalidCommandError, match="not a Requests"):
        codec.decode_requests(b"\xff\xff\xff")


def test_every_status_has_its_number_in_the_contract() -> None:
    assert {status.name: status.value for status in AnswerStatus} == dict(store_pb2.Status.items())


def test_the_generated_code_is_older_than_the_oldest_protobuf_that_is_named() -> None:
    text = Path(store_pb2.__file__).read_text()
    assert "# Protobuf Python Version: 5.26.1" in text
    assert "runtime_version" not in text


@pytest.mark.asyncio
@pytest.mark.parametrize("bind", ["0.0.0.0", "192.0.2.1", "::", "example.org"])
async def test_an_address_beyond_loopback_is_refused_with_the_reason(bind: str) -> None:
    with pytest.raises(UsageError, match="needs TLS and a token"):
        ReplicaServer("orders", bind=bind)


@pytest.mark.asyncio
async def test_a_taken_port_is_an_error_that_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RsmError, match="port is taken"):
            ReplicaServer("orders", port=taken.getsockname()[1])


@pytest.mark.asyncio
async def test_unary_calls_do_what_the_stream_does() -> None:
    server = await serve(ReplicaDouble(Group()))
    async with ReplicaChannel(server.address, "orders") as channel:
        received = await channel.call(message(9, commands=2, queries=1), 5)
        assert received.message_id == 9
        assert received.revisions == [1, 2, 3, 3]
        assert m.decode_result(received.payloads[3]) == m.Found(b"v", 2)
        assert json.loads(await channel.status(5)) == {"role": "leader"}
    await server.stop(0)


@pytest.mark.asyncio
@pytest.mark.parametrize("stream", [True, False])
async def test_a_message_for_another_log_or_a_broken_one_ends_the_call_with_its_reason(stream: bool) -> None:
    double = ReplicaDouble(Group())
    server = await serve(double)
    with pytest.raises(ConnectionLostError, match="failed_precondition.*serves the log 'orders'"):
        await ask(server.address, message(), stream, "other")
    broken = message(opens=False)
    broken = Message(1, b"short", False, 0, broken.commands, [])
    with pytest.raises(ConnectionLostError, match="invalid_argument.*16 random bytes"):
        await ask(server.address, broken, stream)
    assert double.submissions == []
    await server.stop(0)


@pytest.mark.asyncio
async def test_a_message_over_the_limit_is_refused() -> None:
    server = await serve(ReplicaDouble(Group()))
    large = Message(1, SESSION, False, 0, [], [Operation(b"v" * (codec.MESSAGE_BYTES_MAX + 1), 0, None, is_query=True)])
    async with ReplicaChannel(server.address, "orders") as channel:
        with pytest.raises(ConnectionLostError, match="resource_exhausted"):
            await channel.call(large, 5)
    await server.stop(0)


@pytest.mark.asyncio
async def test_a_stream_that_sends_without_waiting_is_read_no_further_than_its_limit() -> None:
    double = ReplicaDouble(Group())
    gate = double.gate = asyncio.Event()
    server = await serve(double)
    padding = Operation(b"\xc1" + b"p" * 60_000, 0, None, is_query=True)
    async with grpc.aio.insecure_channel(server.address) as channel:
        call: Any = channel.stream_stream(codec.EXCHANGE_METHOD)()

        async def send() -> None:
            for number in range(200):
                text = codec.encode_message(Message(number, SESSION, False, 0, [], [padding]), "orders")
                await call.write(codec.join_messages([text]))

        sending = asyncio.create_task(send())
        done, _ = await asyncio.wait([sending], timeout=1.0)
        assert not done, "the client was never slowed down"
        assert len(double.submissions) <= STREAM_MESSAGES_MAX + 2
        gate.set()
        answers: list[int] = []
        while len(answers) < 200:
            answers += [received.message_id for received in codec.decode_answer_batch(await call.read())]
        assert answers == list(range(200))
        await sending
        call.cancel()
    await server.stop(0)


@pytest.mark.asyncio
async def test_a_client_that_goes_away_leaves_nothing_running() -> None:
    double = ReplicaDouble(Group())
    double.gate = asyncio.Event()
    server = await serve(double)
    before = len(asyncio.all_tasks())
    user = User(server.address, message())
    while not double.submissions:
        await asyncio.sleep(0.001)
    user.exchange.detach(user)
    double.gate.set()
    for _ in range(500):
        if len(asyncio.all_tasks()) <= before:
            break
        await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) <= before
    await server.stop(0)

"""The gRPC server: what it refuses, what it bounds, and the codec on both sides."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from ledger.errors import UsageError
from rsm_spark.core.commands import Answer, AnswerStatus, Command, OpenSession, Query
from rsm_spark.core.freshness import LINEARIZABLE
from rsm_spark.core.operation import Message, Operation
from rsm_spark.errors import ConnectionLostError, InvalidCommandError, RsmError
from rsm_spark.map import messages as m
from rsm_spark.transport import codec, store_pb2
from rsm_spark.transport.channel import ReplicaChannel
from rsm_spark.transport.replica_stream import attach
from rsm_spark.transport.request_stream import STREAM_MESSAGES_MAX
from rsm_spark.transport.security import MESSAGE_BYTES_MAX, Security
from rsm_spark.transport.server import ReplicaServer
from rsm_spark.transport.stream_factory import transport_of
from tests.unit.rsm_spark.client.replica_double import Group, ReplicaDouble, serve

SESSION = b"s" * 16


def message(number: int = 1, *, commands: int = 1, queries: int = 0, opens: bool = True) -> Message:
    operations = [Operation(m.encode(m.Put(b"k%d" % n, b"v")), 0, None) for n in range(commands)]
    for sequence, operation in enumerate(operations, 1):
        operation.sequence = sequence
    reads = [Operation(m.encode(m.Get(b"k0")), 0, None, is_query=True) for _ in range(queries)]
    return Message(number, SESSION, opens, 0, [*operations], [*reads])


class User:
    """One client of a stream."""

    def __init__(self, server: ReplicaServer, *asked: Message, log: str = "orders") -> None:
        self.asked = list(asked)
        framed = server.framed_address if transport_of(None) == "framed" else ""
        self.received: asyncio.Queue[codec.ReceivedAnswers | ConnectionLostError] = asyncio.Queue()
        self.exchange = attach(self, server.address, log, Security(), framed=framed)
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


@asynccontextmanager
async def served(double: ReplicaDouble) -> AsyncIterator[ReplicaServer]:
    server = await serve(double)
    try:
        yield server
    finally:
        await server.stop(0)


async def ask(server: ReplicaServer, asked: Message, stream: bool, log: str = "orders") -> None:
    if not stream:
        async with ReplicaChannel(server.address, log) as channel:
            await channel.call(asked, 5)
        return
    user = User(server, asked, log=log)
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
    assert max(map(len, texts)) < MESSAGE_BYTES_MAX
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
    with pytest.raises(InvalidCommandError, match="no Requests message"):
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
    async with served(ReplicaDouble(Group())) as server, ReplicaChannel(server.address, "orders") as channel:
        received = await channel.call(message(9, commands=2, queries=1), 5)
        assert received.message_id == 9
        assert received.revisions == [1, 2, 3, 3]
        assert m.decode_result(received.payloads[3]) == m.Found(b"v", 2, 2, 1)
        assert json.loads(await channel.status(5)) == {"role": "leader"}


@pytest.mark.asyncio
@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_message_for_another_log_or_a_broken_one_ends_the_call_with_its_reason(stream: bool) -> None:
    double = ReplicaDouble(Group())
    async with served(double) as server:
        with pytest.raises(ConnectionLostError, match="failed_precondition.*serves the log 'orders'"):
            await ask(server, message(), stream, "other")
        broken = message(opens=False)
        broken = Message(1, b"short", False, 0, broken.commands, [])
        with pytest.raises(ConnectionLostError, match="invalid_argument.*16 random bytes"):
            await ask(server, broken, stream)
    assert double.submissions == []


@pytest.mark.asyncio
async def test_a_message_over_the_limit_is_refused() -> None:
    large = Message(1, SESSION, False, 0, [], [Operation(b"v" * (MESSAGE_BYTES_MAX + 1), 0, None, is_query=True)])
    async with served(ReplicaDouble(Group())) as server, ReplicaChannel(server.address, "orders") as channel:
        with pytest.raises(ConnectionLostError, match="resource_exhausted"):
            await channel.call(large, 5)


@pytest.mark.asyncio
async def test_a_stream_that_sends_without_waiting_is_read_no_further_than_its_limit() -> None:
    double = ReplicaDouble(Group())
    gate = double.gate = asyncio.Event()
    padding = Operation(b"\xc1" + b"p" * 60_000, 0, None, is_query=True)
    total = 600  # 36 MB: far more than the buffers of both sides hold.
    async with served(double) as server, grpc.aio.insecure_channel(server.address) as channel:
        call: Any = channel.stream_stream(codec.EXCHANGE_METHOD)()
        sent = 0

        async def send() -> None:
            nonlocal sent
            for number in range(total):
                text = codec.encode_message(Message(number, SESSION, False, 0, [], [padding]), "orders")
                await call.write(codec.join_messages([text]))
                sent += 1

        async with asyncio.TaskGroup() as group:
            sending = group.create_task(send())
            # Nothing is answered until the gate opens, so a server that reads on would be sent all of it in the end.
            while len(double.submissions) < STREAM_MESSAGES_MAX:
                await asyncio.sleep(0.001)
            seen = -1
            while sent > seen:  # As long as anything moves.
                assert not sending.done(), "the client was never slowed down"
                seen = sent
                await asyncio.sleep(0.2)
            assert sent < total
            assert len(double.submissions) <= STREAM_MESSAGES_MAX + 2
            gate.set()
            answers: list[int] = []
            while len(answers) < total:
                answers += [received.message_id for received in codec.decode_answer_batch(await call.read())]
        assert answers == list(range(total))
        call.cancel()


@pytest.mark.asyncio
@pytest.mark.usefixtures("transport")
async def test_a_client_that_goes_away_leaves_nothing_running() -> None:
    double = ReplicaDouble(Group())
    double.gate = asyncio.Event()
    async with served(double) as server:
        before = len(asyncio.all_tasks())
        user = User(server, message())
        while not double.submissions:
            await asyncio.sleep(0.001)
        user.exchange.detach(user)
        double.gate.set()
        while len(asyncio.all_tasks()) > before:  # A task that stays fails by pytest's limit of time.
            await asyncio.sleep(0.01)

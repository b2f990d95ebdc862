"""A server that stops, and one that has too much to do: what was taken is answered, the rest is told where to go."""

from __future__ import annotations

import asyncio

import pytest

from rsm_spark.core.commands import AnswerStatus, Query
from rsm_spark.core.freshness import LINEARIZABLE
from rsm_spark.core.operation import Message, Operation
from rsm_spark.errors import ConnectionLostError
from rsm_spark.map import messages as m
from rsm_spark.transport import request_admission as intake
from rsm_spark.transport.codec import ReceivedRequests
from tests.unit.rsm_spark.client.replica_double import Group, ReplicaDouble, serve
from tests.unit.rsm_spark.transport.test_replica_server import SESSION, User, message

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("transport")]


def padded(number: int, size: int) -> Message:
    return Message(number, SESSION, False, 0, [], [Operation(b"\xc1" + b"p" * size, 0, None, is_query=True)])


async def test_what_was_taken_is_answered_before_the_stream_ends() -> None:
    double = ReplicaDouble(Group())
    gate = double.gate = asyncio.Event()
    server = await serve(double)
    user = User(server, message(1, commands=3))
    while not double.submissions:
        await asyncio.sleep(0.001)
    stopping = asyncio.get_running_loop().create_task(server.stop(600))
    await asyncio.sleep(0)
    gate.set()
    assert (await user.read()).revisions == [1, 2, 3, 4]
    with pytest.raises(ConnectionLostError, match="ended the stream"):
        await user.read()
    async with asyncio.timeout(60):
        await stopping


async def test_a_client_with_nothing_to_say_does_not_hold_a_server_up() -> None:
    server = await serve(ReplicaDouble(Group()))
    user = User(server, message(1))
    await user.read()
    async with asyncio.timeout(60):
        await server.stop(600)
    with pytest.raises(ConnectionLostError):
        await user.read()


async def test_those_who_are_turned_away_hear_who_leads_instead() -> None:
    double = ReplicaDouble(Group(), leads=False)
    double.leader_address = "old:1"
    server = await serve(double)
    user = User(server, message(1))
    assert (await user.read()).leader_address == "old:1"
    assert double.owners == {"address 127.0.0.1"}
    server.name_successor("new:2")
    user.asked.append(message(2))
    user.exchange.ready(user)
    assert (await user.read()).leader_address == "new:2"
    user.exchange.detach(user)
    await server.stop(0)


async def test_messages_beyond_what_may_be_in_work_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "WORK_BYTES_MAX", 200_000)  # One address has half of it.
    double = ReplicaDouble(Group())
    gate = double.gate = asyncio.Event()
    server = await serve(double)
    user = User(server, *(padded(number, 40_000) for number in range(1, 5)))
    refused = [await user.read(), await user.read()]
    assert [one.message_id for one in refused] == [3, 4]
    assert [one.statuses for one in refused] == [[AnswerStatus.OVERLOADED]] * 2
    assert 80_000 <= server.bytes_in_work < 100_000
    gate.set()
    assert {(await user.read()).message_id for _ in range(2)} == {1, 2}
    assert server.bytes_in_work == 0
    # A single message may be larger than the bound.
    user.asked.append(padded(5, 200_000))
    user.exchange.ready(user)
    assert m.decode_result((await user.read()).payloads[0])
    user.exchange.detach(user)
    await server.stop(0)


async def test_clients_of_one_process_share_a_stream_and_go_their_own_ways() -> None:
    double = ReplicaDouble(Group())
    server = await serve(double)
    users = [User(server, message(7, commands=0, queries=1, opens=False)) for _ in range(5)]
    assert len({id(user.exchange) for user in users}) == 1
    answers = [await user.read() for user in users]
    assert [one.message_id for one in answers] == [7] * 5
    assert users[0].exchange.messages_sent == 1
    users[0].exchange.detach(users[0])
    users[1].asked.append(message(8, opens=True))
    users[1].exchange.ready(users[1])
    assert (await users[1].read()).message_id == 8
    # One that finds the replica hanging gets a stream of its own.
    users[2].exchange.detach(users[2], is_suspect=True)
    fresh = User(server, message(9))
    assert fresh.exchange is not users[1].exchange
    assert (await fresh.read()).message_id == 9
    for user in (*users[1:], fresh):
        user.exchange.detach(user)
    await server.stop(0)


async def test_a_client_that_left_gets_no_late_answers() -> None:
    double = ReplicaDouble(Group())
    gate = double.gate = asyncio.Event()
    server = await serve(double)
    leaver, stayer = User(server, message(1)), User(server, message(2))
    while len(double.submissions) < 2:
        await asyncio.sleep(0.001)
    leaver.exchange.detach(leaver)
    gate.set()
    assert (await stayer.read()).message_id == 2
    assert leaver.received.empty()
    stayer.exchange.detach(stayer)
    await server.stop(0)


async def test_one_owner_has_half_of_what_may_be_in_work_and_others_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "WORK_BYTES_MAX", 100)
    double = ReplicaDouble(Group())
    gate = double.gate = asyncio.Event()
    taking = intake.RequestAdmission("kv", "here:1", double)
    received = ReceivedRequests(1, "kv", [Query(b"\xc1")], LINEARIZABLE, 40)
    flood = [taking.submit(received, None, "flood") for _ in range(3)]
    victim = taking.submit(received, None, "victim")
    assert [one.done() for one in flood] == [False, True, True]
    assert {one.result()[0].status for one in flood[1:]} == {AnswerStatus.OVERLOADED}
    assert not victim.done()
    opening = [taking.submit(ReceivedRequests(1, "kv", [Query(b"")], LINEARIZABLE, 0)) for _ in range(2)]
    gate.set()
    await asyncio.wait([flood[0], victim, *opening])
    assert taking.bytes_in_work == 0
    assert not taking._bytes_of
    assert double.owners == {"", "flood", "victim"}

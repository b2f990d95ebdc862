"""The client's connection against a bookie that does what a test tells it, in both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from ledger.client.answers import Answered, AnswerQueue
from ledger.client.pool import ConnectionPool
from ledger.core.quorum import QuorumConfig
from ledger.errors import FencedError, QuorumLostError, UsageError, WrongPasswordError
from ledger.wire.codes import Status
from ledger.wire.packets import AddRequest, ReadLacResponse, Request, WriteLacRequest
from tests.unit.ledger.client.fake_bookie import (
    SETTINGS,
    Answer,
    FakeBookie,
    Session,
    ask,
    run,
    silent,
    store,
    writer_of,
)

Play = Callable[..., None]


@pytest.fixture(params=["v2", "v3"])
def play(request: pytest.FixtureRequest) -> Play:
    """Run a scenario; every promise of a connection holds for both protocols."""
    settings = msgspec.structs.replace(SETTINGS, protocol=request.param)

    def play(scenario: Callable[[ConnectionPool, list[FakeBookie]], Awaitable[None]], *answers: Answer) -> None:
        run(scenario, *answers, settings=settings)

    return play


def test_a_request_is_answered(play: Play) -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        ask(pool, answers)
        (answered,) = await answers.next_batch()
        assert isinstance(answered.response, ReadLacResponse)
        assert (answered.bookie_id, answered.token, answered.reason) == ("b0:3181", "token", "EOK")

    play(scenario, store)


def test_a_request_without_an_answer_is_reported_when_time_is_up(play: Play) -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        started = asyncio.get_running_loop().time()
        ask(pool, answers)
        (answered,) = await answers.next_batch()
        assert (answered.response, answered.reason) == (None, "no answer within 2 s")
        assert 2.0 <= asyncio.get_running_loop().time() - started <= 3.5

    play(scenario, silent)


def test_an_unreachable_bookie_is_reported_and_then_fails_at_once(play: Play) -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        ask(pool, answers, "b0:99")
        (first,) = await answers.next_batch()
        assert first.response is None
        assert pool.suspects() == {"b0:99"}
        before = asyncio.get_running_loop().time()
        ask(pool, answers, "b0:99")
        (second,) = await answers.next_batch()
        assert second.reason == first.reason
        assert asyncio.get_running_loop().time() - before < 0.01

    play(scenario, silent)


def test_bytes_that_are_no_protocol_end_the_connection_with_that_reason(play: Play) -> None:
    def garbage(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        session.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        ask(pool, answers)
        (answered,) = await answers.next_batch()
        assert "not BookKeeper's protocol" in answered.reason

    play(scenario, garbage)


def test_everything_of_one_turn_leaves_in_one_write(play: Play) -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 1)
        await writer.append(b"connects")
        futures = [writer.append(b"%d" % number) for number in range(50)]
        futures.append(writer.append_many([b"x"] * 50))
        assert await asyncio.gather(*futures) == [*range(1, 51), 100]
        assert bookies[0].wake_ups == [1, 100]

    play(scenario, store)


def test_pending_entries_are_sent_again_with_the_same_bytes_when_a_connection_breaks(play: Play) -> None:
    def break_first(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        if len(bookie.sessions) == 1:
            session.transport.abort()  # type: ignore[attr-defined]
        else:
            store(bookie, session, requests)

    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 1)
        assert await writer.append_many([b"one", b"two"]) == 1
        adds = [request for request in bookies[0].received if isinstance(request, AddRequest)]
        assert [add.entry_id for add in adds] == [0, 1, 0, 1]
        assert [bytes(add.body) for add in adds[:2]] == [bytes(add.body) for add in adds[2:]]
        assert len({add.txn_id for add in adds}) == (1 if pool.settings.protocol == "v2" else 4)

    play(scenario, break_first)


@pytest.mark.parametrize(
    ("status", "error"),
    [(Status.EFENCED, FencedError), (Status.EUA, WrongPasswordError), (Status.EIO, QuorumLostError)],
)
def test_a_refusal_fails_what_is_pending_and_what_comes(status: Status, error: type[Exception], play: Play) -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        writer = writer_of(pool, 2)
        first, second = writer.append(b"x"), writer.append(b"y")
        for future in (first, second):
            with pytest.raises(error, match=status.name):
                await future
        with pytest.raises(error, match=status.name):
            await writer.append(b"late")
        assert writer.last_add_confirmed == -1
        assert await writer.close() == -1

    play(scenario, store, lambda bookie, session, requests: store(bookie, session, requests, status))


def test_a_bookie_that_refuses_is_tried_again_while_the_quorum_holds(play: Play) -> None:
    def sick_for_a_while(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        store(bookie, session, requests, Status.EOK if len(bookie.received) > 3 else Status.EIO)

    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 3, QuorumConfig(3, 3, 2))
        for number in range(20):
            assert await writer.append(b"x") == number
            await asyncio.sleep(0.2)
        adds = [request.entry_id for request in bookies[2].received if isinstance(request, AddRequest)]
        assert adds[-1] == 19

    play(scenario, store, store, sick_for_a_while)


def test_overload_is_waited_for(play: Play) -> None:
    def busy_once(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        store(bookie, session, requests, Status.ETOOMANYREQUESTS if len(bookie.wake_ups) == 1 else Status.EOK)

    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        assert await writer_of(pool, 1).append(b"x") == 0

    play(scenario, busy_once)


def test_a_quorum_that_never_answers_is_lost_after_its_time(play: Play) -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        writer = writer_of(pool, 2)
        with pytest.raises(QuorumLostError, match="b1:3181: no answer within 2 s"):
            await writer.append(b"x")

    play(scenario, store, silent)


def test_drain_waits_for_room_and_an_endless_overrun_is_refused(play: Play) -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        writer = writer_of(pool, 1)
        futures = [writer.append(bytes(500)) for _ in range(9)]
        with pytest.raises(UsageError, match="drain"):
            writer.append(b"one too many")
        await writer.drain()
        assert writer.in_flight_bytes <= 1000
        assert await futures[-1] == 8
        await writer.flush()
        assert writer.in_flight_bytes == 0

    play(scenario, store)


@pytest.mark.parametrize("payloads", [[], ["text"], [bytearray(b"x")], [b"x", None]])
def test_payloads_that_are_not_bytes_are_refused(payloads: list[bytes], play: Play) -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        writer = writer_of(pool, 1)
        with pytest.raises(UsageError):
            writer.append_many(payloads)
        assert await writer.append(b"fine") == 0

    play(scenario, store)


def test_an_explicit_lac_is_sent_only_when_it_has_moved(play: Play) -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 1)
        await writer.write_lac()
        await writer.append(b"x")
        await writer.write_lac()
        await writer.write_lac()
        sent = [request for request in bookies[0].received if isinstance(request, WriteLacRequest)]
        assert [request.last_add_confirmed for request in sent] == [0]

    play(scenario, store)


def test_cancelling_a_wait_for_answers_loses_none(play: Play) -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        waiting = asyncio.create_task(answers.next_batch())
        await asyncio.sleep(0)
        waiting.cancel()
        answers.on_unanswered("b", [1], "why")
        assert await answers.next_batch() == [Answered("b", 1, None, "why")]

    play(scenario)

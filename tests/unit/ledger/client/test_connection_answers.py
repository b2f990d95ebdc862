"""What a connection makes of answers, odd, late and wrong ones; which protocol carries what; who is suspected."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from ledger.client.answers import AnswerQueue
from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.core.metadata import DigestType
from ledger.core.quorum import QuorumConfig
from ledger.errors import QuorumLostError, UsageError
from ledger.wire import v2, v3
from ledger.wire.codes import OperationType, Status
from ledger.wire.digests import Digest, master_key
from ledger.wire.entry import seal
from ledger.wire.packets import (
    AddRequest,
    AddResponse,
    BatchReadRequest,
    BatchReadResponse,
    ReadLacRequest,
    ReadRequest,
    ReadResponse,
    Request,
    UnsupportedResponse,
)
from tests.unit.ledger.client.fake_bookie import SETTINGS, FakeBookie, Session, ask, run, silent, store, writer_of

KEY = master_key(b"")
V2 = msgspec.structs.replace(SETTINGS, protocol="v2")
V3 = msgspec.structs.replace(SETTINGS, protocol="v3")
Scenario = Callable[[ConnectionPool, list[FakeBookie]], Awaitable[None]]


def body(entry_id: int, payload: bytes = b"x") -> bytes:
    return seal(7, entry_id, -1, len(payload), payload, Digest(DigestType.CRC32C))


def serve(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
    """Store adds, answer reads with the entry that was asked for."""
    for request in requests:
        if isinstance(request, ReadRequest):
            entry = body(max(0, request.entry_id))
            session.answer(ReadResponse(request.txn_id, Status.EOK, request.ledger_id, request.entry_id, entry))
        elif isinstance(request, BatchReadRequest):
            bodies = tuple(body(request.entry_id + n) for n in range(request.max_count))
            session.answer(BatchReadResponse(request.txn_id, Status.EOK, request.ledger_id, request.entry_id, bodies))
    store(bookie, session, requests)


async def tokens_of(answers: AnswerQueue, count: int) -> list[object]:
    tokens: list[object] = []
    while len(tokens) < count:
        tokens += [answered.token for answered in await answers.next_batch()]
    return tokens


# --- which protocol carries what


def test_adds_and_reads_go_over_v2_and_the_rest_over_a_second_connection() -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 1)
        await writer.append(b"x")
        answers = AnswerQueue()
        pool.ask_entries("b0:3181", 7, [0, 1], answers)
        pool.ask("b0:3181", BatchReadRequest(pool.take_txns(1), 7, 3, 2, 1 << 20), (answers, "batch"))
        assert await tokens_of(answers, 3) == [0, 1, "batch"]
        assert [session.is_v2 for session in bookies[0].sessions] == [True]
        await writer.write_lac()
        assert [session.is_v2 for session in bookies[0].sessions] == [True, False]

    run(scenario, serve, settings=V2)


@pytest.mark.parametrize(
    "request_",
    [
        ReadRequest(1, 7, 0, KEY, is_fencing=True),
        ReadRequest(1, 7, -1),
        AddRequest(1, 7, 0, KEY, body(0), is_recovery=True),
        AddRequest(1, 7, 0, KEY, body(0), write_flags=1),
        ReadLacRequest(1, 7),
    ],
)
def test_what_v2_could_confuse_or_cannot_say_goes_over_v3(request_: Request) -> None:
    """The answer to a plain read must never be taken for that to a fencing read of the same entry."""

    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        pool.ask("b0:3181", request_, (answers, "token"))
        assert await tokens_of(answers, 1) == ["token"]
        assert [session.is_v2 for session in bookies[0].sessions] == [False]

    run(scenario, serve, settings=V2)


def test_a_batch_read_over_v3_is_refused() -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        assert not pool.reads_batches
        with pytest.raises(UsageError, match="v2"):
            pool.ask("b0:3181", BatchReadRequest(1, 7, 0, 1, 1), (AnswerQueue(), "token"))

    run(scenario, settings=V3)


def test_several_readers_of_one_entry_are_all_answered() -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        first, second = AnswerQueue(), AnswerQueue()
        pool.ask_entries("b0:3181", 7, [5, 5, 6], first)
        pool.ask_entries("b0:3181", 7, [5], second)
        assert await tokens_of(first, 3) == [5, 5, 6]
        assert await tokens_of(second, 1) == [5]

    run(scenario, serve, settings=V2)


# --- answers that are late, early, doubled, or wrong


def test_adds_are_acknowledged_whatever_the_order_of_answers() -> None:
    def backwards(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        store(bookie, session, requests[::-1])

    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        writer = writer_of(pool, 3, QuorumConfig(3, 2, 2))
        await writer.append(b"connects")
        assert await asyncio.gather(*[writer.append(b"%d" % n) for n in range(40)]) == list(range(1, 41))

    for settings in (V2, V3):
        run(scenario, backwards, store, backwards, settings=settings)


def test_a_late_answer_is_no_fault() -> None:
    def late(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        for request in requests:
            assert isinstance(request, ReadRequest)
            delay_s = 3.5 if request.entry_id == 0 else 0.5
            answer = ReadResponse(request.txn_id, Status.EOK, 7, request.entry_id, body(request.entry_id))
            asyncio.get_running_loop().call_later(delay_s, session.answer, answer)

    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        answers, patient = AnswerQueue(), AnswerQueue()
        pool.ask_entries("b0:3181", 7, [0], answers)
        for entry_id in range(1, 9):  # something always comes: the bookie is not silent
            pool.ask_entries("b0:3181", 7, [entry_id], patient)
            await asyncio.sleep(0.5)
        (answered,) = await answers.next_batch()
        assert (answered.token, answered.reason) == (0, "no answer within 2 s")
        assert await tokens_of(patient, 8) == list(range(1, 9))
        assert len(bookies[0].sessions) == 1

    for settings in (V2, V3):
        run(scenario, late, settings=settings)


def stray_add(session: Session, request: AddRequest) -> bytes:
    answer = AddResponse(10**6, Status.EOK, 7, 999)
    return v2.encode_response(answer) if session.is_v2 else v3.encode_response(answer)


def twice(session: Session, request: AddRequest) -> bytes:
    answer = AddResponse(request.txn_id, Status.EOK, 7, request.entry_id)
    return 2 * (v2.encode_response(answer) if session.is_v2 else v3.encode_response(answer))


def other_protocol(session: Session, request: AddRequest) -> bytes:
    answer = AddResponse(request.txn_id, Status.EOK, 7, request.entry_id)
    return v3.encode_response(answer) if session.is_v2 else v2.encode_response(answer)


WRONG: dict[str, Callable[[Session, AddRequest], bytes]] = {
    "what was not asked": stray_add,
    "twice": twice,
    "in the other protocol": other_protocol,
    "an empty frame": lambda session, request: bytes(4),
    "a huge frame": lambda session, request: struct.pack(">I", 2**31 - 1) + b"x",
    "a negative length": lambda session, request: b"\xff" * 8,
    "another protocol": lambda session, request: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a frame of noise": lambda session, request: b"\0\0\0\x08abcdefgh",
    "a longer answer": lambda session, request: b"\0\0\0\x19\2\1\0\0" + bytes(21),
    "an unknown code": lambda session, request: b"\0\0\0\x18\2\1\0\0\0\0\0\7" + bytes(16),
}


@pytest.mark.parametrize("settings", [V2, V3], ids=["v2", "v3"])
@pytest.mark.parametrize("what", WRONG)
def test_a_bookie_that_breaks_the_protocol_is_given_up_and_tried_again(
    what: str, settings: ClientSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is lost and nothing acknowledged that was not stored; one line tells the operator."""

    def wrong_once(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        adds = [request for request in requests if isinstance(request, AddRequest)]
        if len(bookie.sessions) == 1 and adds and adds[0].entry_id > 0:
            session.send(WRONG[what](session, adds[0]))
        else:
            store(bookie, session, requests)

    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 3, QuorumConfig(3, 3, 2))
        await writer.append(b"connects")
        await asyncio.sleep(0.5)
        assert await asyncio.gather(*[writer.append(b"%d" % number) for number in range(5)]) == [1, 2, 3, 4, 5]
        await asyncio.sleep(1)
        assert await writer.append(b"back") == 6
        await asyncio.sleep(0.5)
        assert len(bookies[2].sessions) == 2
        assert [r.entry_id for r in bookies[2].received if isinstance(r, AddRequest)][-1] == 6

    with caplog.at_level(logging.WARNING, logger="ledger.client.connection"):
        run(scenario, store, store, wrong_once, settings=settings)
    assert len([r for r in caplog.records if r.name == "ledger.client.connection"]) == 1


@pytest.mark.parametrize("settings", [V2, V3], ids=["v2", "v3"])
def test_a_bookie_that_always_talks_nonsense_is_tried_ever_more_rarely(settings: ClientSettings) -> None:
    def nonsense(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        session.send(b"\0\0\0\x08abcdefgh")

    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 3, QuorumConfig(3, 3, 2))
        for number in range(20):
            assert await writer.append(b"x") == number
            await asyncio.sleep(0.5)
        assert 3 <= len(bookies[2].sessions) <= 20
        assert pool.suspects() == {"b2:3181"}

    run(scenario, store, store, nonsense, settings=settings)


def test_a_bookie_that_ends_every_connection_is_a_failed_one() -> None:
    def hang_up(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        session.transport.abort()  # type: ignore[attr-defined]

    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        started = asyncio.get_running_loop().time()
        with pytest.raises(QuorumLostError, match="b1:3181: connection lost|b1:3181: it closed the connection"):
            await writer_of(pool, 2).append(b"x")
        assert asyncio.get_running_loop().time() - started < 2
        assert pool.suspects() == {"b1:3181"}

    for settings in (V2, V3):
        run(scenario, store, hang_up, settings=settings)


def test_a_bookie_that_demands_a_log_in_says_so() -> None:
    def demanding(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        session.answer(UnsupportedResponse(requests[0].txn_id, Status.EUA, OperationType.READ_LAC))

    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        ask(pool, answers)
        (first,) = await answers.next_batch()
        assert first.reason == "EUA"
        ask(pool, answers)
        (second,) = await answers.next_batch()
        assert "demands a log-in (AUTH)" in second.reason

    run(scenario, demanding, settings=V3)


# --- bounds


def test_a_bookie_that_takes_nothing_is_given_up_before_memory_is() -> None:
    settings = msgspec.structs.replace(V3, write_buffer_bytes_max=10_000)

    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        for number in range(50):  # nothing leaves before the connection is up
            pool.ask("b0:3181", AddRequest(number + 1, 7, number, KEY, body(number, bytes(1000))), (answers, number))
        first = (await answers.next_batch())[0]
        assert "it takes nothing" in first.reason

    run(scenario, silent, settings=settings)


# --- quarantine


def test_an_unreachable_bookie_is_suspected_for_a_while() -> None:
    settings = msgspec.structs.replace(V3, quarantine_s=10.0)

    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        ask(pool, answers, "b0:99")
        await answers.next_batch()
        assert pool.suspects() == {"b0:99"}

    run(scenario, store, settings=settings)


@pytest.mark.parametrize("answer", ["EIO", "silence now and then"])
def test_repeated_failures_of_a_connected_bookie_make_it_a_suspect_until_they_end(answer: str) -> None:
    settings = msgspec.structs.replace(V3, quarantine_s=10.0)
    sick = True

    def fail(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        for request in requests:
            if isinstance(request, ReadRequest) and sick and request.entry_id == 0:
                if answer == "EIO":
                    session.answer(ReadResponse(request.txn_id, Status.EIO, 7, 0))
            else:
                serve(bookie, session, [request])

    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        nonlocal sick
        answers, others = AnswerQueue(), AnswerQueue()
        for count in range(1, 4):
            pool.ask_entries("b0:3181", 7, [0], answers)
            while not answers._answers:
                pool.ask_entries("b0:3181", 7, [1], others)
                await asyncio.sleep(0.25)
            await answers.next_batch()
            assert pool.suspects() == ({"b0:3181"} if count == 3 else set())
        sick = False
        await asyncio.sleep(9)
        assert pool.suspects() == {"b0:3181"}
        await asyncio.sleep(1.1)
        assert pool.suspects() == set()

    run(scenario, fail, settings=settings)


def test_a_connection_that_merely_breaks_is_no_reason_for_quarantine() -> None:
    def break_once(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        if len(bookie.sessions) == 1 and len(bookie.received) > 1:
            session.transport.abort()  # type: ignore[attr-defined]
        else:
            store(bookie, session, requests)

    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        writer = writer_of(pool, 1)
        await writer.append(b"x")
        await writer.append(b"y")
        assert pool.suspects() == set()

    run(scenario, break_once, settings=V2)


def test_answers_to_a_closed_pool_are_reports() -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        ask(pool, answers)
        await pool.close()
        (answered,) = await answers.next_batch()
        assert answered.reason == "the client is closed"

    run(scenario, silent)

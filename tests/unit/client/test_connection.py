"""The client's connection against a bookie that does what a test tells it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from ledger.client.answers import Answered, AnswerQueue
from ledger.client.pool import ConnectionPool
from ledger.client.settings import ClientSettings
from ledger.client.write_handle import WriteHandle
from ledger.core.metadata import DigestType, LedgerMetadata, LedgerState, Segment
from ledger.core.quorum import QuorumConfig
from ledger.errors import FencedError, QuorumLostError, UsageError, WrongPasswordError
from ledger.testing import Simulation
from ledger.wire import v3
from ledger.wire.codes import Status
from ledger.wire.frames import FrameBuffer
from ledger.wire.packets import (
    AddRequest,
    AddResponse,
    ReadLacRequest,
    ReadLacResponse,
    Request,
    WriteLacRequest,
    WriteLacResponse,
)

SETTINGS = ClientSettings(request_timeout_s=2.0, quorum_timeout_s=6.0, in_flight_bytes_max=1000)
Answer = Callable[["FakeBookie", "Session", list[Request]], None]


class FakeBookie:
    """Listens and hands every wake-up's requests to `answer`."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.received: list[Request] = []
        self.wake_ups: list[int] = []
        self.sessions: list[Session] = []

    async def listen(self) -> asyncio.AbstractServer:
        return await asyncio.get_running_loop().create_server(lambda: Session(self), "0.0.0.0", 3181)


class Session(asyncio.BufferedProtocol):
    def __init__(self, bookie: FakeBookie) -> None:
        self.bookie = bookie
        self.frames = FrameBuffer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.bookie.sessions.append(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.frames.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        requests = v3.decode_requests(self.frames.take(nbytes))
        self.bookie.received += requests
        self.bookie.wake_ups.append(len(requests))
        self.bookie.answer(self.bookie, self, requests)

    def send(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


def silent(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
    pass


def store(bookie: FakeBookie, session: Session, requests: list[Request], status: Status = Status.EOK) -> None:
    for request in requests:
        if isinstance(request, AddRequest):
            session.send(v3.encode_response(AddResponse(request.txn_id, status, request.ledger_id, request.entry_id)))
        elif isinstance(request, ReadLacRequest):
            session.send(v3.encode_response(ReadLacResponse(request.txn_id, status, request.ledger_id)))
        elif isinstance(request, WriteLacRequest):
            session.send(v3.encode_response(WriteLacResponse(request.txn_id, status, request.ledger_id)))


def run(
    scenario: Callable[[ConnectionPool, list[FakeBookie]], Awaitable[None]], *answers: Answer, seed: int = 1
) -> Simulation:
    """Run a scenario on a host "client", with one fake bookie per answer: "b0:3181", "b1:3181", …"""
    simulation = Simulation(seed)
    bookies = [FakeBookie(answer) for answer in answers]

    async def serve(bookie: FakeBookie) -> None:
        await bookie.listen()
        await asyncio.sleep(3600)

    async def program() -> None:
        async def resolve(bookie_id: str) -> tuple[str, int]:
            host, _, port = bookie_id.partition(":")
            return host, int(port)

        pool = ConnectionPool(resolve, random.Random(seed), SETTINGS)
        await asyncio.sleep(1)
        await scenario(pool, bookies)
        await pool.close()

    async def main() -> None:
        for number, bookie in enumerate(bookies):
            simulation.host(f"b{number}").spawn(serve(bookie))
        await simulation.host("client").spawn(program())

    simulation.run(main())
    return simulation


def ask(pool: ConnectionPool, answers: AnswerQueue, bookie_id: str = "b0:3181") -> None:
    pool.ask(bookie_id, ReadLacRequest(pool.take_txns(1), 7), (answers, "token"))


def writer_of(pool: ConnectionPool, count: int, quorum: QuorumConfig | None = None) -> WriteHandle:
    metadata = LedgerMetadata(
        quorum=quorum or QuorumConfig(count, count, count),
        state=LedgerState.OPEN,
        segments=(Segment(0, tuple(f"b{number}:3181" for number in range(count))),),
        digest_type=DigestType.CRC32C,
        password=b"",
    )

    async def close(metadata: LedgerMetadata, last_entry_id: int, length: int) -> LedgerMetadata:
        return LedgerMetadata(
            metadata.quorum, LedgerState.CLOSED, metadata.segments, metadata.digest_type, b"", last_entry_id, length
        )

    return WriteHandle(7, metadata, pool, random.Random(1), close)


def test_a_request_is_answered() -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        ask(pool, answers)
        (answered,) = await answers.next_batch()
        assert isinstance(answered.response, ReadLacResponse)
        assert (answered.bookie_id, answered.token, answered.reason) == ("b0:3181", "token", "EOK")

    run(scenario, store)


def test_a_request_without_an_answer_is_reported_when_time_is_up() -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        started = asyncio.get_running_loop().time()
        ask(pool, answers)
        (answered,) = await answers.next_batch()
        assert (answered.response, answered.reason) == (None, "no answer within 2 s")
        assert 2.0 <= asyncio.get_running_loop().time() - started <= 3.5

    run(scenario, silent)


def test_an_unreachable_bookie_is_reported_and_then_fails_at_once() -> None:
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

    run(scenario, silent)


def test_bytes_that_are_no_protocol_end_the_connection_with_that_reason() -> None:
    def garbage(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        session.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        ask(pool, answers)
        (answered,) = await answers.next_batch()
        assert "not BookKeeper's protocol" in answered.reason

    run(scenario, garbage)


def test_everything_of_one_turn_leaves_in_one_write() -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 1)
        await writer.append(b"connects")
        futures = [writer.append(b"%d" % number) for number in range(50)]
        futures.append(writer.append_many([b"x"] * 50))
        assert await asyncio.gather(*futures) == [*range(1, 51), 100]
        assert bookies[0].wake_ups == [1, 100]

    run(scenario, store)


def test_pending_entries_are_sent_again_with_the_same_bytes_when_a_connection_breaks() -> None:
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
        assert len({add.txn_id for add in adds}) == 4

    run(scenario, break_first)


@pytest.mark.parametrize(
    ("status", "error"),
    [(Status.EFENCED, FencedError), (Status.EUA, WrongPasswordError), (Status.EIO, QuorumLostError)],
)
def test_a_refusal_fails_what_is_pending_and_what_comes(status: Status, error: type[Exception]) -> None:
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

    run(scenario, store, lambda bookie, session, requests: store(bookie, session, requests, status))


def test_a_bookie_that_refuses_is_tried_again_while_the_quorum_holds() -> None:
    def sick_for_a_while(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        store(bookie, session, requests, Status.EOK if len(bookie.received) > 3 else Status.EIO)

    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 3, QuorumConfig(3, 3, 2))
        for number in range(20):
            assert await writer.append(b"x") == number
            await asyncio.sleep(0.2)
        adds = [request.entry_id for request in bookies[2].received if isinstance(request, AddRequest)]
        assert adds[-1] == 19

    run(scenario, store, store, sick_for_a_while)


def test_overload_is_waited_for() -> None:
    def busy_once(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        store(bookie, session, requests, Status.ETOOMANYREQUESTS if len(bookie.wake_ups) == 1 else Status.EOK)

    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        assert await writer_of(pool, 1).append(b"x") == 0

    run(scenario, busy_once)


def test_a_quorum_that_never_answers_is_lost_after_its_time() -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        writer = writer_of(pool, 2)
        with pytest.raises(QuorumLostError, match="b1:3181: no answer within 2 s"):
            await writer.append(b"x")

    run(scenario, store, silent)


def test_drain_waits_for_room_and_an_endless_overrun_is_refused() -> None:
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

    run(scenario, store)


@pytest.mark.parametrize("payloads", [[], ["text"], [bytearray(b"x")], [b"x", None]])
def test_payloads_that_are_not_bytes_are_refused(payloads: list[bytes]) -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        writer = writer_of(pool, 1)
        with pytest.raises(UsageError):
            writer.append_many(payloads)
        assert await writer.append(b"fine") == 0

    run(scenario, store)


def test_an_explicit_lac_is_sent_only_when_it_has_moved() -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 1)
        await writer.write_lac()
        await writer.append(b"x")
        await writer.write_lac()
        await writer.write_lac()
        sent = [request for request in bookies[0].received if isinstance(request, WriteLacRequest)]
        assert [request.last_add_confirmed for request in sent] == [0]

    run(scenario, store)


def test_cancelling_a_wait_for_answers_loses_none() -> None:
    async def scenario(pool: ConnectionPool, _: list[FakeBookie]) -> None:
        answers = AnswerQueue()
        waiting = asyncio.create_task(answers.next_batch())
        await asyncio.sleep(0)
        waiting.cancel()
        answers.on_unanswered("b", [1], "why")
        assert await answers.next_batch() == [Answered("b", 1, None, "why")]

    run(scenario)

"""A writer's questions to its bookies whether the ledger is fenced, also to bookies that do not know the question."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ledger.client.fence_questions import PATIENCE_S, PAUSE_S
from ledger.client.pool import ConnectionPool
from ledger.core.quorum import QuorumConfig
from ledger.errors import LedgerError
from ledger.wire.codes import FenceState, Status
from ledger.wire.packets import FenceCheckRequest, FenceCheckResponse, ReadLacResponse, Request
from tests.unit.ledger.client.fake_bookie import Answer, FakeBookie, Session, run, silent, store, writer_of

E3 = QuorumConfig(3, 3, 2)


def says(state: FenceState) -> Answer:
    def answer(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        store(bookie, session, requests)
        for request in requests:
            if isinstance(request, FenceCheckRequest):
                session.answer(FenceCheckResponse(request.txn_id, Status.EOK, request.ledger_id, state))

    return answer


def knows_nothing_of_it(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
    """Answer as a bookie does that skips the field: BookKeeper's, and ours of before."""
    store(bookie, session, requests)
    for request in requests:
        if isinstance(request, FenceCheckRequest):
            session.answer(ReadLacResponse(request.txn_id, Status.EOK, request.ledger_id))


def asked(bookie: FakeBookie) -> int:
    return sum(isinstance(request, FenceCheckRequest) for request in bookie.received)


OPEN, FENCED, UNKNOWN = says(FenceState.OPEN), says(FenceState.FENCED), says(FenceState.UNKNOWN)


@pytest.mark.parametrize(
    ("answers", "is_proven"),
    [
        ((OPEN, OPEN, OPEN), True),
        ((OPEN, OPEN, silent), True),
        ((OPEN, FENCED, OPEN), True),
        ((OPEN, OPEN, knows_nothing_of_it), True),
        ((OPEN, FENCED, FENCED), False),
        ((OPEN, UNKNOWN, UNKNOWN), False),
        ((OPEN, knows_nothing_of_it, knows_nothing_of_it), False),
        ((OPEN, silent, silent), False),
    ],
)
def test_two_of_three_have_to_say_no(answers: tuple[Answer, ...], is_proven: bool) -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 3, E3)
        assert await writer.check_fence() is is_proven
        assert writer.failure is None

    run(scenario, *answers)


def test_who_does_not_know_the_question_is_asked_once_and_again_when_it_comes_back() -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 3, E3)
        for _ in range(5):
            assert not await writer.check_fence()
        await asyncio.sleep(0.1)  # The last question is on its way when it is known that it does not help.
        assert [asked(bookie) for bookie in bookies] == [1, 1, 1]
        for bookie in bookies[:2]:
            bookie.answer = OPEN
            for session in bookie.sessions:
                session.transport.close()  # type: ignore[attr-defined]
        async with asyncio.timeout(60):
            while not await writer.check_fence():
                await asyncio.sleep(0.1)
        assert asked(bookies[2]) == 1

    run(scenario, knows_nothing_of_it, knows_nothing_of_it, knows_nothing_of_it)


def test_no_more_are_asked_than_can_prove_it_each_in_its_turn() -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 3, E3)
        for _ in range(30):
            assert await writer.check_fence()
        assert [asked(bookie) for bookie in bookies] == [20, 20, 20]
        assert await writer.check_fence(100)  # A lease is asked of all.
        await asyncio.sleep(0.1)
        assert [asked(bookie) for bookie in bookies] == [21, 21, 21]

    run(scenario, OPEN, OPEN, OPEN)


def test_others_are_asked_in_place_of_one_that_is_late_which_then_comes_last() -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 3, E3)
        for _ in range(30):
            assert await writer.check_fence()
        bookies[1].answer = silent
        before, took_s = asked(bookies[1]), []
        loop = asyncio.get_running_loop()
        for _ in range(30):
            began = loop.time()
            assert await writer.check_fence()
            took_s.append(loop.time() - began)
        assert asked(bookies[1]) == before + 1
        assert max(took_s) < PATIENCE_S / 2
        assert sorted(took_s)[-2] < max(took_s) / 2
        await asyncio.sleep(PAUSE_S)
        bookies[1].answer = OPEN
        for _ in range(30):
            assert await writer.check_fence()
        assert asked(bookies[1]) == before + 21

    run(scenario, OPEN, OPEN, OPEN)


def test_what_is_late_goes_by_how_long_answers_take() -> None:
    """Bookies that all take long are not asked one more for it, once that is known."""

    def takes_long(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        asyncio.get_running_loop().call_later(0.01, OPEN, bookie, session, requests)

    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 3, E3)
        for _ in range(40):
            assert await writer.check_fence()
        before = sum(asked(bookie) for bookie in bookies)
        for _ in range(30):
            assert await writer.check_fence()
        assert sum(asked(bookie) for bookie in bookies) == before + 60

    run(scenario, takes_long, takes_long, takes_long)


def test_after_silence_nobody_waits_for_a_while() -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 3, E3)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert not await writer.check_fence()
        assert loop.time() - began == pytest.approx(PATIENCE_S, abs=0.01)
        assert not await writer.check_fence()
        assert [asked(bookie) for bookie in bookies] == [1, 1, 1]
        await asyncio.sleep(PAUSE_S)
        bookies[0].answer = OPEN
        assert await writer.check_fence()

    run(scenario, silent, OPEN, silent)


def test_answers_that_come_late_count_for_no_later_check() -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 2)
        assert not await writer.check_fence()
        kept = [(bookie, request) for bookie in bookies for request in bookie.received if _is_check(request)]
        await asyncio.sleep(PAUSE_S)
        later = writer.check_fence()
        await asyncio.sleep(0.01)
        for bookie, request in kept:
            OPEN(bookie, bookie.sessions[-1], [request])
        assert not await later

    run(scenario, silent, silent)


def _is_check(request: Any) -> bool:
    return isinstance(request, FenceCheckRequest)


def test_a_writer_that_ends_lets_nobody_wait() -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        writer = writer_of(pool, 3, E3)
        check = writer.check_fence()
        writer.abandon()
        assert check.done()
        assert not check.result()
        assert isinstance(writer.failure, LedgerError)
        assert not await writer.check_fence()

    run(scenario, OPEN, OPEN, OPEN)


def promises(lease_ms: int) -> Answer:
    def answer(bookie: FakeBookie, session: Session, requests: list[Request]) -> None:
        store(bookie, session, requests)
        for request in requests:
            if isinstance(request, FenceCheckRequest):
                told = FenceCheckResponse(request.txn_id, Status.EOK, request.ledger_id, FenceState.OPEN, lease_ms)
                session.answer(told)

    return answer


@pytest.mark.parametrize(
    ("answers", "holds"),
    [
        ((promises(100), promises(100), OPEN), True),
        ((promises(1 << 30), promises(100), OPEN), True),
        ((promises(100), OPEN, OPEN), False),
        ((promises(100), promises(-100), promises(0)), False),
        ((promises(100), knows_nothing_of_it, OPEN), False),
    ],
)
def test_a_lease_is_what_an_ack_quorum_promises_at_most_what_was_asked_for(
    answers: tuple[Answer, ...], holds: bool
) -> None:
    async def scenario(pool: ConnectionPool, bookies: list[FakeBookie]) -> None:
        now = 7.0
        pool.lease_clock = lambda: now
        writer = writer_of(pool, 3, E3)
        assert await writer.check_fence()
        assert not writer.holds_lease()  # It was not asked for.
        assert await writer.check_fence(100)
        await asyncio.sleep(0.1)
        assert writer.holds_lease() is holds
        now += 0.079
        assert writer.holds_lease() is holds
        now += 0.002
        assert not writer.holds_lease()

    run(scenario, *answers)

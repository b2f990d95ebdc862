"""Whose request is worked on next."""

from __future__ import annotations

import asyncio
import json

import pytest

from ledger.http.problems import HttpProblem
from ledger.http.turn_queue import TurnQueue
from ledger.http.turns import HEAVY_S, FairTurns, Work, cost_of_body

_MIB = 1024 * 1024


def test_a_batch_costs_by_its_tasks_and_a_payload_by_its_bytes() -> None:
    batch = json.dumps({"tasks": [{"type": "mail"}] * 5_000}).encode()
    assert cost_of_body(batch) > 30 * HEAVY_S
    assert cost_of_body(b'{"type": "mail"}') < HEAVY_S
    assert HEAVY_S < cost_of_body(b"x" * _MIB) < cost_of_body(batch) / 3


def test_alone_a_tenant_has_all_of_it() -> None:
    turns = FairTurns(_MIB)
    works = [Work("acme", 0.1) for _ in range(20)]
    now_s = 0.0
    for work in works[:3]:
        assert turns.ask(work, now_s)
    for work in works[3:]:
        assert not turns.ask(work, now_s)
    for done in range(17):
        now_s += 0.001
        turns.end(works[done], now_s)
        assert turns.next(now_s) == [works[done + 3]], "no debt holds it up"
    assert turns.waiting == 0


def test_beside_others_heavy_work_leaves_the_loop_free_as_long_as_it_had_it() -> None:
    turns = FairTurns(_MIB)
    assert turns.ask(Work("bolt", 0.000_2), 0.0)
    busy_s, now_s = 0.0, 0.0
    work = Work("acme", 0.01)
    is_taken = turns.ask(work, now_s)
    while now_s < 4.0:
        if not is_taken:
            until_s = turns.next_s(now_s)
            assert until_s is not None
            now_s = until_s
            assert turns.next(now_s) == [work]
        now_s += 0.01
        busy_s += 0.01
        turns.end(work, now_s)
        work = Work("acme", 0.01)
        is_taken = turns.ask(work, now_s)
    assert 0.4 < busy_s / now_s < 0.6


@pytest.mark.parametrize(("weight", "low", "high"), [(3.0, 0.65, 0.85), (1.0, 0.4, 0.6), (1 / 3, 0.15, 0.35)])
def test_a_tenant_has_the_loop_by_its_weight(weight: float, low: float, high: float) -> None:
    turns = FairTurns(_MIB, {"acme": weight, "bolt": 1.0}.__getitem__)
    assert turns.ask(Work("bolt", 0.000_2), 0.0)
    busy_s = now_s = 0.0
    while now_s < 4.0:
        work = Work("acme", 0.01)
        if not turns.ask(work, now_s):
            until_s = turns.next_s(now_s)
            assert until_s is not None
            now_s = until_s
            assert turns.next(now_s) == [work]
        now_s += 0.01
        busy_s += 0.01
        turns.end(work, now_s)
    assert low < busy_s / now_s < high


def test_long_work_is_charged_more_than_the_same_in_parts() -> None:
    def free_at_s(costs: list[float]) -> float:
        turns, now_s = FairTurns(_MIB), 0.0
        turns.ask(Work("bolt", 0.000_2), now_s)
        for cost_s in costs:
            work = Work("acme", cost_s)
            turns.ask(work, now_s)
            turns.end(work, now_s)
            turns.ask(Work("acme", HEAVY_S), now_s)
            now_s = turns.next_s(now_s) or 0.0
            for one in turns.next(now_s):
                turns.end(one, now_s, cost_s=0.0)
        return now_s

    assert free_at_s([0.15]) > 1.7 * free_at_s([0.015] * 10)


def test_light_work_never_waits_for_a_debt_and_tenants_take_turns_where_there_is_very_much() -> None:
    turns = FairTurns(_MIB)
    flood = [Work("acme", 0.000_2) for _ in range(1_000)]
    taken = [work for work in flood if turns.ask(work, 0.0)]
    assert len(taken) == 300
    single = Work("bolt", 0.000_2)
    assert not turns.ask(single, 0.0)
    for work in taken[:2]:
        turns.end(work, 0.1)
    assert single in turns.next(0.1)


def test_an_operator_is_never_in_debt() -> None:
    turns = FairTurns(_MIB)
    turns.ask(Work("bolt", 0.000_2), 0.0)
    for number in range(5):
        work = Work("", 0.5)
        assert turns.ask(work, number * 0.01)
        turns.end(work, number * 0.01)


def test_what_a_request_has_cost_after_all_counts() -> None:
    turns = FairTurns(_MIB)
    turns.ask(Work("bolt", 0.000_2), 0.0)
    work = Work("acme", HEAVY_S)
    assert turns.ask(work, 0.0)
    turns.end(work, 0.0, cost_s=0.15)
    assert not turns.ask(Work("acme", HEAVY_S), 0.5)
    assert turns.next_s(0.5) == pytest.approx(0.6), "long work counts twice"


def test_a_debt_that_ends_between_the_question_and_the_look_is_not_waited_for_in_vain() -> None:
    turns = FairTurns(_MIB)
    turns.ask(Work("bolt", 0.000_2), 0.0)
    work = Work("acme", 0.1)
    turns.ask(work, 0.0)
    turns.end(work, 0.1)
    again = Work("acme", 0.1)
    assert not turns.ask(again, 0.33)
    assert turns.next_s(0.34) == pytest.approx(0.34)
    assert turns.next(0.34) == [again]


def test_what_waits_holds_a_bounded_number_of_bytes() -> None:
    turns = FairTurns(_MIB)
    for number in range(3):
        turns.ask(Work("acme", 0.1), number)
    assert turns.has_room("acme", 8 * _MIB), "one request always"
    assert not turns.ask(Work("acme", 0.1, 200_000), 3.0)
    assert not turns.has_room("acme", 100_000)
    assert turns.has_room("bolt", 100_000)


def test_who_went_while_he_waited_holds_nobody_up() -> None:
    async def scenario() -> None:
        queue = TurnQueue(_MIB)
        order: list[str] = []

        async def have(name: str, seconds: float) -> None:
            async with queue.turn("acme", 0.01, 10):
                order.append(name)
                await asyncio.sleep(seconds)

        first = [asyncio.create_task(have(f"first {number}", 0.05)) for number in range(3)]
        await asyncio.sleep(0.01)
        gone, last = asyncio.create_task(have("gone", 0)), asyncio.create_task(have("last", 0))
        await asyncio.sleep(0.01)
        assert queue.waiting == 2
        gone.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(*first, last)
        assert order[-1] == "last"
        assert "gone" not in order
        assert queue.waiting == 0

    asyncio.run(scenario())


def test_a_body_too_many_is_refused_and_does_not_wait() -> None:
    async def scenario() -> None:
        queue = TurnQueue(_MIB)

        async def have(seconds: float, size: int) -> None:
            async with queue.turn("acme", 0.01, size):
                await asyncio.sleep(seconds)

        having = [asyncio.create_task(have(0.1, 0)) for _ in range(3)]
        await asyncio.sleep(0.01)
        having.append(asyncio.create_task(have(0, 250_000)))
        await asyncio.sleep(0.01)
        with pytest.raises(HttpProblem, match="fill the room of one tenant"):
            await have(0, _MIB)
        await asyncio.gather(*having)

    asyncio.run(scenario())

"""Turns: callers after each other, however many turns one of them wants; who has gone is passed over."""

from __future__ import annotations

import asyncio

import pytest

from rsm_spark.transport.caller_turns import CallerTurns

pytestmark = pytest.mark.asyncio


async def test_who_wants_one_turn_waits_for_one_of_each_other() -> None:
    turns = CallerTurns()
    had: list[str] = []

    async def take(owner: str) -> None:
        async with turns.of(owner):
            had.append(owner)
            await asyncio.sleep(0)

    many = [asyncio.create_task(take("many")) for _ in range(20)]
    await asyncio.sleep(0)
    one, other = asyncio.create_task(take("one")), asyncio.create_task(take("other"))
    await asyncio.gather(one, other, *many)
    assert {"one", "other"} <= set(had[:5])
    assert had.count("many") == 20


async def test_who_gives_up_holds_nobody() -> None:
    turns = CallerTurns()
    async with turns.of("a"):

        async def wait() -> None:
            async with turns.of("b"):
                raise AssertionError("it has given up")

        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(10), turns.of("c"):
        pass

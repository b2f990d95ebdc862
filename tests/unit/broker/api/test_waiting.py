"""Waiting for a task's end: pushed, bounded, and over when nobody waits any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from broker.api.server import HttpServer
from broker.machine.statuses import TaskStatus
from tests.unit.broker.api.stand import Caller, StandIn, asking, serving, task


def _run(scenario: Callable[[Caller, StandIn], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with asking(**settings) as (caller, broker):
            broker.tasks[5] = task(5)
            await scenario(caller, broker)

    asyncio.run(run())


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


def test_a_task_that_has_ended_is_shown_at_once() -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        broker.tasks[5] = task(5, status=TaskStatus.FINISHED, result=b"done")
        answer = await caller.ask("GET", "/api/v1/tasks/5?wait_s=60")
        assert (answer.json["status"], answer.json["result"]) == ("finished", "done")

    _run(scenario)


def test_a_task_is_shown_when_it_ends() -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        asked = asyncio.create_task(caller.ask("GET", "/api/v1/tasks/5?wait_s=60"))
        await _until(lambda: broker.waiting == 1)
        assert not asked.done()
        broker.end(5)
        assert (await asked).json["status"] == "finished"

    _run(scenario)


def test_a_task_is_shown_as_it_is_when_the_time_has_passed() -> None:
    async def scenario(caller: Caller, _: StandIn) -> None:
        answer = await caller.ask("GET", "/api/v1/tasks/5?wait_s=0.01")
        assert (answer.status, answer.json["status"]) == (200, "waiting")

    _run(scenario)


def test_a_task_that_is_removed_meanwhile_is_not_there() -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        asked = asyncio.create_task(caller.ask("GET", "/api/v1/tasks/5?wait_s=60"))
        await _until(lambda: broker.waiting == 1)
        del broker.tasks[5]
        broker.ended.set()
        assert (await asked).status == 404

    _run(scenario)


def test_nothing_waits_any_more_when_the_client_has_gone() -> None:
    async def scenario(caller: Caller, broker: StandIn) -> None:
        asked = asyncio.create_task(caller.ask("GET", "/api/v1/tasks/5?wait_s=60"))
        await _until(lambda: broker.waiting == 1)
        asked.cancel()
        caller.close()
        await _until(lambda: broker.waiting == 0)

    _run(scenario)


def test_many_wait_beside_each_other_and_others_are_served() -> None:
    async def run() -> None:
        async with serving() as (server, broker):
            broker.tasks[5] = task(5)
            callers = [await Caller.of(server) for _ in range(50)]
            asked = [asyncio.create_task(one.ask("GET", "/api/v1/tasks/5?wait_s=60")) for one in callers]
            await _until(lambda: broker.waiting == 50)
            other = await Caller.of(server)
            assert (await other.ask("GET", "/healthz")).status == 200
            broker.end(5)
            assert {(await one).json["status"] for one in asked} == {"finished"}
            for one in (*callers, other):
                one.close()

    asyncio.run(run())


def test_who_waits_hears_what_is_when_the_server_stops() -> None:
    async def run() -> None:
        broker = StandIn()
        broker.tasks[5] = task(5)
        async with serving(broker) as (server, _):
            caller = await Caller.of(server)
            asked = asyncio.create_task(caller.ask("GET", "/api/v1/tasks/5?wait_s=60"))
            await _until(lambda: broker.waiting == 1)
            await _stopped(server)
            answer = await asked
            assert (answer.status, answer.json["status"]) == (200, "waiting")
            assert await caller.closed()
            caller.close()

    asyncio.run(run())


async def _stopped(server: HttpServer) -> None:
    async with asyncio.timeout(60):
        await server.stop()

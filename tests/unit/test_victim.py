"""The victim of the tests of attackers: a server that is unfair in any of these ways is found out, without a clock."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable

import pytest

from tests.hostile import victim as victims
from tests.hostile.victim import Served, Victim, Work, processor_s

pytestmark = pytest.mark.asyncio
_CALLS, _ATTACKERS = 30, 4


class Desk:
    """A server that takes one request after the other, from its victim's queue or from that of the attackers."""

    def __init__(self) -> None:
        self.waiting: dict[str, deque[asyncio.Future[None]]] = {"victim": deque(), "attacker": deque()}
        self.answered = 0

    async def ask(self, who: str) -> None:
        answer = asyncio.get_running_loop().create_future()
        self.waiting[who].append(answer)
        await answer

    def take(self, who: str) -> bool:
        """Answer one of them, if one waits."""
        while self.waiting[who]:
            answer = self.waiting[who].popleft()
            if not answer.done():
                answer.set_result(None)
                self.answered += who == "victim"
                return True
        return False

    async def turns(self, attackers_first: Callable[[int], int]) -> None:
        """Serve for ever: before a call of the victim so many of the attackers, by how many calls it had before."""
        while True:
            served = 0
            while served < attackers_first(self.answered):
                served += self.take("attacker")
                await asyncio.sleep(0)
                if not self.waiting["attacker"]:
                    break
            self.take("victim")
            await asyncio.sleep(0)


async def _judge(
    attackers_first: Callable[[int], int],
    call: Callable[[Desk], Awaitable[None]] = lambda desk: desk.ask("victim"),
    *,
    limit_s: float = 60.0,
) -> None:
    """Attack a desk with such turns, and judge what its victim gets as tests do."""
    desk, work = Desk(), Work()

    async def attack() -> None:
        while True:
            await desk.ask("attacker")
            work.add()

    victim = Victim(lambda: call(desk), servers=[os.getpid()], limit_s=limit_s)
    running = [asyncio.create_task(desk.turns(attackers_first))]
    try:
        quiet = await victim.run(_CALLS)
        desk.answered = 0
        running += [asyncio.create_task(attack()) for _ in range(_ATTACKERS)]
        attacked = await victim.run(_CALLS, beside=work, units=_CALLS)
        attacked.assert_goes_on_like(quiet, units_per_call=10)
    finally:
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_a_fair_server_is_found_fair() -> None:
    await _judge(lambda _: 1)
    await _judge(lambda _: _ATTACKERS)


async def test_attackers_that_go_first_are_found() -> None:
    with pytest.raises(AssertionError, match="attackers went first, 10 units a call are allowed"):
        await _judge(lambda _: 500)


async def test_a_single_call_that_waits_for_long_is_found() -> None:
    """On average such a victim is served well enough."""
    with pytest.raises(AssertionError, match="a call waited for more than 200 units"):
        await _judge(lambda answered: 250 * (answered == 3))


async def test_a_call_that_is_refused_is_found() -> None:
    async def call(desk: Desk) -> None:
        await desk.ask("victim")
        if desk.waiting["attacker"] and desk.answered == 7:
            raise ConnectionResetError("refused")

    with pytest.raises(AssertionError, match="1 calls of the victim failed, first: ConnectionResetError"):
        await _judge(lambda _: 1, call)


async def test_a_call_that_is_never_answered_is_found() -> None:
    async def call(desk: Desk) -> None:
        if desk.waiting["attacker"] and desk.answered == 7:
            await asyncio.Event().wait()
        await desk.ask("victim")

    with pytest.raises(AssertionError, match="1 calls of the victim failed, first: TimeoutError"):
        await _judge(lambda _: 1, call, limit_s=1.0)


async def test_work_of_the_server_that_a_victim_has_to_wait_for_is_found() -> None:
    """The turns are fair, but what attackers ask for is never broken up."""

    async def call(desk: Desk) -> None:
        end = time.process_time() + 0.06
        while desk.waiting["attacker"] and time.process_time() < end:
            pass
        await desk.ask("victim")

    with pytest.raises(AssertionError, match="of the server's processor for a call when quiet, 25.0 times"):
        await _judge(lambda _: 1, call)


async def test_an_attack_that_does_not_come_about_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(victims, "_HUNG_S", 0.02)
    work = Work()
    work.add(3)
    with pytest.raises(AssertionError, match="came to 3 of 4 units: nobody attacks"):
        await work.reaches(4)

    async def call() -> None:
        await asyncio.sleep(0)

    attacked = await Victim(call).run(1, beside=work, units=1)
    with pytest.raises(AssertionError, match="not 1 calls beside 1 units"):
        attacked.assert_answered()
    with pytest.raises(AssertionError, match="nobody attacked"):
        (await Victim(call).run(1)).assert_goes_on_like(await Victim(call).run(1), units_per_call=1)


async def test_a_victim_goes_on_until_an_attack_is_through() -> None:
    desk, work = Desk(), Work()

    async def attack() -> None:
        for _ in range(50):
            await desk.ask("attacker")
            work.add()

    serving = asyncio.create_task(desk.turns(lambda _: 1))
    try:
        attacking = asyncio.create_task(attack())
        work.ends_with(attacking)
        served = await Victim(lambda: desk.ask("victim")).run(1, beside=work, units=1_000_000)
        served.assert_answered()
        assert attacking.done()
        assert (served.calls >= 40, served.units) == (True, 50)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def test_nobody_served_is_a_failure_too() -> None:
    with pytest.raises(AssertionError, match="not served at all"):
        Served().assert_answered()


async def test_processor_time_of_a_process_grows_while_it_works_and_not_while_it_waits() -> None:
    before = processor_s(os.getpid())
    while time.process_time() < before + 0.02:
        pass
    assert processor_s(os.getpid()) >= before + 0.02

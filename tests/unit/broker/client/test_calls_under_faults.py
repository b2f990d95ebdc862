"""Whatever goes wrong between client and broker: what was answered was done once, and nothing else was done twice."""

from __future__ import annotations

import asyncio
import random

import pytest

from broker.client.client import AsyncBrokerClient
from broker.client.errors import BrokerClientError
from broker.client.task import NewTask
from rsm_spark.errors import OutcomeUnknownError
from tests.unit.broker.client.stand_in import Asked, HttpStandIn, MemoryBroker, Said, problem

_CALLS = 12
_CALLERS = 3


class _Faults:
    """A group of brokers of which one leads; each request may meet a fault, before or after it was carried out."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.broker = MemoryBroker()
        self.servers: list[HttpStandIn] = []
        self.leader = 0

    async def answer(self, number: int, asked: Asked) -> Said:
        chance = self.random.random()
        if chance < 0.05:
            self.leader = self.random.randrange(len(self.servers))
        if chance < 0.15:
            return Said(is_cut=True)
        if chance < 0.2:
            return problem(503, "no-leader", headers={"retry-after": "0"})
        if chance < 0.25:
            return problem(429, "rate-limited", headers={"retry-after": "0"})
        if number != self.leader:
            return problem(307, "not-leader", headers={"location": self.servers[self.leader].url + asked.path})
        said = await self.broker.answer(asked)
        if chance > 0.9:
            return said._replace(is_cut=True)
        return problem(504, "outcome-unknown") if chance > 0.85 else said


async def _call(client: AsyncBrokerClient, caller: int, done: list[str], unknown: list[str]) -> None:
    for call in range(_CALLS):
        name = f"{caller}.{call}"
        try:
            if call % 3:
                await client.submit("t", name, limit_s=60)
            else:
                await client.submit_many([NewTask("t", name)], limit_s=60)
            done.append(name)
        except OutcomeUnknownError:
            unknown.append(name)
        except BrokerClientError as error:
            pytest.fail(f"{name}: {error}")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.asyncio
async def test_every_submit_counts_once(seed: int) -> None:
    faults = _Faults(seed)
    done: list[str] = []
    unknown: list[str] = []
    for number in range(3):
        server = HttpStandIn(lambda asked, number=number: faults.answer(number, asked))  # type: ignore[misc]
        faults.servers.append(await server.__aenter__())
    try:
        async with await AsyncBrokerClient.connect([server.url for server in faults.servers]) as client:
            await asyncio.gather(*(_call(client, caller, done, unknown) for caller in range(_CALLERS)))
    finally:
        for server in faults.servers:
            await server.__aexit__()
    payloads = [task["payload"] for task in faults.broker.tasks.values()]
    assert len(payloads) == len(set(payloads)), f"seed {seed}: one was submitted twice"
    assert set(done) <= set(payloads) <= {*done, *unknown}, f"seed {seed}"
    assert len(done) + len(unknown) == _CALLS * _CALLERS

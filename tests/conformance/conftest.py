"""Runs a conformance test on the simulated metadata store, over several seeds, and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ledger.ports import MetadataStore
from ledger.testing import MetadataRates, Simulation

_SESSION_TIMEOUT_MS = 4_000
_SIMULATED_SEEDS = 5
_roots = itertools.count()

Connect = Callable[[], Awaitable[MetadataStore]]
Run = Callable[[Callable[[Connect, str], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=["twin", "zookeeper"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a test's coroutine with (connect, a path of its own); the sessions are closed afterwards."""

    async def scenario(connect: Connect, test: Callable[[Connect, str], Coroutine[Any, Any, None]], root: str) -> None:
        async with AsyncExitStack() as sessions, asyncio.timeout(60):

            async def connect_for_this_test() -> MetadataStore:
                session = await connect()
                sessions.push_async_callback(session.close)
                return session

            setup = await connect_for_this_test()
            await setup.create(root, parents=True)
            await test(connect_for_this_test, root)

    def run_on_twin(test: Callable[[Connect, str], Coroutine[Any, Any, None]]) -> None:
        for seed in range(_SIMULATED_SEEDS):
            simulation = Simulation(seed, metadata_rates=MetadataRates(lag_rate=0.5, lag_s_max=3.0))
            connect = lambda: simulation.metadata.connect(session_timeout_ms=_SESSION_TIMEOUT_MS)  # noqa: B023
            simulation.run(scenario(connect, test, "/root"))

    def run_on_zookeeper(test: Callable[[Connect, str], Coroutine[Any, Any, None]]) -> None:
        from ledger.zookeeper.session import connect

        address = request.getfixturevalue("zookeeper")
        root = f"/conformance-{next(_roots)}"
        asyncio.run(scenario(lambda: connect([address], session_timeout_ms=_SESSION_TIMEOUT_MS), test, root))

    return run_on_twin if request.param == "twin" else run_on_zookeeper

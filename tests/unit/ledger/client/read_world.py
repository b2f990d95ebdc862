"""A simulated cluster with a client that writes and one that reads, for tests that drive both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ledger import LedgerClient
from ledger.client.settings import ClientSettings
from ledger.core.entry import Entry
from ledger.testing import Simulation
from ledger.testing.cluster import SimCluster

__all__ = ["World", "check", "run"]

SETTINGS = ClientSettings(
    connect_timeout_s=2.0,
    request_timeout_s=8.0,
    quorum_timeout_s=20.0,
    long_poll_s=1.0,
    speculative_read_s=0.5,
)
Scenario = Callable[["World"], Awaitable[None]]


class World:
    """A cluster, a client that writes and one that reads; each test drives it from the reader's host."""

    def __init__(self, bookie_count: int, settings: ClientSettings) -> None:
        self.simulation = Simulation(3)
        self.cluster = SimCluster(self.simulation, bookie_count=bookie_count)
        self.settings = settings
        self.client: LedgerClient
        self.other: LedgerClient

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def closed(self, count: int, *, size: int = 10, ensemble: tuple[int, int, int] = (3, 3, 2)) -> int:
        """Return the id of a closed ledger of `count` entries."""
        e, w, a = ensemble
        writer = await self.other.create(ensemble_size=e, write_quorum=w, ack_quorum=a)
        await writer.append_many([b"%0*d" % (size, entry_id) for entry_id in range(count)])
        await writer.close()
        return writer.ledger_id


def run(scenario: Scenario, *, bookie_count: int = 3, protocol: str = "v3", **settings: Any) -> None:
    world = World(bookie_count, msgspec.structs.replace(SETTINGS, protocol=protocol, **settings))

    async def program() -> None:
        host = world.simulation.host("client")
        world.client = await world.cluster.connect(host, world.settings)
        world.other = await world.cluster.connect(host, SETTINGS)
        await world.cluster.wait_until_writable(world.client)
        await scenario(world)
        await world.client.close()
        await world.other.close()

    async def main() -> None:
        world.cluster.start()
        await world.simulation.host("client").spawn(program())

    world.simulation.run(main())


def check(entries: list[Entry], first: int, last: int) -> None:
    assert [entry.entry_id for entry in entries] == list(range(first, last + 1))
    assert [int(entry.payload) for entry in entries] == list(range(first, last + 1))

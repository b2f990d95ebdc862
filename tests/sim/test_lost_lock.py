"""A lock whose creation got no reply stands as long as its session: it must not keep its own maker out."""

from __future__ import annotations

import asyncio

import pytest

from ledger.errors import MetadataUnavailableError
from ledger.replication.marks import LedgerLock, MarkStore
from ledger.testing import MetadataRates, Simulation


async def take(marks: MarkStore) -> LedgerLock:
    """Do as a worker does: try what nobody else has, twice."""
    for _ in range(2):
        if 7 not in await marks.locked():
            lock = await marks.lock(7)
            if lock is not None:
                return lock
    pytest.fail("the lock stays")


def test_a_lock_that_was_made_without_a_reply_is_free_again() -> None:
    simulation = Simulation(1)
    calm, lossy = MetadataRates(lag_rate=0.0), MetadataRates(lag_rate=0.0, lost_reply_rate=1.0)

    async def work() -> None:
        marks = MarkStore(await simulation.metadata.connect(session_timeout_ms=10_000), "/ledgers", "me")
        await marks.ensure_layout()
        simulation.metadata.rates = lossy
        with pytest.raises(MetadataUnavailableError):
            await marks.lock(7)
        simulation.metadata.rates = calm
        await asyncio.sleep(1.0)
        lock = await take(marks)
        simulation.metadata.rates = lossy
        await marks.unlock(lock)
        simulation.metadata.rates = calm
        await asyncio.sleep(1.0)
        lock = await take(marks)
        simulation.metadata.drop_connections()
        await asyncio.sleep(0)
        await marks.unlock(lock)
        await asyncio.sleep(1.0)
        await take(marks)

    async def main() -> None:
        await simulation.host("worker").spawn(work())

    simulation.run(main(), limit_s=60)

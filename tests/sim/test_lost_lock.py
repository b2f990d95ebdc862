"""A lock whose creation got no reply stands as long as its session: it must not keep its own maker out."""

from __future__ import annotations

import asyncio

import pytest

from ledger.errors import MetadataUnavailableError
from ledger.replication.marks import MarkStore
from ledger.testing import MetadataRates, Simulation


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
        assert await marks.locked() == [7]
        assert await marks.locked() == []
        lock = await marks.lock(7)
        assert lock is not None
        simulation.metadata.rates = lossy
        await marks.unlock(lock)
        simulation.metadata.rates = calm
        await asyncio.sleep(1.0)
        await marks.locked()
        lock = await marks.lock(7)
        assert lock is not None
        simulation.metadata.drop_connections()
        await asyncio.sleep(0)
        await marks.unlock(lock)
        await asyncio.sleep(1.0)
        await marks.locked()
        assert await marks.lock(7) is not None

    async def main() -> None:
        await simulation.host("worker").spawn(work())

    simulation.run(main(), limit_s=60)

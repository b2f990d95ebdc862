"""What a replica does before it has a state."""

from __future__ import annotations

import asyncio

from ledger.testing import MetadataRates
from tests.unit.rsm.runtime.log_world import LogWorld, run

_BLINK_S = 5.0


def test_a_replica_that_boots_while_the_metadata_store_blinks_waits_for_it() -> None:
    def prepare(world: LogWorld) -> None:
        metadata = world.simulation.metadata
        calm, metadata.rates = metadata.rates, MetadataRates(lost_request_rate=0.9, late_rate=0.0)
        asyncio.get_running_loop().call_later(_BLINK_S, setattr, metadata, "rates", calm)

    async def scenario(world: LogWorld) -> None:
        await world.add()
        assert world.simulation.loop.time() >= _BLINK_S
        assert not world.cluster.stopped

    run(scenario, prepare=prepare)

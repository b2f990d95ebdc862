"""What a replica does before it has a state."""

from __future__ import annotations

import asyncio

from ledger.testing import MetadataRates
from rsm_spark.core.chain import chain_path
from rsm_spark.errors import NoSuchLogError
from rsm_spark.testing.cluster import LOG
from rsm_spark.testing.snapshots import MemorySnapshots
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


def test_a_log_whose_chain_is_gone_is_not_begun_anew_where_the_lake_knows_it() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        manifest = await world.snapshot()
        world.cluster.lake = MemorySnapshots()
        world.cluster.lake.write(manifest, [])
        log_id = (await world.chain()).log_id
        host = world.leader_host
        host.kill()
        world.cluster.wipe(host)
        _, version = await world.store.get(chain_path(LOG))
        await world.store.delete(chain_path(LOG), version)
        seen = len(world.cluster.stopped)
        await world.until(lambda: len(world.cluster.stopped) > seen)
        _, reason = world.cluster.stopped[seen]
        assert isinstance(reason, NoSuchLogError), reason
        assert f"the newest of revision {manifest.revision} of log {log_id}" in str(reason)
        assert await world.store.exists(chain_path(LOG)) is None, "an empty log took its place"

    run(scenario, replica_count=1)

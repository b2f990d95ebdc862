"""What a replica does before it has a state."""

from __future__ import annotations

import asyncio

from ledger.testing import MetadataRates
from rsm_spark.core.chain import chain_path
from rsm_spark.errors import NoSuchLogError
from rsm_spark.snapshots.manifest import SnapshotManifest
from rsm_spark.testing.cluster import LOG
from rsm_spark.testing.snapshots import MemorySnapshots
from tests.unit.rsm_spark.runtime.log_world import LogWorld, run

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


def test_a_log_that_another_replica_begins_meanwhile_is_booted_though_its_snapshots_are_seen_first() -> None:
    async def scenario(world: LogWorld) -> None:
        await world.add()
        manifest = await world.snapshot()
        host = world.leader_host
        value, version = await world.store.get(chain_path(LOG))
        lake = world.cluster.lake = _LateLake(world, value)
        lake.write(manifest, [])
        host.kill()
        world.cluster.wipe(host)
        await world.store.delete(chain_path(LOG), version)
        await world.until(lambda: lake.was_listed)
        await world.until_led()
        assert not world.cluster.stopped
        assert (await world.chain()).log_id == manifest.log_id

    run(scenario, replica_count=1)


class _LateLake(MemorySnapshots):
    """Is listed when the log's chain has just been written."""

    def __init__(self, world: LogWorld, chain: bytes) -> None:
        super().__init__()
        self._metadata, self._chain = world.simulation.metadata, chain
        self.was_listed = False

    def manifests(self) -> list[SnapshotManifest]:
        if not self.was_listed:
            self.was_listed = True
            _, changes = self._metadata.leader.create(
                chain_path(LOG), self._chain, owner=0, sequential=False, parents=False
            )
            self._metadata.commit(changes)
        return super().manifests()

"""When replicas take snapshots, and that each can be verified."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rsm_spark.runtime.status import ReplicaRole
from rsm_spark.snapshots.disk import SnapshotDisk
from tests.unit.rsm_spark.snapshots.snapshot_world import SnapshotWorld, run


def without_lake(world: SnapshotWorld) -> None:
    world.has_lake = False


def test_every_replica_takes_its_snapshots_where_the_log_holds_a_checkpoint(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        world.silent = {"a", "b", "c"}  # Only own ones.
        await world.work_until(lambda: all(len(one.manifests()) >= 3 for one in world.stores.values()))
        await world.agree()
        for name, store in world.stores.items():
            checkpoints = world.replicas[name]._context.state.checkpoints
            for manifest in store.manifests():
                known = checkpoints.get(manifest.revision)
                assert known is not None
                assert (known.digest.hex(), known.prefix_hash.hex()) == (manifest.digest, manifest.prefix_hash)
                assert manifest.written_by == name
        taken = [{one.revision for one in store.manifests()} for store in world.stores.values()]
        assert len(set.union(*taken)) > 3, "not all at the same places"

    run(tmp_path, scenario, prepare=without_lake)


def test_an_idle_log_comes_to_rest(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: len(world.verified) == 2)
        await asyncio.sleep(100.0)
        revision, _ = await world.agree()
        await asyncio.sleep(100.0)
        later, _ = await world.agree()
        assert later - revision <= 40, "snapshots and their verification make each other necessary"
        await world.until_trimmed(revision // 2)

    run(tmp_path, scenario, names=("a", "b"), prepare=without_lake)


class FullDisk(SnapshotDisk):
    """Has no room while `is_full`."""

    is_full = False

    def make_folder(self, path: Path) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().make_folder(path)


def test_a_full_disk_is_an_alarm_until_a_snapshot_succeeds_and_the_service_goes_on(tmp_path: Path) -> None:
    disk = FullDisk()

    def prepare(world: SnapshotWorld) -> None:
        without_lake(world)
        world.disks["a"] = disk

    async def scenario(world: SnapshotWorld) -> None:
        disk.is_full = True
        await world.work_until(lambda: any("No space left" in text for text in world.leader.status().alarms))
        assert world.leader.role is ReplicaRole.LEADER
        disk.is_full = False
        await world.work_until(lambda: not any("No space left" in text for text in world.leader.status().alarms))
        assert world.stores["a"].manifests()

    run(tmp_path, scenario, names=("a",), prepare=prepare)

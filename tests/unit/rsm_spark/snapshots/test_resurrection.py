"""Replicas come back from whatever is left: disks, each other, the lake, the whole log; or they say what is missing.

A log may be trimmed by two disks alone: that the lake reaches it always takes a retention above the lake's period.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from rsm_spark.errors import MissingLogError
from rsm_spark.snapshots.checks import snapshot_name
from rsm_spark.snapshots.incoming import INCOMING
from tests.sets import some_of
from tests.unit.rsm_spark.snapshots.snapshot_world import SnapshotWorld, run

PAIR = ("a", "b")
RETENTION_MS = 20_000


def without_lake(world: SnapshotWorld) -> None:
    world.has_lake = False


async def lost_disks(world: SnapshotWorld) -> tuple[dict[str, int], int, int]:
    """Work until the log is trimmed, lose every disk; return the counters, and a digest with its revision."""
    await world.until_trimmed(100)
    await world.work_until(lambda: world.verified.get("lake", 0) > 200)
    context = world.leader._context
    last = next(reversed(context.state.checkpoints._known))
    world.leader.want_checkpoint()
    await world.until(lambda: next(reversed(context.state.checkpoints._known)) > last)
    await world.agree()
    checkpoint = context.state.checkpoints._known[next(reversed(context.state.checkpoints._known))]
    values = dict(context.machine.values)  # type: ignore[attr-defined]
    world.kill()
    world.wipe()
    return values, int.from_bytes(checkpoint.digest, "big"), checkpoint.revision


def files_of(world: SnapshotWorld, revision: int) -> list[Path]:
    """Return the Parquet files of one snapshot in the lake."""
    place = world.folder / "lake" / "counters"
    version = next(version for version, one in world.lake()._versions() if one.revision == revision)
    return [Path(uri.removeprefix("file://")) for uri in DeltaTable(place, version=version).file_uris()]


def test_with_every_disk_gone_and_the_log_trimmed_the_lake_gives_the_same_state(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        values, digest, revision = await lost_disks(world)
        await world.start()
        await world.until(lambda: len(world.replicas) == 3)
        await world.agree()
        state = world.leader._context.state
        assert state.machine.values == values  # type: ignore[attr-defined]
        assert revision > 200
        # The state at the time of the loss, from the lake and the log: its digest was logged as a checkpoint.
        checkpoint = state.checkpoints.get(revision)
        assert checkpoint is not None
        assert int.from_bytes(checkpoint.digest, "big") == digest
        await world.add(5)
        await world.agree()

    run(tmp_path, scenario, retention_ms=RETENTION_MS)


def test_a_damaged_newest_lake_snapshot_leaves_the_one_before(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: len(world.lake().manifests()) >= 2)
        before = dict(world.leader._context.machine.values)  # type: ignore[attr-defined]
        world.kill()
        world.wipe()
        newest = world.lake().manifests()[0]
        (file,) = files_of(world, newest.revision)
        file.write_bytes(file.read_bytes()[:-10])
        await world.start("a")
        await world.agree()
        assert world.leader._context.machine.values == before  # type: ignore[attr-defined]

    run(tmp_path, scenario, names=PAIR, retention_ms=10_000_000)


def test_a_damaged_lake_is_refused_with_the_exact_missing_range(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await lost_disks(world)
        first = await world.first_revision()
        reaching = [one for one in world.lake().manifests() if one.revision >= first - 1]
        older = [one for one in world.lake().manifests() if one.revision < first - 1]
        for manifest in reaching:
            for file in files_of(world, manifest.revision):
                file.unlink()
        world.hosts["a"].start()
        await world.until(lambda: bool(world.exits))
        error = world.exits[0][1]
        assert isinstance(error, MissingLogError)
        expected = max((one.revision for one in older), default=0) + 1
        assert error.last_revision == first - 1
        assert error.first_revision in {expected, 1}
        assert f"to {first - 1} are missing" in str(error)
        assert "files are missing or cut" in str(error) or "no snapshots" in str(error)
        assert "lake" in str(error)

    run(tmp_path, scenario)


def test_a_lake_whose_snapshots_are_too_old_is_refused_with_what_lies_between(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: bool(world.lake().manifests()))
        saved = world.folder / "saved"
        shutil.copytree(world.folder / "lake", saved)
        newest = world.lake().manifests()[0].revision
        await world.until_trimmed(newest + 50)
        world.kill()
        world.wipe()
        shutil.rmtree(world.folder / "lake")
        saved.rename(world.folder / "lake")
        first = await world.first_revision()
        world.hosts["a"].start()
        await world.until(lambda: bool(world.exits))
        error = world.exits[0][1]
        assert isinstance(error, MissingLogError)
        assert (error.first_revision, error.last_revision) == (newest + 1, first - 1)

    run(tmp_path, scenario)


@pytest.mark.parametrize("point", some_of(range(10), 2))
def test_a_cluster_killed_at_any_moment_comes_back_from_the_lake(tmp_path: Path, point: int) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.until_trimmed()
        await world.work_until(lambda: "lake" in world.verified)
        await world.add(3)
        await asyncio.sleep(0.37 * point)  # Snapshots, copies, lake commits and trims are under way.
        values = dict(world.leader._context.machine.values)  # type: ignore[attr-defined]
        world.kill()
        world.wipe()
        await world.start()
        await world.until(lambda: len(world.replicas) == 3)
        await world.agree()
        assert world.leader._context.machine.values == values  # type: ignore[attr-defined]

    run(tmp_path, scenario, seed=point + 1, retention_ms=RETENTION_MS)


def test_a_replica_without_disk_boots_from_a_peer_though_another_is_silent(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.until_trimmed()
        victim, silent, source = sorted(world.hosts, key=lambda name: name != world.leader_name)[::-1]
        await world.until(lambda: bool(world.stores[source].manifests()))
        world.kill(victim)
        world.wipe(victim)
        world.silent = {silent}
        seen = len(world.downloads)
        await world.start(victim)
        await world.until(lambda: victim in world.replicas)
        assert [(who, whose) for who, whose, _ in world.downloads[seen : seen + 1]] == [(victim, source)]
        await world.agree()

    run(tmp_path, scenario, prepare=without_lake)


def test_a_replica_with_nothing_and_nobody_left_is_told_whom_it_asked(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.until_trimmed()
        follower = next(name for name in PAIR if name != world.leader_name)
        world.kill(follower)
        world.wipe(follower)
        world.silent = {str(world.leader_name)}
        world.hosts[follower].start()
        await world.until(lambda: bool(world.exits))
        text = str(world.exits[0][1])
        assert f"replica {world.leader_name} is silent" in text
        assert "local: no snapshots" in text
        assert "lake: none is named" in text

    run(tmp_path, scenario, names=PAIR, prepare=without_lake)


def test_a_copy_that_a_crash_interrupted_is_no_snapshot_and_is_gone_on_with(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.until_trimmed()
        leader = str(world.leader_name)
        follower = next(name for name in PAIR if name != leader)
        await world.until(lambda: bool(world.stores[leader].manifests()))
        world.kill(follower)
        world.wipe(follower)
        for _ in range(6):  # Killed while it copies, a little later each time.
            world.hosts[follower].start()
            await asyncio.sleep(0.01 + 0.003 * _)
            if follower in world.replicas:
                break
            world.kill(follower)
            for path in (tmp_path / follower).glob("*") if (tmp_path / follower).exists() else ():
                assert path.name.startswith(INCOMING) or path.name in {
                    snapshot_name(one) for one in world.stores[leader].manifests()
                }
        if not world.hosts[follower].is_up:
            await world.start(follower)
        await world.until(lambda: follower in world.replicas)
        await world.agree()

    run(tmp_path, scenario, names=PAIR, prepare=without_lake)


def test_without_any_snapshot_the_whole_log_is_replayed(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.add(50)
        await world.agree()
        world.kill()
        world.wipe()
        await world.start("a")
        await world.agree()

    run(tmp_path, scenario, names=PAIR, prepare=without_lake, snapshot_s=0.0, snapshot_bytes=0)

"""Snapshots are verified by others as a matter of course; what is wrong stops trimming, and loses nothing."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rsm_spark.core.commands import ReportWithdrawn
from rsm_spark.core.digest import row_term, table_prefix
from rsm_spark.core.records import pack
from rsm_spark.snapshots.checks import MANIFEST_NAME, snapshot_name
from rsm_spark.snapshots.manifest import SnapshotFile, SnapshotManifest, encode_manifest
from tests.unit.rsm_spark.snapshots.snapshot_world import SnapshotWorld, run


def plant_wrong_row(folder: Path, *, digest_too: bool) -> SnapshotManifest:
    """Change a row of a snapshot, and its manifest so that the files are as it says."""
    manifest = msgspec.json.decode((folder / MANIFEST_NAME).read_bytes(), type=SnapshotManifest)
    file = next(one for one in manifest.files if not one.table.startswith("_"))
    rows = pq.read_table(folder / file.name).to_pylist()
    right = rows[0]["row"]
    rows[0]["row"] = wrong = pack((10_000,))
    pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(folder / file.name)), folder / file.name)
    content = (folder / file.name).read_bytes()
    planted = SnapshotFile(file.name, file.table, file.rows, len(content), hashlib.sha256(content).hexdigest())
    digest = int(manifest.digest, 16)
    if digest_too:
        prefix, key = table_prefix(file.table), rows[0]["key"]
        digest = (digest - row_term(prefix, key, right) + row_term(prefix, key, wrong)) % (1 << 128)
    files = tuple(planted if one == file else one for one in manifest.files)
    forged = msgspec.structs.replace(manifest, files=files, digest=f"{digest:032x}")
    (folder / MANIFEST_NAME).write_bytes(encode_manifest(forged))
    return forged


def test_each_replicas_snapshots_are_verified_by_another_and_the_log_is_trimmed(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: len(world.verified) == 4)
        assert set(world.verified) == {"replica:a", "replica:b", "replica:c", "lake"}
        verified = world.leader._context.state.verified
        assert all(one.by != place.removeprefix("replica:") for place, one in verified.items())
        assert {one.domain for one in verified.values()} == {"a", "b", "c", "lake"}
        await world.until_trimmed()
        await world.agree()
        assert world.leader.status().alarms == ()

    run(tmp_path, scenario)


def test_of_two_replicas_each_verifies_the_others(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: len(world.verified) == 2)
        verified = world.leader._context.state.verified
        assert {place: one.by for place, one in verified.items()} == {"replica:a": "b", "replica:b": "a"}
        await world.until_trimmed()

    run(tmp_path, scenario, names=("a", "b"), prepare=without_lake)


def test_a_replica_that_is_alone_trims_by_the_lake_only_when_another_has_read_it(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        for _ in range(40):
            await world.add(10)
            await asyncio.sleep(0.5)
        assert [one.written_by for one in world.lake().manifests()][0] == "a"
        assert world.verified == {}
        assert await world.first_revision() == 1

    run(tmp_path, scenario, names=("a",))


def without_lake(world: SnapshotWorld) -> None:
    world.has_lake = False


@pytest.mark.parametrize("digest_too", [False, True])
def test_one_wrong_row_in_a_snapshot_stops_trimming_is_an_alarm_and_nothing_is_lost(
    tmp_path: Path, digest_too: bool
) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: len(world.verified) == 2)
        # From now on every snapshot that b has is wrong before a can see it, and a's are never verified by b again.
        spoilt = world.stores["b"]
        forged: list[SnapshotManifest] = []
        install, write = spoilt.install, spoilt.write

        def _spoil(written: SnapshotManifest) -> SnapshotManifest:
            folder = tmp_path / "b" / snapshot_name(written)
            forged.append(plant_wrong_row(folder, digest_too=digest_too))
            return written

        spoilt.write = lambda *a: _spoil(write(*a))  # type: ignore[method-assign]
        spoilt.install = lambda *a: _spoil(install(*a))  # type: ignore[method-assign]
        before = world.verified["replica:b"]
        watcher = world.replicas["a"]
        await world.work_until(lambda: any("replica:b" in alarm for alarm in watcher.status().alarms))
        kept = {path.name for path in (tmp_path / "b").iterdir()}
        last = await world.first_revision()
        verified = world.verified["replica:b"]
        assert verified == before or verified < min(one.revision for one in forged)
        for _ in range(20):
            await world.add(20)
            await asyncio.sleep(0.5)
        assert world.verified["replica:b"] == verified
        covered = max(one.first_revision for one in (await world.chain()).ledgers if one.first_revision <= verified + 1)
        assert last <= await world.first_revision() <= covered, "trimmed beyond what is proven"
        assert {path.name for path in (tmp_path / "b").iterdir()} & kept, "evidence is kept"
        assert not any(one.revision in {f.revision for f in forged} and one.digest == forged[0].digest and digest_too
                       for one in world.stores["a"].manifests())  # fmt: skip
        await world.agree()

    run(tmp_path, scenario, names=("a", "b"), prepare=without_lake)


def test_a_verified_snapshot_that_is_gone_is_withdrawn_by_its_replica(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: "replica:b" in world.verified)
        name = next(name for name in ("a", "b") if name != world.leader_name)
        await world.work_until(lambda: f"replica:{name}" in world.verified)
        for path in (tmp_path / name).iterdir():
            shutil.rmtree(path)
        await world.until(lambda: any(isinstance(one, ReportWithdrawn) for one in world.reports))
        (withdrawn,) = [one for one in world.reports if isinstance(one, ReportWithdrawn)]
        assert (withdrawn.place, withdrawn.by) == (f"replica:{name}", name)

    run(tmp_path, scenario, names=("a", "b"), prepare=without_lake)


def test_rot_in_a_verified_snapshot_is_found_though_size_and_time_are_the_same(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        import os

        await world.work_until(lambda: len(world.verified) == 2)
        name = next(name for name in ("a", "b") if name != world.leader_name)
        revision = world.verified[f"replica:{name}"]
        folder = next(path for path in (tmp_path / name).iterdir() if path.name.startswith(f"{revision:020d}"))
        file = folder / "counters.parquet"
        times, content = file.stat(), bytearray(file.read_bytes())
        content[20] ^= 1
        file.write_bytes(content)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
        await world.until(lambda: any(isinstance(one, ReportWithdrawn) for one in world.reports))

    run(
        tmp_path,
        scenario,
        names=("a", "b"),
        prepare=without_lake,
        scrub_s=3.0,
        snapshot_s=1_000.0,
        snapshot_bytes=9_000,
    )


def test_a_finding_that_nobody_took_is_told_to_the_next_leader_without_another_copy(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: len(world.verified) == 3)
        follower = next(name for name in ("a", "b", "c") if name != world.leader_name)
        world.is_deaf, seen = True, len(world.downloads)
        await world.work_until(lambda: any(who == follower for who, _, _ in world.downloads[seen:]))
        whose, revision = next((whose, at) for who, whose, at in world.downloads[seen:] if who == follower)
        await asyncio.sleep(3.0)
        assert world.verified[f"replica:{whose}"] < revision
        world.silent = {"a", "b", "c"}  # No copy from now on.
        world.kill(str(world.leader_name))
        world.is_deaf = False
        await world.until(lambda: world.leader_name is not None)
        await world.until(lambda: world.verified[f"replica:{whose}"] >= revision)

    run(tmp_path, scenario, prepare=without_lake)


def test_no_newer_snapshot_pushes_out_the_newest_verified_one(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: len(world.verified) == 2)
        world.silent = {"a", "b"}  # Nobody can verify anything now.
        await asyncio.sleep(2.0)
        await world.agree()
        verified = dict(world.verified)
        for _ in range(60):
            await world.add(20)
            await asyncio.sleep(1.0)
            for store in world.stores.values():
                store._lent.clear()  # The minute of real time for which a copied one is kept has passed.
        assert world.verified == verified
        for name in ("a", "b"):
            revisions = [one.revision for one in world.stores[name].manifests()]
            assert len(revisions) == 4
            assert revisions[-1] == verified[f"replica:{name}"]
            assert revisions[2] > revisions[3]

    run(tmp_path, scenario, names=("a", "b"), prepare=without_lake)


def test_whatever_a_disk_raises_is_an_alarm_and_verification_goes_on_afterwards(tmp_path: Path) -> None:
    async def scenario(world: SnapshotWorld) -> None:
        await world.work_until(lambda: len(world.verified) == 2)
        store = world.stores["b"]
        manifests = store.manifests

        def _broken() -> list[SnapshotManifest]:
            raise OSError(5, "Input/output error")

        store.manifests = _broken  # type: ignore[method-assign]
        replica = world.replicas["b"]
        await world.until(lambda: any("Input/output error" in text for text in replica.status().alarms))
        store.manifests = manifests  # type: ignore[method-assign]
        before = world.verified["replica:a"]
        await world.work_until(lambda: world.verified["replica:a"] > before)
        assert replica.status().alarms == ()

    run(tmp_path, scenario, names=("a", "b"), prepare=without_lake)
